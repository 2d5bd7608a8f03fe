"""How each process moved through each partition: its steps back, its gaps, and how far it came.

Two records that follow one another at neighbouring offsets prove nothing wrong, and most do. What
is kept is therefore only the rest: a step back is an anomaly at once, and a gap is one if it turns
out, when all events are known, that something readable stood in it.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.check.columns import PagedInts
from oncelog.check.history import Event, Kind, Op, Read, Record

_REPOSITIONS: Final = frozenset({Op.ASSIGN, Op.SUBSCRIBE, Op.SEEK, Op.CRASH})


class StepBack(NamedTuple):
    """A record that followed one at the same or a higher offset."""

    part: str
    before: Record
    after: Record
    before_event: int
    after_event: int


class Gap(NamedTuple):
    """Two records that followed one another with offsets between them."""

    part: str
    before: int  # the offsets around it
    after: int
    before_event: int
    after_event: int


class Span(NamedTuple):
    """Offsets that one reader went through: start <= offset <= last."""

    start: int
    last: int
    event: int  # the one that reached `last`


@dataclass(slots=True)
class _Position:
    start: int
    last: Record
    event: int


class _Gaps:
    """The gaps of one partition; of those with one beginning, the first and any wider one."""

    __slots__ = ("after", "after_event", "before", "before_event", "widest")

    def __init__(self) -> None:
        self.before = array("q")
        self.after = array("q")
        self.before_event = array("i")
        self.after_event = array("i")
        self.widest = PagedInts()  # before -> index + 1

    def add(self, before: int, after: int, before_event: int, after_event: int) -> None:
        known = self.widest.get(before)
        if known and self.after[known - 1] >= after:
            return
        self.before.append(before)
        self.after.append(after)
        self.before_event.append(before_event)
        self.after_event.append(after_event)
        self.widest.set(before, len(self.before))


class Reading:
    """Follows every consumer of the run."""

    def __init__(self) -> None:
        self.steps_back: list[StepBack] = []
        self._gaps: dict[str, _Gaps] = {}
        self._spans: dict[str, list[Span]] = {}
        self._positions: dict[int, dict[str, _Position]] = {}
        self._starts: dict[int, dict[str, int | None]] = {}

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.op in _REPOSITIONS:
            self._reposition(event)
        elif event.kind is not Kind.CALL and (event.steps or event.moved):
            self._read(event)

    def _reposition(self, event: Event) -> None:
        at = event.details.at
        if event.op is Op.SEEK and at is not None:
            self._leave(event.process, list(at))
            self._starts.setdefault(event.process, {}).update(at)
        else:
            self._leave(event.process, list(self._positions.get(event.process, ())))
            self._starts[event.process] = dict(at or {})

    def _leave(self, process: int, parts: list[str]) -> None:
        positions = self._positions.get(process, {})
        for part in parts:
            position = positions.pop(part, None)
            if position is not None:
                self._spans.setdefault(part, []).append(_span(position))

    def _read(self, event: Event) -> None:
        moved = list(event.moved)
        self._leave(event.process, moved)
        # The recorder puts a consumer back to where a transaction that did not commit began.
        undone = event.op is Op.TXN and event.kind is not Kind.OK
        began: dict[str, Record | None] = {}
        for step in event.steps:
            if isinstance(step, Read):
                for part, records in step.records.items():
                    if not records:
                        continue
                    if undone:
                        known = self._positions.get(event.process, {}).get(part)
                        began.setdefault(part, None if known is None else known.last)
                    self._advance(event, part, records)
        self._leave(event.process, moved)
        for part, last in began.items():
            self._put_back(event.process, part, last)

    def _advance(self, event: Event, part: str, records: tuple[Record, ...]) -> None:
        positions = self._positions.setdefault(event.process, {})
        position = positions.get(part)
        is_moved = part in event.moved
        if position is None:
            start = self._starts.get(event.process, {}).get(part, 0)
            start = records[0].offset if start is None else start
            position = positions[part] = _Position(start, records[0], event.n)
            records = records[1:]
        last, last_event = position.last, position.event
        for record in records:
            step = record.offset - last.offset
            if step != 1 and not is_moved:
                if step > 1:
                    self._gap(part, last.offset, record.offset, last_event, event.n)
                else:
                    self._spans.setdefault(part, []).append(
                        Span(position.start, last.offset, last_event)
                    )
                    self.steps_back.append(StepBack(part, last, record, last_event, event.n))
            last, last_event = record, event.n
        position.last, position.event = last, event.n

    def _gap(self, part: str, before: int, after: int, before_event: int, event: int) -> None:
        gaps = self._gaps.get(part)
        if gaps is None:
            gaps = self._gaps[part] = _Gaps()
        gaps.add(before, after, before_event, event)

    def _put_back(self, process: int, part: str, last: Record | None) -> None:
        position = self._positions.get(process, {}).get(part)
        if position is None:
            return
        if last is None:
            self._leave(process, [part])
        else:
            self._spans.setdefault(part, []).append(_span(position))
            position.last = last

    # --- after the last event -----------------------------------------------------------------

    def gaps(self) -> Iterator[Gap]:
        """Every gap that a reader left, each once."""
        for part, gaps in self._gaps.items():
            columns = gaps.before, gaps.after, gaps.before_event, gaps.after_event
            for around in zip(*columns, strict=True):
                yield Gap(part, *around)

    def reaches(self) -> dict[str, "Reach"]:
        """For each partition, how far readers came."""
        for process in list(self._positions):
            self._leave(process, list(self._positions[process]))
        return {part: Reach(spans) for part, spans in self._spans.items()}


def _span(position: _Position) -> Span:
    return Span(position.start, position.last.offset, position.event)


class Reach:
    """Answers who went past an offset of one partition."""

    def __init__(self, spans: list[Span]) -> None:
        self._starts: list[int] = []
        self._furthest: list[Span] = []  # the furthest of all spans that start no later
        for span in sorted(spans):
            if self._furthest and self._furthest[-1].last >= span.last:
                span = self._furthest[-1]._replace(start=span.start)
            self._starts.append(span.start)
            self._furthest.append(span)

    def past(self, offset: int) -> Span | None:
        """A reader that began at or below the offset and came further than it."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or self._furthest[index].last <= offset:
            return None
        return self._furthest[index]
