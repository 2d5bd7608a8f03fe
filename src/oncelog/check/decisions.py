"""Does the log say of each transaction what its client was told?

decision-flip. Whoever walks the log notes each marker with the values that it ends; a reader that
was handed records has no part in it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import CONFIRMED, FAILED, IS_TXN, NONE, Facts, Place
from oncelog.check.history import End, Event, Op


class _Marker(NamedTuple):
    end: End
    place: Place
    event: int
    value: int


class Decisions:
    """Collects the markers that do not say what their transaction's client was told."""

    OPS: Final = frozenset({Op.MARKER})

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        #: By operation. A marker that agrees with a definite outcome is not kept.
        self.markers: dict[int, list[_Marker]] = {}

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.end is None:
            return
        for part, offset in (event.details.at or {}).items():
            place = Place(part, NONE if offset is None else offset)
            for value in event.details.values:
                self._add(_Marker(event.end, place, event.n, value))

    def _add(self, marker: _Marker) -> None:
        facts = self._facts
        row = facts.row_of(marker.value)
        op = NONE if row is None else facts.op[row]
        if op == NONE or not facts.ops.flags[op] & IS_TXN:
            return
        agrees = CONFIRMED if marker.end is End.COMMIT else FAILED
        if facts.ops.state[op] != agrees:
            self.markers.setdefault(op, []).append(marker)


def decision_flips(facts: Facts, decisions: Decisions) -> Iterator[Anomaly]:
    """A transaction that is not what its client was told, or is both committed and aborted."""
    for op, markers in sorted(decisions.markers.items()):
        told = _told(facts, op)
        flipped = [marker for marker in markers if marker.end is not told]
        if told is not None and flipped:
            because = f"its client was told of {_with_article(told)}"
            if told is End.COMMIT and facts.ops.state[op] != CONFIRMED:
                because = "its values were read as committed"
            yield _flip(facts, op, flipped[:1], because)
        elif len({marker.end for marker in markers}) == 2:
            other = next(marker for marker in markers if marker.end is not markers[0].end)
            yield _flip(facts, op, [markers[0], other], "both cannot be")


def _told(facts: Facts, op: int) -> End | None:
    if facts.is_proven_txn(op):
        return End.COMMIT
    return End.ABORT if facts.ops.state[op] == FAILED else None


def _with_article(end: End) -> str:
    return f"a {end}" if end is End.COMMIT else f"an {end}"


def _flip(facts: Facts, op: int, markers: list[_Marker], because: str) -> Anomaly:
    said = " and ".join(
        f"{_with_article(marker.end)} marker at {marker.place} "
        f"(event {marker.event}, value {marker.value})"
        for marker in markers
    )
    return Anomaly(
        name=Name.DECISION_FLIP,
        text=f"the transaction of process {facts.ops.process[op]} ({facts.asked(op)}) has "
        f"{said}, but {because}",
        values=tuple(marker.value for marker in markers),
        events=(*facts.events_of(op), *(marker.event for marker in markers)),
        places=tuple(marker.place for marker in markers),
    )
