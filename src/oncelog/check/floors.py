"""Did enough happen for a clean verdict to mean something?

A run in which nothing was tried shows no anomaly either. Each floor counts one thing that must
have happened; the header's `scale` shrinks or raises the counts with the length of the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from oncelog.check.derive import Facts
from oncelog.check.fields import INT64
from oncelog.check.history import End, Event, Kind, Op, Run, Write

CONFIRMED: Final = 200
ABORTED: Final = 20
UNKNOWN: Final = 10
OVERLAPPING: Final = 50
QUIET_SHARE: Final = 0.5  # of the throughput of a run without faults
NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One count, and what it should be at least."""

    what: str
    reached: float
    wanted: float

    @property
    def is_missed(self) -> bool:
        """Whether too little of it happened."""
        return self.reached < self.wanted


class Tally:
    """Counts while events arrive."""

    def __init__(self) -> None:
        self.confirmed = 0  # operations that write
        self.aborted = 0  # on purpose
        self.failed = 0
        self.unknown = 0
        self.polled = 0  # records
        self.rebalances = 0
        self.overlapping = 0
        self.injected: dict[str, int] = {}
        self.ended: set[str] = set()
        self.quiet_ns = 0
        self.confirmed_in_quiet = 0
        self._active: set[tuple[str, str | None]] = set()
        self._is_over = False  # healed: what follows is no load
        self._last_t = INT64  # of the event before, and for the first one no time has passed
        self._writing: dict[str, dict[int, int]] = {}  # partition -> open calls -> process
        self._parts: dict[int, set[str]] = {}  # open call -> its partitions

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if not self._active and not self._is_over:
            self.quiet_ns += max(0, event.t - self._last_t)
        self._last_t = event.t
        if event.moved:
            self.rebalances += 1
        if event.op is Op.SEND or event.op is Op.TXN:
            self._add_operation(event)
        elif event.kind is Kind.NOTE:
            self._add_note(event)

    def _add_note(self, event: Event) -> None:
        match event.op:
            case Op.FAULT:
                self._add_fault(event)
            case Op.HEAL:
                self.ended.update(what for what, _ in self._active)
                self._active.clear()
                self._is_over = True
            case Op.CRASH:
                self._close_calls_of(event.process)
            case _:
                pass

    def _add_operation(self, event: Event) -> None:
        if event.kind is Kind.CALL:
            self._open_call(event)
            return
        if event.ref is not None:
            for part in self._parts.pop(event.ref, ()):
                self._writing[part].pop(event.ref, None)
        if event.kind is Kind.OK:
            self.confirmed += 1
            self.confirmed_in_quiet += not self._active and not self._is_over
        elif event.kind is Kind.UNKNOWN:
            self.unknown += 1
        elif event.end is End.ABORT and event.details.err is None:
            self.aborted += 1
        else:
            self.failed += 1

    def _open_call(self, event: Event) -> None:
        parts = {step.part for step in event.steps if type(step) is Write}
        self._parts[event.n] = parts
        others: set[int] = set()
        for part in parts:
            writing = self._writing.setdefault(part, {})
            for call, process in writing.items():
                if process != event.process:
                    others.add(call)
            writing[event.n] = event.process
        self.overlapping += len(others)

    def _close_calls_of(self, process: int) -> None:
        for writing in self._writing.values():
            for call in [call for call, owner in writing.items() if owner == process]:
                del writing[call]

    def _add_fault(self, event: Event) -> None:
        what = event.details.what or "fault"
        if event.details.over:
            self.ended.add(what)
            self._active.discard((what, event.details.target))
        else:
            self.injected[what] = self.injected.get(what, 0) + 1
            self._active.add((what, event.details.target))


def floors(run: Run, facts: Facts, tally: Tally) -> Iterator[Floor]:
    """Every floor that applies to this run, reached or missed."""
    noun = "transactions" if run.txn else "sends"
    yield Floor(
        what=f"confirmed {noun}", reached=tally.confirmed, wanted=ceil(CONFIRMED * run.scale)
    )
    if run.txn:
        yield Floor(
            what="confirmed aborts", reached=tally.aborted, wanted=ceil(ABORTED * run.scale)
        )
    if tally.injected:
        yield Floor(what="unknown ends", reached=tally.unknown, wanted=ceil(UNKNOWN * run.scale))
    yield Floor(
        what=f"pairs of {noun} that overlapped in one partition",
        reached=tally.overlapping,
        wanted=ceil(OVERLAPPING * run.scale),
    )
    for what in run.faults:
        is_done = what in tally.injected and what in tally.ended
        yield Floor(what=f"fault {what} injected and ended", reached=is_done, wanted=1)
    yield Floor(what="final completed", reached=facts.is_final_complete, wanted=1)
    if run.mode == "subscribe":
        yield Floor(what="rebalances", reached=tally.rebalances, wanted=1)
    if run.quiet_ops_s is not None:
        reached = tally.confirmed_in_quiet * NS_PER_S / max(1, tally.quiet_ns)
        yield Floor(
            what=f"{noun} confirmed per second in quiet periods",
            reached=round(reached, 1),
            wanted=run.quiet_ops_s * QUIET_SHARE,
        )
