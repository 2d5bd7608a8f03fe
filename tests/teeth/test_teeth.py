"""Deliberate bugs, each in a copy of the package: the simulation catches every one of them."""

from pathlib import Path
from typing import Final, get_args

import pytest

from tests.teeth.bug import Bug, DoesNotApply, Edit, Workload
from tests.teeth.bugs import BUGS
from tests.teeth.planted import PACKAGE, check_applies, hunt, plant
from tests.teeth.table import DOCUMENT, names_in, table, with_table

WORKLOADS: Final[tuple[Workload, ...]] = get_args(Workload)
#: What a hunt finds must be the bug's doing: this one is none.
HARMLESS: Final = Edit(
    "core/producers.py", "WINDOW: Final = 5", "WINDOW: Final = 5  # as many as may be in flight"
)


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    names = [bug.name for bug in BUGS]

    assert len(names) >= 25
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_can_still_be_planted(bug: Bug) -> None:
    check_applies(bug)

    assert bug.edits


def test_a_bug_whose_place_is_gone_is_refused() -> None:
    gone = Edit("core/producers.py", "this is not in the file", "nor is this")

    with pytest.raises(DoesNotApply, match="0 times, not once"):
        gone.applied(PACKAGE)


def test_planting_changes_the_copy_and_not_the_package(tmp_path: Path) -> None:
    before = (PACKAGE / HARMLESS.path).read_text()
    package = plant(Bug(name="harmless", what="nothing", edits=(HARMLESS,)), tmp_path)

    assert HARMLESS.new in (package / HARMLESS.path).read_text()
    assert (PACKAGE / HARMLESS.path).read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_harmless_edit_is_not_caught(workload: Workload, tmp_path: Path) -> None:
    seeds = 10  # Of each workload; `make sim` runs many more on the code as it is.
    harmless = Bug(
        name="harmless", what="nothing", edits=(HARMLESS,), workload=workload, seeds=seeds
    )

    found = hunt(harmless, tmp_path)

    assert found.caught_by == (), found.log
    assert found.seeds == seeds


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_simulation_catches(bug: Bug, tmp_path: Path) -> None:
    found = hunt(bug, tmp_path)

    assert found.caught_by, f"{bug.what}: not caught within {found.seeds} seeds\n{found.log}"


def test_the_table_in_the_documents_names_every_bug() -> None:
    assert names_in(DOCUMENT.read_text()) == [bug.name for bug in BUGS], (
        "run python -m tests.teeth --write"
    )


def test_a_document_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no place"):
        with_table("nothing here", table([]))
