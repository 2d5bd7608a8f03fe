"""Every test shows something: a test without an assertion passes whatever the code does."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
#: Of pytest: what fails a test without the word `assert`.
PYTEST = {"raises", "warns", "fail"}
#: How the names of our own helpers begin that assert something for a test.
HELPER = "assert_"


def silent_tests(source: str) -> Iterator[str]:
    """The names of the tests that could not fail of what they find."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test_") and not any(map(_asserts, ast.walk(node))):
                yield node.name


def _asserts(node: ast.AST) -> bool:
    match node:
        case ast.Assert():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in PYTEST or name.startswith(HELPER)
    return False


def test_a_test_without_an_assertion_is_found() -> None:
    source = """
def test_silent(): run()
async def test_silent_too(): await check_it()
def test_loud(): assert run()
def test_raising():
    with pytest.raises(ValueError): run()
def test_helped(): world.assert_exact()
def helper(): run()
"""
    assert list(silent_tests(source)) == ["test_silent", "test_silent_too"]


def test_every_test_asserts_something() -> None:
    found = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in silent_tests(path.read_text())
    ]

    assert not found, "give each an assertion, or call a helper that is named assert_..."
