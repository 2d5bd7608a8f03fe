"""Are transactions all or nothing, and does nobody see one that is not committed?

torn, aborted-read, early-read, own-read, overlap, hole. (aborted-read also covers plain sends that
were refused: what certainly had no effect must not be read.)
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import (
    CONFIRMED,
    FAILED,
    IS_TXN,
    NONE,
    READ,
    READ_IN_FINAL,
    UNKNOWN,
    Consumed,
    Facts,
    Place,
)
from oncelog.check.offsets import OffsetReads


def torn_transactions(facts: Facts) -> dict[int, Anomaly]:
    """Those of which `final` holds a part, by operation."""
    present = array("i", bytes(4 * len(facts.ops)))
    absent: dict[int, list[int]] = {}
    for row, op in enumerate(facts.op):
        if op == NONE or not facts.ops.flags[op] & IS_TXN or not facts.is_proven(row):
            continue
        if facts.flags[row] & READ_IN_FINAL:
            present[op] += 1
        elif facts.home(row).final_event is not None and not facts.home(row).log_start:
            absent.setdefault(op, []).append(row)
    return {op: _torn(facts, op, present[op], rows) for op, rows in absent.items() if present[op]}


def _torn(facts: Facts, op: int, present_count: int, absent: list[int]) -> Anomaly:
    lacking = ", ".join(f"{facts.value[row]} of {facts.home(row).name}" for row in absent)
    return Anomaly(
        name=Name.TORN,
        text=f"the final read holds {present_count} values of the transaction of process "
        f"{facts.ops.process[op]} ({_asked(facts, op)}) and lacks {lacking}",
        values=tuple(facts.value[row] for row in absent),
        events=_events(facts, op),
    )


def torn_offsets(facts: Facts, reads: OffsetReads) -> Iterator[Anomaly]:
    """The offsets in a transaction share the fate of its values: here one of both went alone.

    Told from what the group's offsets are after healing, where only transactions have set them.
    """
    for (group, part), consumed in sorted(facts.consumed.items()):
        if (group, part) not in reads.settled or (group, part) in reads.plain:
            continue
        found, event = reads.settled[group, part]
        settled = 0 if found is None else found
        covered = _Ranges(
            (consumed.start[index], consumed.end[index])
            for index, op in enumerate(consumed.op)
            if facts.is_proven_txn(op)
        )
        for index, op in enumerate(consumed.op):
            start, end = consumed.start[index], consumed.end[index]
            if facts.is_proven_txn(op):
                # Of a confirmed one a stale offset is told already.
                is_torn = end > settled and facts.ops.state[op] != CONFIRMED
                what = f"its values were read, and the offset is {settled}"
            else:
                is_skipped = end <= settled and not covered.touch(start, end)
                is_torn = is_skipped and _is_absent(facts, op)
                what = f"none of its values is there, and the offset is {settled}"
            if is_torn:
                yield Anomaly(
                    name=Name.TORN,
                    text=f"the transaction of process {facts.ops.process[op]} ({_asked(facts, op)}) "
                    f"consumed {_range(part, consumed, index)} for group {group}: {what}, as event "
                    f"{event} was told",
                    events=(*_events(facts, op), event),
                    places=(Place(part, end),),
                )


class _Ranges:
    """Half-open ranges that can be asked whether they meet another."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self._starts = [start for start, _ in ordered]
        self._ends = list(accumulate((end for _, end in ordered), max))

    def touch(self, start: int, end: int) -> bool:
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start


def _is_absent(facts: Facts, op: int) -> bool:
    """Whether it wrote something, and the final read lacks all of it."""
    rows = [row for row, writer in enumerate(facts.op) if writer == op]
    return bool(rows) and all(
        facts.home(row).final_event is not None
        and not facts.home(row).log_start
        and not facts.flags[row] & READ
        for row in rows
    )


def reads_of_what_failed(facts: Facts) -> Iterator[Anomaly]:
    """A value that certainly was not written, and was read all the same."""
    for row, op in enumerate(facts.op):
        if op == NONE or not facts.flags[row] & READ or facts.ops.state[op] != FAILED:
            continue
        if facts.ops.flags[op] & IS_TXN and not facts.reads_committed:
            continue
        first = facts.sightings(row)[0]
        yield Anomaly(
            name=Name.ABORTED_READ,
            text=f"event {first.event} read value {facts.value[row]} at {first.place}, though "
            f"event {facts.ops.completed[op]} says that it was not written",
            values=(facts.value[row],),
            events=(facts.ops.completed[op], first.event),
            places=(first.place,),
        )


def early_reads(facts: Facts) -> Iterator[Anomaly]:
    """A value read before its commit was asked for, or of a transaction that never asked."""
    if not facts.reads_committed:
        return
    for row, op in enumerate(facts.op):
        if op == NONE or not facts.ops.flags[op] & IS_TXN or not facts.flags[row] & READ:
            continue
        tc, state = facts.ops.tc[op], facts.ops.state[op]
        never_asked = state == UNKNOWN and not facts.ops.wants_commit[op]
        too_early = state != FAILED and tc != NONE and facts.first_read_at[row] < tc
        if not never_asked and not too_early:
            continue
        first = facts.sightings(row)[0]
        why = (
            "never asked for"
            if never_asked
            else f"asked for {tc - facts.first_read_at[row]} ns later"
        )
        yield Anomaly(
            name=Name.EARLY_READ,
            text=f"event {first.event} read value {facts.value[row]} at {first.place}; the commit "
            f"of its transaction ({_asked(facts, op)}) was {why}",
            values=(facts.value[row],),
            events=(first.event, *_events(facts, op)),
            places=(first.place,),
        )


def own_reads(facts: Facts) -> Iterator[Anomaly]:
    """A transaction that read, as committed, what it had not committed yet."""
    if not facts.reads_committed:
        return
    for row, (place, event) in facts.own_reads:
        yield Anomaly(
            name=Name.OWN_READ,
            text=f"the transaction of event {event} read value {facts.value[row]} at {place}, "
            "which it wrote itself",
            values=(facts.value[row],),
            events=(event,),
            places=(place,),
        )


def consumed_ranges(facts: Facts) -> Iterator[Anomaly]:
    """The ranges that a group's committed transactions consumed must tile."""
    for (group, part), consumed in sorted(facts.consumed.items()):
        order = sorted(
            (index for index, op in enumerate(consumed.op) if facts.is_proven_txn(op)),
            key=lambda index: (consumed.start[index], consumed.end[index]),
        )
        furthest: int | None = None
        for index in order:
            if furthest is not None:
                if consumed.start[index] < consumed.end[furthest]:
                    yield _overlap(facts, group, part, consumed, furthest, index)
                else:
                    yield from _holes(facts, group, part, consumed, furthest, index)
            if furthest is None or consumed.end[index] > consumed.end[furthest]:
                furthest = index


def _overlap(
    facts: Facts, group: str, part: str, consumed: Consumed, first: int, second: int
) -> Anomaly:
    return Anomaly(
        name=Name.OVERLAP,
        text=f"group {group} consumed {_range(part, consumed, first)} "
        f"({_asked(facts, consumed.op[first])}) and {_range(part, consumed, second)} "
        f"({_asked(facts, consumed.op[second])})",
        events=_events(facts, consumed.op[first]) + _events(facts, consumed.op[second]),
        places=(Place(part, consumed.start[second]),),
    )


def _holes(
    facts: Facts, group: str, part: str, consumed: Consumed, first: int, second: int
) -> Iterator[Anomaly]:
    start, end = consumed.end[first], consumed.start[second]
    partition = facts.partitions.get(part)
    if start >= end or partition is None:
        return
    # A transaction whose end is unknown, and that wrote nothing anyone saw, may fill the hole.
    maybe = [
        (consumed.start[index], consumed.end[index])
        for index, op in enumerate(consumed.op)
        if facts.ops.state[op] != FAILED and not facts.is_proven_txn(op)
    ]
    for offset in partition.positions.keys_between(start - 1, end):
        if any(low <= offset < high for low, high in maybe):
            continue
        value = facts.value[partition.positions.get(offset) - 1]
        yield Anomaly(
            name=Name.HOLE,
            text=f"group {group} consumed {_range(part, consumed, first)} and "
            f"{_range(part, consumed, second)}, but value {value} at {part}@{offset} in neither",
            values=(value,),
            events=_events(facts, consumed.op[first]) + _events(facts, consumed.op[second]),
            places=(Place(part, offset),),
        )
        return


def _range(part: str, consumed: Consumed, index: int) -> str:
    return f"{part}@[{consumed.start[index]}, {consumed.end[index]})"


def _events(facts: Facts, op: int) -> tuple[int, ...]:
    known = (facts.ops.called[op], facts.ops.completed[op])
    return tuple(event for event in known if event != NONE)


def _asked(facts: Facts, op: int) -> str:
    return "events " + ", ".join(map(str, _events(facts, op)))
