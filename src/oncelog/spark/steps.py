"""The steps of a batch, in the order in which they happen: for those who watch, and for tests that
end a driver at each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """Where the driver is; the step has just been taken."""

    LOOKED = "looked"  # the ledger was read, nobody is fenced yet
    FENCED = "fenced"  # the transactional id is ours
    PLANNED = "planned"  # input and output of the batch are decided
    WRITTEN = "written"  # every task has reported, and the account is right
    RECORDED = "recorded"  # the progress is in the transaction
    MIRRORED = "mirrored"  # the group's offsets are in the transaction
    COMMITTED = "committed"  # the commit is confirmed
    SKIPPED = "skipped"  # the batch was committed before
    RETRIED = "retried"  # the batch goes round again


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step of one batch."""

    step: Step
    name: str
    batch: int | None = None
    rows: int = 0
    rejected: int = 0
    #: How long the batch took so far.
    seconds: float = 0.0
    #: Why, for a batch that goes round again.
    why: str = ""


Watch = Callable[[Event], None]


def unwatched(event: Event) -> None:
    """Nobody looks."""


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells of the steps of everything that is written under one name."""

    name: str
    watch: Watch

    def of(
        self,
        step: Step,
        batch: int | None = None,
        *,
        rows: int = 0,
        rejected: int = 0,
        seconds: float = 0.0,
        why: str = "",
    ) -> None:
        """Say that a step has been taken."""
        self.watch(
            Event(
                step=step,
                name=self.name,
                batch=batch,
                rows=rows,
                rejected=rejected,
                seconds=seconds,
                why=why,
            )
        )
