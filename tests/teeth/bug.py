"""A deliberate bug: a source edit that takes one promise away, and how it is looked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Workload: TypeAlias = Literal[
    "plain", "transactional", "crashes", "aborts", "weak", "flood", "slow", "late", "copies"
]


class DoesNotApply(Exception):
    """The code has moved on: the bug has to be planted in another way."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of a file, relative to `src/oncelog`, that stands there exactly once."""

    path: str
    old: str
    new: str

    def applied(self, package: Path) -> str:
        """The text of the file with the edit made."""
        text = (package / self.path).read_text()
        count = text.count(self.old)
        if count != 1:
            raise DoesNotApply(f"{self.path} holds this {count} times, not once:\n{self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """What is wrong, in words and in code."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    #: The simulated work that shows it.
    workload: Workload = "transactional"
    #: It is caught within so many seeds, or the test fails.
    seeds: int = 20
