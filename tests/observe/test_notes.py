"""Every note becomes one log line: a phrase, a level, and all of its fields."""

import dataclasses
import importlib
import inspect
import logging
import pkgutil
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

import oncelog.core
from oncelog.core.errors import KafkaStorageError
from oncelog.core.txn.commands import (
    TransactionTimedOut,
)
from oncelog.observe import notes

SAMPLES: dict[type, Any] = {str: "a", int: 7, bool: True}


def notes_of_the_core() -> Iterator[type]:
    """A class of the core is a note if it says so."""
    for found in pkgutil.walk_packages(oncelog.core.__path__, "oncelog.core."):
        module = importlib.import_module(found.name)
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == module.__name__ and (cls.__doc__ or "").startswith("A note"):
                yield cls


def notes_of_the_shell() -> Iterator[type]:
    for _, cls in inspect.getmembers(notes, inspect.isclass):
        if cls.__module__ == notes.__name__:
            yield cls


KINDS = sorted([*notes_of_the_core(), *notes_of_the_shell()], key=lambda cls: cls.__name__)


def a_note(kind: Any) -> Any:
    hints = get_type_hints(kind)
    return kind(**{f.name: SAMPLES[hints[f.name]] for f in dataclasses.fields(kind)})


def test_the_notes_of_the_core_are_found() -> None:
    assert set(notes_of_the_core()) == set(notes.OF_THE_CORE)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_a_note_becomes_one_line_with_all_its_fields(
    kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    note = a_note(kind)

    with caplog.at_level(logging.DEBUG, logger="oncelog"):
        notes.write_note(note)

    (line,) = caplog.records
    assert line.levelno in (logging.INFO, logging.WARNING, logging.ERROR)
    assert " " in line.getMessage(), "a phrase, not the name of a class"
    assert vars(line)["fields"] == dataclasses.asdict(note)


def test_no_two_notes_have_the_same_phrase() -> None:
    phrases = [notes.line_of(kind)[1] for kind in KINDS]

    assert len(set(phrases)) == len(phrases)


def test_what_the_shell_knows_beside_a_note_is_in_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    note = TransactionTimedOut(transactional_id="billing", after_ms=60_000)

    notes.write_note(note, {"client_id": "app", "client_host": "10.0.0.7"})

    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert vars(line)["fields"] == {
        "transactional_id": "billing",
        "after_ms": 60_000,
        "client_id": "app",
        "client_host": "10.0.0.7",
    }


def test_a_refusal_inside_the_broker_is_a_line_too(caplog: pytest.LogCaptureFixture) -> None:
    notes.write_note(KafkaStorageError("the disk is full"))

    (line,) = caplog.records
    assert vars(line)["fields"] == {"error": "the disk is full"}
