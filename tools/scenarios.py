"""Which failure scenario is shown by which test, and why some are not: the table in `docs/proof.md`.

python -m tools.scenarios          # print the table
python -m tools.scenarios --write  # put it into docs/proof.md

A test shows a scenario by having its id in its name: `test_a1_...`, `test_h112_h113_...`, or
`test_c39_to_c44_...` for a run of them. The scenarios themselves are in `scenarios.toml`.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SCENARIOS: Final = Path(__file__).with_suffix(".toml")
DOCUMENT: Final = ROOT / "docs/proof.md"
BEGIN: Final = "<!-- scenarios: made by tools/scenarios.py -->"
END: Final = "<!-- end of scenarios -->"

#: One id as a word of a test's name, or the first and the last of several.
ID: Final = re.compile(r"(?:^|(?<=_))([a-mo])(\d+)(?:_to_\1(\d+))?(?=_|$)")
LEADING_IDS: Final = re.compile(rf"^test_(?:{ID.pattern}_)+")

#: What runs in the tests of a directory: the rules alone (L1), a simulated broker (L2), Spark (L4),
#: and in all others real processes and clients (L3).
LEVELS: Final[Mapping[str, str]] = {
    "core": "L1", "model": "L1", "runtime": "L1", "storage": "L1", "wire": "L1",
    "api": "L2", "sim": "L2", "txn": "L2",
    "spark": "L4", "kill": "L4",
}  # fmt: skip
#: A test that speaks of one of these runs on simulated time, wherever it stands.
SIMULATED: Final = frozenset({"Machine", "SimBroker", "World", "simulated"})


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row: its id and what happens.

    If no test shows it, `later` is the step that will and `reason` why not yet. A `note` says how its
    tests differ from the row.
    """

    id: str
    title: str
    later: str | None = None
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Scenarios of one kind."""

    letter: str
    title: str
    scenarios: tuple[Scenario, ...]


@dataclass(frozen=True, slots=True)
class ShownBy:
    """A test that shows scenarios."""

    path: str
    name: str
    level: str
    ids: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The test's name in words, without ids."""
        return without_ids(self.name).removeprefix("test_").replace("_", " ")


def without_ids(name: str) -> str:
    """A test's name as it reads without the ids that it begins with."""
    return LEADING_IDS.sub("test_", name)


def ids_in(name: str) -> tuple[str, ...]:
    """The scenarios that a test's name speaks of."""
    found: list[str] = []
    for letter, first, last in ID.findall(name):
        found += [f"{letter.upper()}{n}" for n in range(int(first), int(last or first) + 1)]
    return tuple(found)


def groups() -> tuple[Group, ...]:
    """All scenarios, in the order of their numbers."""
    data = _data()
    later = {
        scenario: (step["title"], reason)
        for step in data["later"].values()
        for scenario, reason in step["rows"].items()
    }

    def scenario(id: str, title: str) -> Scenario:
        step, reason = later.get(id, (None, None))
        return Scenario(id, title, step, reason, data["notes"].get(id))

    return tuple(
        Group(
            letter,
            group["title"],
            tuple(scenario(f"{letter}{number}", title) for number, title in group["rows"].items()),
        )
        for letter, group in data["groups"].items()
    )


def noted() -> frozenset[str]:
    """The ids that have a note."""
    return frozenset(_data()["notes"])


def _data() -> dict[str, Any]:
    return tomllib.loads(SCENARIOS.read_text())


def excused() -> tuple[str, ...]:
    """The ids that stand under a later step; one that stands there twice is here twice."""
    return tuple(scenario for step in _data()["later"].values() for scenario in step["rows"])


@cache
def showing_tests() -> tuple[ShownBy, ...]:
    """All tests that name a scenario."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return tuple(test for path in paths for test in _tests_in(path))


def _tests_in(path: Path) -> Iterator[ShownBy]:
    text = path.read_text()
    if not ID.search(text):
        return
    relative = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            ids = ids_in(node.name) if node.name.startswith("test_") else ()
            if ids:
                yield ShownBy(str(relative), node.name, level_of(relative, node), ids)


def level_of(path: Path, test: ast.AST) -> str:
    """The level at which a test runs."""
    words = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return "L2" if words & SIMULATED else LEVELS.get(path.parts[1], "L3")


def shown() -> dict[str, list[ShownBy]]:
    """The tests of each scenario that has any."""
    found: dict[str, list[ShownBy]] = {}
    for test in showing_tests():
        for scenario in test.ids:
            found.setdefault(scenario, []).append(test)
    return found


def table() -> str:
    """The table of all groups."""
    where = shown()
    rows = [row for group in groups() for row in group.scenarios]
    later = sum(row.later is not None for row in rows)
    covered = sum(row.id in where for row in rows)
    lines = [f"Of {len(rows)} scenarios tests show {covered}; {later} wait for a later step."]
    for group in groups():
        lines += ["", f"### {group.letter}. {group.title}", ""]
        lines += ["| | scenario | level | shown by |", "|---|---|---|---|"]
        lines += [line_of(row, where.get(row.id, [])) for row in group.scenarios]
    return "\n".join(lines)


def line_of(row: Scenario, tests: list[ShownBy]) -> str:
    """One line of the table."""
    if row.later is not None:
        return f"| {row.id} | {row.title} | | later, with {row.later}: {row.reason} |"
    levels = ", ".join(sorted({test.level for test in tests}))
    links = "; ".join(f"[{test.sentence}](../{test.path})" for test in tests)
    note = f" ({row.note})" if row.note else ""
    return f"| {row.id} | {row.title}{note} | {levels} | {links or '**nothing**'} |"


def with_table(document: str) -> str:
    """The document with its table made anew."""
    head, _, rest = document.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def as_text() -> str:
    """The table for a terminal: each test by the name that pytest has for it."""
    where = shown()
    lines: list[str] = []
    for group in groups():
        lines += ["", f"{group.letter}. {group.title}"]
        for row in group.scenarios:
            found = where.get(row.id, [])
            levels = ",".join(sorted({test.level for test in found}))
            note = f" ({row.note})" if row.note else ""
            lines.append(f"  {row.id:<5}{levels:<9}{row.title}{note}")
            lines += [f"{'':16}{test.path}::{test.name}" for test in found]
            if row.later is not None:
                lines.append(f"{'':16}later, with {row.later}: {row.reason}")
            elif not found:
                lines.append(f"{'':16}NOT SHOWN")
    return "\n".join(lines[1:])


def main() -> int:
    if "--write" in sys.argv:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
    else:
        print(as_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
