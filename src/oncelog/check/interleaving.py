"""How do transactions stand to one another?

read-cycle, mixed-cycle, write-cycle, send-gap. Two kinds of edges join proven operations: one *read
from* another, or one *wrote right before* another in a partition. Committed transactions that read
from each other in a circle cannot all have been committed before they were read. Circles that need
the order of writes are legal, since transactions may interleave in a partition, and only noted.

Nearly every edge leads from an operation that completed to one that completed later. A circle has an
edge that leads back, and all of it lies within the times that such edges span; so only those parts of
a history are made into a graph.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import IS_TXN, NONE, Facts, Place
from oncelog.check.graph import Edge, Graph

READ_FROM: Final = 1
WROTE_BEFORE: Final = 2
BOTH: Final = READ_FROM | WROTE_BEFORE
NEVER: Final = (1 << 31) - 1  # when an operation completed that did not
#: Events, among those that span edges leading back, in which cycles are looked for that are only noted.
NOTED_EVENTS: Final = 1_000_000


def read_cycles(facts: Facts) -> Iterator[Anomaly]:
    """Transactions that read from each other in a circle."""
    graph = _graph(facts, lambda: _read_from(facts), None)
    for component in graph.components(READ_FROM):
        cycle = graph.short_cycle(component, READ_FROM)
        yield _cycle(facts, Name.READ_CYCLE, cycle, is_fatal=facts.reads_committed)


def noted_cycles(facts: Facts) -> Iterator[Anomaly]:
    """Circles that interleaved writes explain."""
    graph = _graph(facts, lambda: chain(_read_from(facts), _wrote_before(facts)), NOTED_EVENTS)
    for component in graph.components(WROTE_BEFORE):
        cycle = graph.short_cycle(component, WROTE_BEFORE)
        yield _cycle(facts, Name.WRITE_CYCLE, cycle, is_fatal=False)
    for component in graph.components(BOTH):
        cycle = graph.short_cycle(component, BOTH, with_all=True)
        if cycle:
            yield _cycle(facts, Name.MIXED_CYCLE, cycle, is_fatal=False)


def send_gaps(facts: Facts) -> Iterator[Anomaly]:
    """A transaction between two of whose records in a partition another's stands."""
    current, last = NONE, dict[int, int]()  # the operation at hand: partition -> row
    for row, op in enumerate(facts.op):
        if op == NONE or not facts.ops.flags[op] & IS_TXN or not facts.is_proven(row):
            continue
        if op != current:
            current = op
            last.clear()
        before = last.get(facts.part[row])
        last[facts.part[row]] = row
        if before is not None:
            yield from _gap(facts, before, row)


def _gap(facts: Facts, first: int, second: int) -> Iterator[Anomaly]:
    low, high = facts.known_offset(first), facts.known_offset(second)
    if low is None or high is None or high <= low + 1:
        return
    positions, part = facts.home(first).positions, facts.home(first).name
    for offset in positions.keys_between(low, high):
        foreign = positions.get(offset) - 1
        if facts.op[foreign] not in (NONE, facts.op[first]):
            yield Anomaly(
                name=Name.SEND_GAP,
                text=f"value {facts.value[foreign]} at {part}@{offset} stands between values "
                f"{facts.value[first]} at {part}@{low} and {facts.value[second]} at {part}@{high} "
                f"of one transaction ({facts.asked(facts.op[first])})",
                values=(facts.value[first], facts.value[foreign], facts.value[second]),
                events=facts.events_of(facts.op[first]),
                places=(Place(part, low), Place(part, offset), Place(part, high)),
                is_fatal=False,
            )
            return


def _read_from(facts: Facts) -> Iterator[Edge]:
    for reader, row in zip(facts.reader, facts.read_row, strict=True):
        writer = facts.op[row]
        if writer != NONE and facts.is_proven_txn(reader) and facts.is_proven(row):
            yield Edge(writer, reader, READ_FROM, row)


def _wrote_before(facts: Facts) -> Iterator[Edge]:
    for partition in facts.by_index:
        before = NONE
        for _, item in partition.positions.items():
            op = facts.op[item - 1]
            if op == NONE or not facts.is_proven(item - 1):
                continue
            if before not in (NONE, op):
                yield Edge(before, op, WROTE_BEFORE, item - 1)
            before = op


def _graph(facts: Facts, edges: Callable[[], Iterator[Edge]], limit: int | None) -> Graph:
    """The part of the graph in which cycles can be; the edges are gone through twice."""
    graph = Graph()
    spans = _spans(facts, edges(), limit)
    if spans:
        starts, ends = array("i", (low for low, _ in spans)), array("i", (end for _, end in spans))
        for edge in edges():
            at = bisect_right(starts, _completed(facts, edge.source)) - 1
            if at >= 0 and _completed(facts, edge.source) <= ends[at]:
                if starts[at] <= _completed(facts, edge.target) <= ends[at]:
                    graph.add(edge)
    return graph


def _spans(facts: Facts, edges: Iterator[Edge], limit: int | None) -> list[tuple[int, int]]:
    """The times, as events, that edges leading back span; where they overlap, they are joined."""
    back = array("q")  # the beginning above, the end below: a tuple for each would be dear
    for edge in edges:
        end, begin = _completed(facts, edge.source), _completed(facts, edge.target)
        if begin <= end:
            back.append(begin << 32 | end)
    spans: list[tuple[int, int]] = []
    total = 0
    for span in sorted(set(back)):
        begin, end = span >> 32, span & 0xFFFFFFFF
        if spans and begin <= spans[-1][1]:
            total += max(0, min(end, facts.events) - spans[-1][1])
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            total += min(end, facts.events) - begin
            spans.append((begin, end))
        if limit is not None and total > limit:
            break
    return spans


def _completed(facts: Facts, op: int) -> int:
    completed = facts.ops.completed[op]
    return NEVER if completed == NONE else completed


def _cycle(facts: Facts, name: Name, cycle: list[Edge], *, is_fatal: bool) -> Anomaly:
    said = ", and ".join(_said(facts, edge) for edge in cycle)
    return Anomaly(
        name=name,
        text=said,
        values=tuple(facts.value[edge.row] for edge in cycle),
        events=tuple(event for edge in cycle for event in facts.events_of(edge.source)),
        places=tuple(_place(facts, edge.row) for edge in cycle),
        is_fatal=is_fatal,
    )


def _said(facts: Facts, edge: Edge) -> str:
    source, target = facts.asked(edge.source), facts.asked(edge.target)
    value, place = facts.value[edge.row], _place(facts, edge.row)
    if edge.kind == READ_FROM:
        return f"the transaction of {target} read value {value} at {place} of that of {source}"
    return f"value {value} at {place} of {target} stands right after one of {source}"


def _place(facts: Facts, row: int) -> Place:
    offset = facts.known_offset(row)
    if offset is None:  # it was read, but not in its own partition
        return facts.sightings(row)[0].place
    return Place(facts.home(row).name, offset)
