"""Are transactions all or nothing, and does nobody see one that is not committed?

torn, aborted-read, early-read, own-read, overlap, hole. (aborted-read also covers plain sends that
were refused: what certainly had no effect must not be read.)
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
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
    WANTS_COMMIT,
    Consumed,
    Facts,
    Place,
)
from oncelog.check.offsets import Fetched, OffsetReads


def torn_transactions(facts: Facts) -> dict[int, Anomaly]:
    """Those of which `final` holds a part, by operation."""
    present = array("i", bytes(4 * len(facts.ops)))  # one row + 1 that is there, or 0
    absent: dict[int, list[int]] = {}
    for row, op in enumerate(facts.op):
        if op == NONE or not facts.ops.flags[op] & IS_TXN or not facts.is_proven(row):
            continue
        if facts.flags[row] & READ_IN_FINAL:
            present[op] = row + 1
        elif facts.home(row).final_event is not None and not facts.home(row).log_start:
            absent.setdefault(op, []).append(row)
    return {
        op: _torn(facts, op, present[op] - 1, rows) for op, rows in absent.items() if present[op]
    }


def _torn(facts: Facts, op: int, present: int, absent: list[int]) -> Anomaly:
    there = facts.sightings(present)[0]
    lacking = ", ".join(f"value {facts.value[row]} of {facts.home(row).name}" for row in absent)
    return Anomaly(
        name=Name.TORN,
        text=f"of the transaction of process {facts.ops.process[op]} ({facts.asked(op)}) the final "
        f"read holds value {facts.value[present]} at {there.place} and lacks {lacking}",
        values=(facts.value[present], *(facts.value[row] for row in absent)),
        events=facts.events_of(op),
        places=(there.place,),
    )


def torn_offsets(facts: Facts, reads: OffsetReads) -> Iterator[Anomaly]:
    """The offsets in a transaction share the fate of its values: here one of both went alone.

    Told of groups whose offsets only transactions have set: from what any read of them returned, and
    from what they are after healing.
    """
    for (group, part), consumed in sorted(facts.consumed.items()):
        if (group, part) in reads.plain:
            continue
        told: set[int] = set()
        for index, fetched in _ahead(facts, consumed, reads.fetched.get((group, part), [])):
            told.add(consumed.op[index])
            what = f"the offset was {fetched.offset}, though {_unasked(facts, consumed.op[index])}"
            yield _torn_offset(facts, group, part, consumed, index, what, fetched.event)
        if (group, part) in reads.settled:
            found, event = reads.settled[group, part]
            for index, what in _one_alone(facts, consumed, 0 if found is None else found):
                if consumed.op[index] not in told:
                    yield _torn_offset(facts, group, part, consumed, index, what, event)


def _ahead(
    facts: Facts, consumed: Consumed, fetched: list[Fetched]
) -> Iterator[tuple[int, Fetched]]:
    """Offsets that a read returned and that no transaction can have set by then."""
    wanted = {fetch.offset for fetch in fetched}
    setters: dict[int, list[int]] = {}
    for index, end in enumerate(consumed.end):
        if end in wanted:
            setters.setdefault(end, []).append(index)
    for fetch in fetched:
        may_have_set = setters.get(fetch.offset, [])
        if may_have_set and not any(
            facts.ops.state[op] != FAILED and facts.ops.tc[op] <= fetch.t
            for op in (consumed.op[index] for index in may_have_set)
        ):
            yield may_have_set[0], fetch


def _unasked(facts: Facts, op: int) -> str:
    if facts.ops.state[op] == FAILED:
        return "it was not committed"
    return "its commit was only asked for later"


def _one_alone(facts: Facts, consumed: Consumed, settled: int) -> Iterator[tuple[int, str]]:
    """Transactions that the offset after healing and the final read tell different things of."""
    covered = _Ranges(
        (consumed.start[index], consumed.end[index])
        for index, op in enumerate(consumed.op)
        if facts.is_proven_txn(op)
    )
    skipped: dict[int, int] = {}  # by operation
    for index, op in enumerate(consumed.op):
        start, end = consumed.start[index], consumed.end[index]
        if not facts.is_proven_txn(op):
            if end <= settled and not covered.touch(start, end):
                skipped[op] = index
        elif end > settled and facts.ops.state[op] != CONFIRMED:  # else it is a stale offset
            yield index, f"its values were read, and the offset is {settled}"
    for op in _absent(facts, skipped.keys()):
        yield skipped[op], f"none of its values is there, and the offset is {settled}"


def _torn_offset(
    facts: Facts, group: str, part: str, consumed: Consumed, index: int, what: str, event: int
) -> Anomaly:
    op = consumed.op[index]
    return Anomaly(
        name=Name.TORN,
        text=f"the transaction of process {facts.ops.process[op]} ({facts.asked(op)}) consumed "
        f"{_range(part, consumed, index)} for group {group}: {what}, as event {event} was told",
        events=(*facts.events_of(op), event),
        places=(Place(part, consumed.end[index]),),
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


def _absent(facts: Facts, ops: Collection[int]) -> list[int]:
    """Those of the transactions that wrote something, and of which the final read lacks all."""
    if not ops:
        return []
    is_absent: dict[int, bool] = {}
    for row, op in enumerate(facts.op):
        if op in ops:
            home = facts.home(row)
            is_gone = home.final_event is not None and not home.log_start
            is_gone = is_gone and not facts.flags[row] & READ
            is_absent[op] = is_gone and is_absent.get(op, True)
    return [op for op, is_gone in is_absent.items() if is_gone]


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
        tc, state, read_at = facts.ops.tc[op], facts.ops.state[op], facts.read_early.get(row)
        if state == UNKNOWN and not facts.ops.flags[op] & WANTS_COMMIT:
            why = "never asked for"
        elif state != FAILED and tc != NONE and read_at is not None and read_at < tc:
            why = f"asked for {tc - read_at} ns later"
        else:
            continue
        first = facts.sightings(row)[0]
        yield Anomaly(
            name=Name.EARLY_READ,
            text=f"event {first.event} read value {facts.value[row]} at {first.place}; the commit "
            f"of its transaction ({facts.asked(op)}) was {why}",
            values=(facts.value[row],),
            events=(first.event, *facts.events_of(op)),
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
        # A transaction whose end is unknown, and that wrote nothing anyone saw, may fill a hole.
        maybe = _Ranges(
            (consumed.start[index], consumed.end[index])
            for index, op in enumerate(consumed.op)
            if facts.ops.state[op] != FAILED and not facts.is_proven_txn(op)
        )
        furthest: int | None = None
        for index in order:
            if furthest is not None:
                if consumed.start[index] < consumed.end[furthest]:
                    yield _overlap(facts, group, part, consumed, furthest, index)
                else:
                    yield from _holes(facts, group, part, consumed, furthest, index, maybe)
            if furthest is None or consumed.end[index] > consumed.end[furthest]:
                furthest = index


def _overlap(
    facts: Facts, group: str, part: str, consumed: Consumed, first: int, second: int
) -> Anomaly:
    return Anomaly(
        name=Name.OVERLAP,
        text=f"group {group} consumed {_range(part, consumed, first)} "
        f"({facts.asked(consumed.op[first])}) and {_range(part, consumed, second)} "
        f"({facts.asked(consumed.op[second])})",
        events=facts.events_of(consumed.op[first]) + facts.events_of(consumed.op[second]),
        places=(Place(part, consumed.start[second]),),
    )


def _holes(
    facts: Facts,
    group: str,
    part: str,
    consumed: Consumed,
    first: int,
    second: int,
    maybe: _Ranges,
) -> Iterator[Anomaly]:
    start, end = consumed.end[first], consumed.start[second]
    partition = facts.partitions.get(part)
    if start >= end or partition is None:
        return
    for offset in partition.positions.keys_between(max(start, partition.log_start) - 1, end):
        if maybe.touch(offset, offset + 1):
            continue
        value = facts.value[partition.positions.get(offset) - 1]
        yield Anomaly(
            name=Name.HOLE,
            text=f"group {group} consumed {_range(part, consumed, first)} and "
            f"{_range(part, consumed, second)}, but value {value} at {part}@{offset} in neither",
            values=(value,),
            events=facts.events_of(consumed.op[first]) + facts.events_of(consumed.op[second]),
            places=(Place(part, offset),),
        )
        return


def _range(part: str, consumed: Consumed, index: int) -> str:
    return f"{part}@[{consumed.start[index]}, {consumed.end[index]})"
