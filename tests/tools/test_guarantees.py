"""What `docs/guarantees.md` promises is held by tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tools.scenarios import without_ids

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "guarantees.md"
#: A link to a test file: its text is the file, or the name of a test in words.
CITATION = re.compile(r"\[([^\]]+)\]\(\.\./(tests/[^)#]+)\)")

CITED = sorted({(path, text) for text, path in CITATION.findall(DOCUMENT.read_text())})


@cache
def names_in(path: str) -> frozenset[str]:
    """The tests of a file, those of classes included, without the scenarios that they are named for."""
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(without_ids(node.name) for node in ast.walk(tree) if isinstance(node, kinds))


def test_tests_are_cited() -> None:
    assert len(CITED) > 80


@pytest.mark.parametrize(("path", "text"), CITED, ids=[f"{p}:{t}" for p, t in CITED])
def test_a_cited_test_exists(path: str, text: str) -> None:
    assert (ROOT / path).is_file(), f"{path} is gone"
    if path != f"tests/{text}":
        assert "test_" + text.replace(" ", "_") in names_in(path)


def rows(first_column: str) -> list[str]:
    """The rows of all tables whose first column is this."""
    lines = DOCUMENT.read_text().splitlines()
    return [line for line in lines if line.startswith(f"| {first_column} |")]


@pytest.mark.parametrize("promise", [f"P{number}" for number in range(1, 17)])
def test_every_promise_has_its_limits_and_its_tests(promise: str) -> None:
    said, held = rows(promise)

    assert said.count(" | ") == 2
    assert CITATION.search(held)


@pytest.mark.parametrize("flaw", range(1, 30))
def test_every_known_flaw_has_a_row_with_a_test(flaw: int) -> None:
    (row,) = rows(str(flaw))

    assert CITATION.search(row)
