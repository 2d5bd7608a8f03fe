"""Writes the state diagram and the two tables in `docs/transactions.md` from the tables in the code.

python tools/diagrams.py          # rewrite them
python tools/diagrams.py --check  # only say whether they are up to date
"""

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from oncelog.core.txn.machine import END_V2, IDLE, NEXT, EndV2, Hold, Input, Step, TxnState

DOCUMENT: Final = Path(__file__).parents[1] / "docs/transactions.md"
END: Final = "<!-- end of {name} -->"
BEGIN: Final = "<!-- {name}: made by tools/diagrams.py -->"

INPUTS: Final[Mapping[Input, str]] = {
    Input.ADD: "a partition is added",
    Input.COMMIT: "EndTxn, commit",
    Input.ABORT: "EndTxn, abort",
    Input.EXPEL: "timeout, or a newer instance",
    Input.MARKED: "all markers are written",
}
ENDS: Final[Mapping[EndV2, str]] = {
    EndV2.COMMIT_AT_E: "commit at E",
    EndV2.COMMIT_BEFORE: "commit at E-1",
    EndV2.ABORT_AT_E: "abort at E",
    EndV2.ABORT_BEFORE: "abort at E-1",
}
HOLDS: Final[Mapping[Hold, str]] = {
    Hold.DONE: "succeeds, writes nothing",
    Hold.BUSY: "waits (51)",
    Hold.WRONG: "refused (48)",
    Hold.FENCED: "fenced (90)",
    Hold.BUG: "never",
}

Column = TypeVar("Column", bound=Enum)


def cell(step: Step) -> str:
    return HOLDS[step] if isinstance(step, Hold) else f"**{step.label}**"


def table(rows: Mapping[TxnState, Mapping[Column, Step]], columns: Mapping[Column, str]) -> str:
    """One row for each state, as it stands in the code."""
    lines = [f"| | {' | '.join(columns.values())} |", "|---" * (len(columns) + 1) + "|"]
    for state, row in rows.items():
        lines.append(f"| {state.label} | {' | '.join(cell(row[column]) for column in columns)} |")
    return "\n".join(lines)


def diagram() -> str:
    """What can follow what, and why."""
    reasons: dict[tuple[TxnState, TxnState], list[str]] = {}
    for state in sorted(IDLE, key=lambda state: state.value):
        reasons.setdefault((state, TxnState.EMPTY), []).append("InitProducerId")
    for state, row in NEXT.items():
        for name, step in row.items():
            if isinstance(step, TxnState):
                reasons.setdefault((state, step), []).append(INPUTS[name])
    for state, ends in END_V2.items():
        for end, step in ends.items():
            if isinstance(step, TxnState) and state in IDLE:
                reasons.setdefault((state, step), []).append(f"V2 {ENDS[end]}, of nothing")
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> Empty: InitProducerId"]
    for (before, after), why in reasons.items():
        lines.append(f"    {before.label} --> {after.label}: {'<br>'.join(why)}")
    return "\n".join([*lines, "```"])


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "diagram": diagram,
    "table of states": lambda: table(NEXT, INPUTS),
    "table of ends": lambda: table(END_V2, ENDS),
}


def with_parts(document: str) -> str:
    """The document with its diagram and tables made anew."""
    for name, make in PARTS.items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        head, found, rest = document.partition(begin)
        _, ended, tail = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{DOCUMENT.name} has no place for the {name}")
        document = f"{head}{begin}\n{make()}\n{end}{tail}"
    return document


def main() -> int:
    """Write the parts, or compare them."""
    document = DOCUMENT.read_text()
    wanted = with_parts(document)
    if "--check" in sys.argv:
        return 0 if document == wanted else 1
    DOCUMENT.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
