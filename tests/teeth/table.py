"""The table of bugs in `docs/proof.md`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.teeth.planted import Hunt

DOCUMENT: Final = Path(__file__).parents[2] / "docs/proof.md"
BEGIN: Final = "<!-- teeth:begin -->"
END: Final = "<!-- teeth:end -->"
HEAD: Final = "| bug | what is wrong | caught by | seeds | CPU seconds |\n|---|---|---|---|---|\n"


def table(hunts: Sequence[Hunt]) -> str:
    """One row for each bug that was hunted."""
    rows = [
        f"| {found.bug.name} | {found.bug.what} | {', '.join(found.caught_by) or 'nothing'} "
        f"| {found.seeds} {found.bug.workload} | {found.seconds:.1f} |"
        for found in hunts
    ]
    return HEAD + "\n".join(rows)


def with_table(document: str, rows: str) -> str:
    """The document with this table between its marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no place between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def names_in(document: str) -> list[str]:
    """The bugs that the document's table names, in its order."""
    inner = document.partition(BEGIN)[2].partition(END)[0]
    rows = [line for line in inner.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows[1:]]
