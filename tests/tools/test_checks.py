"""The fact sheet's list of checks: each of the 121 is cited by a test, or its absence explained."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ALL = range(1, 122)

#: Checks that no test can show yet, and why.
NOT_YET = {
    91: "WriteTxnMarkers without rights is refused: there are no rights before there is security",
}

CITATION = re.compile(r"\b[Cc]hecks?\s+(\d+(?:\s*(?:-|to|,|and|;)\s*\d+)*)")
RANGE = re.compile(r"(\d+)\s*(?:-|to)\s*(\d+)|(\d+)")


def cited_in(text: str) -> set[int]:
    found: set[int] = set()
    for citation in CITATION.findall(text):
        for first, last, single in RANGE.findall(citation):
            found |= {int(single)} if single else set(range(int(first), int(last) + 1))
    return found


def test_citations_are_read_as_they_are_written() -> None:
    assert cited_in("Checks 3, 5-7 and 9.") == {3, 5, 6, 7, 9}
    assert cited_in("check 12: a batch") == {12}


def test_every_check_is_cited_by_a_test() -> None:
    cited: set[int] = set()
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__):
            cited |= cited_in(path.read_text())

    missing = sorted(set(ALL) - cited - set(NOT_YET))

    assert not missing
