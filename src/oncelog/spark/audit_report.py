"""What an audit has found: counts, a few examples of each kind, and one answer."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One record of a kind: how it is recognised, and where it was found on each side."""

    record: str
    input: Place | None = None
    output: tuple[Place, ...] = ()

    def __str__(self) -> str:
        came = [f"from {self.input}"] if self.input else []
        found = [" and ".join(map(str, self.output))] if self.output else []
        return " ".join([self.record, *(f"({', '.join(each)})" for each in [came + found] if each)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How many records of a kind there are, with some of them."""

    count: int = 0
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of an audit."""

    #: Records that the input asks for, and records that a reader of the output gets.
    expected: int
    output: int
    #: Records that are not in the output, as often as they are missing.
    lost: Finding
    #: Records that are in the output more often than they should be.
    duplicated: Finding
    #: Records of the output that nothing in the input asks for.
    unexpected: Finding
    #: Records that stand behind one that came after them; None if it was not looked at.
    reordered: Finding | None
    #: Records that a reader saw and that are not in the committed output; None if nobody told.
    seen_early: Finding | None
    #: Records that only a read_uncommitted reader sees: for information, not a fault.
    uncommitted: Finding

    @property
    def ok(self) -> bool:
        """Whether the output is what it should be."""
        return not any(finding and finding.count for finding in self._faults().values())

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain values, for JSON."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        verdict = "as it should be" if self.ok else "NOT as it should be"
        lines = [f"{self.expected:,} expected, {self.output:,} found: {verdict}"]
        lines += [_line(name, finding) for name, finding in self._faults().items()]
        lines.append(_line("uncommitted", self.uncommitted) + "  (for information)")
        return "\n".join(lines)

    def _faults(self) -> Mapping[str, Finding | None]:
        return {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unexpected": self.unexpected,
            "reordered": self.reordered,
            "seen early": self.seen_early,
        }


def _line(name: str, finding: Finding | None) -> str:
    if finding is None:
        return f"  {name:<12}{'-':>12}  (not looked at)"
    shown = "".join(f"\n      {example}" for example in finding.examples)
    return f"  {name:<12}{finding.count:>12,}{shown}"
