"""`docs/transactions.md` shows the tables that the coordinator reads."""

import pytest

from oncelog.core.txn.machine import EndV2, Hold, Input, TxnState
from tools.diagrams import DOCUMENT, ENDS, HOLDS, INPUTS, diagram, with_parts


def test_the_documented_tables_are_the_codes() -> None:
    document = DOCUMENT.read_text()

    assert with_parts(document) == document, "run python tools/diagrams.py"


def test_every_input_and_every_answer_has_words() -> None:
    assert (set(INPUTS), set(ENDS), set(HOLDS)) == (set(Input), set(EndV2), set(Hold))


def test_the_diagram_shows_every_state() -> None:
    drawn = diagram()

    assert all(f"--> {state.label}:" in drawn for state in TxnState)


def test_a_document_without_places_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the diagram"):
        with_parts("nothing here")
