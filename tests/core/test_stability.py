"""What read_committed readers may see: the last stable offset, and which transactions to leave out.

The last tests let a reader do what Kafka's clients do (section 8.3) with random interleaved logs, for
every fetch that a broker could answer, and compare with what was committed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.stability import (
    ENTRY,
    AbortedTxn,
    EndedTxn,
    Stability,
    aborted_between,
    aborted_entry,
)


def lso(stability: Stability, high_watermark: int, log_start_offset: int = 0) -> int:
    return stability.last_stable_offset(
        high_watermark=high_watermark, log_start_offset=log_start_offset
    )


# --- the last stable offset ---------------------------------------------------------------------


def test_without_transactions_everything_committed_is_stable() -> None:
    """Check 93."""
    assert lso(Stability(), 17) == 17


def test_the_oldest_open_transaction_holds_the_last_stable_offset() -> None:
    """Check 93; scenario 113."""
    stability = Stability()
    stability.begin(2, 5)
    stability.begin(1, 8)

    assert lso(stability, 20) == 5
    stability.end(2, 20, committed=True)
    assert lso(stability, 21) == 8
    stability.end(1, 21, committed=False)
    assert lso(stability, 22) == 22


def test_further_records_do_not_move_the_first_offset() -> None:
    stability = Stability()
    stability.begin(1, 5)
    stability.begin(1, 9)

    assert lso(stability, 20) == 5
    assert stability.open_transactions() == {1: 5}


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_marker_counts_when_it_is_below_the_high_watermark(committed: bool) -> None:
    """Check 94: until then a failover could take it back."""
    stability = Stability()
    stability.begin(1, 5)
    stability.end(1, 10, committed=committed)

    assert lso(stability, 10) == 5
    assert lso(stability, 11) == 11


def test_a_settled_end_is_forgotten_and_an_unsettled_one_is_not() -> None:
    stability = Stability()
    for producer_id in (1, 2):
        stability.begin(producer_id, producer_id)
    stability.end(1, 10, committed=True)
    stability.end(2, 11, committed=True)

    stability.settle(11)

    assert lso(stability, 11) == 2
    stability.settle(12)
    assert lso(stability, 12) == 12


def test_a_transaction_above_the_high_watermark_holds_nothing() -> None:
    """Section 8.1: the high watermark is never passed."""
    stability = Stability()
    stability.begin(1, 30)

    assert lso(stability, 20) == 20


def test_the_last_stable_offset_is_not_below_the_log_start() -> None:
    """Section 8.1. Kafka does not raise it (appendix B, 6) and answers with what is deleted."""
    stability = Stability()
    stability.begin(1, 0)

    assert lso(stability, 10, log_start_offset=2) == 2
    assert lso(stability, 10, log_start_offset=10) == 10
    assert stability.open_transactions() == {1: 0}


def test_a_marker_without_data_ends_nothing() -> None:
    """KAFKA-10702: no entry, no effect."""
    stability = Stability()

    assert stability.end(1, 3, committed=False) is None
    assert lso(stability, 3) == 3


def test_an_end_says_what_has_ended() -> None:
    stability = Stability()
    stability.begin(1, 5)
    assert 1 in stability

    assert stability.end(1, 9, committed=False) == EndedTxn(1, 5, 9, False)
    assert 1 not in stability
    assert stability.oldest_open_offset() is None


# --- the index ----------------------------------------------------------------------------------


def test_an_entry_has_kafkas_layout() -> None:
    """Section 8.2: 34 bytes."""
    assert ENTRY.size == 34
    assert ENTRY.pack(0, *AbortedTxn(1, 2, 3, 4)).hex() == (
        "0000" + "0000000000000001" + "0000000000000002" + "0000000000000003" + "0000000000000004"
    )


@pytest.mark.parametrize(("oldest_open", "stable"), [(None, 10), (7, 7)])
def test_an_entry_knows_what_was_stable_then(oldest_open: int | None, stable: int) -> None:
    """Section 7.3, 3: the oldest other open transaction, or the end of the marker."""
    entry = aborted_entry(EndedTxn(1, 5, 9, False), oldest_open)

    assert entry == AbortedTxn(1, 5, 9, stable)


def listed(entries: Sequence[AbortedTxn], start: int, end: int) -> list[AbortedTxn]:
    return [entry for entry in aborted_between(entries, start, end) if entry is not None]


def test_a_transaction_is_listed_as_long_as_its_marker_is_ahead() -> None:
    """Checks 96, 97: in the middle of it too, and no longer once the reader is past its marker."""
    entry = AbortedTxn(1, first_offset=5, last_offset=9, last_stable_offset=10)

    assert listed([entry], 0, 5) == []
    assert listed([entry], 0, 6) == [entry]
    assert listed([entry], 7, 8) == [entry]
    assert listed([entry], 9, 10) == [entry]
    assert listed([entry], 10, 20) == []


def test_the_search_ends_where_nothing_older_can_follow() -> None:
    """Section 8.2: an entry whose last stable offset is at the end of the data."""
    early = AbortedTxn(1, 0, 2, 3)
    late = AbortedTxn(2, 3, 9, 10)

    assert list(aborted_between([early, late], 0, 3)) == [early, None]
    assert list(aborted_between([early, late], 0, 4)) == [early, late, None]
    assert list(aborted_between([early, late], 0, 11)) == [early, late]


# --- against a reader that does what clients do ---------------------------------------------------


class Batch(NamedTuple):
    """As much of a batch as a reader looks at."""

    base_offset: int
    last_offset: int
    producer_id: int | None
    outcome: bool | None = None  # of a marker: whether it commits

    @property
    def is_data(self) -> bool:
        return self.outcome is None


@dataclass
class Log:
    """A partition of one node: every append is committed at once."""

    batches: list[Batch] = field(default_factory=list)
    stability: Stability = field(default_factory=Stability)
    #: The index of each segment, and where it begins.
    segments: list[tuple[int, list[AbortedTxn]]] = field(default_factory=lambda: [(0, [])])
    aborted: set[int] = field(default_factory=set)
    open_records: dict[int, set[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def write(self, producer_id: int | None, count: int) -> None:
        base_offset = self.end
        self.batches.append(Batch(base_offset, base_offset + count - 1, producer_id))
        if producer_id is not None:
            self.stability.begin(producer_id, base_offset)
            records = self.open_records.setdefault(producer_id, set())
            records.update(range(base_offset, base_offset + count))

    def mark(self, producer_id: int, committed: bool) -> None:
        offset = self.end
        self.batches.append(Batch(offset, offset, producer_id, committed))
        ended = self.stability.end(producer_id, offset, committed=committed)
        records = self.open_records.pop(producer_id, set())
        if not committed:
            self.aborted |= records
            if ended is not None:
                entry = aborted_entry(ended, self.stability.oldest_open_offset())
                self.segments[-1][1].append(entry)

    def roll(self) -> None:
        self.segments.append((self.end, []))

    def aborted_list(self, start: int, end: int) -> list[AbortedTxn]:
        """As storage asks for it: from the segment of the fetch offset onwards."""
        first = bisect_right(self.segments, start, key=lambda segment: segment[0]) - 1
        found: list[AbortedTxn] = []
        for _, entries in self.segments[first:]:
            for entry in aborted_between(entries, start, end):
                if entry is None:
                    return found
                found.append(entry)
        return found


def read_as_clients_do(
    batches: Sequence[Batch], aborted: Sequence[AbortedTxn], position: int
) -> list[int]:
    """Section 8.3, word for word."""
    waiting = sorted(aborted, key=lambda entry: entry.first_offset)
    hidden: set[int] = set()
    delivered: list[int] = []
    for batch in batches:
        if batch.producer_id is not None:
            while waiting and waiting[0].first_offset <= batch.last_offset:
                hidden.add(waiting.pop(0).producer_id)
        if batch.outcome is not None:
            if not batch.outcome and batch.producer_id is not None:
                hidden.discard(batch.producer_id)
        elif batch.producer_id not in hidden:
            delivered += range(max(batch.base_offset, position), batch.last_offset + 1)
    return delivered


WRITE = st.tuples(st.just("write"), st.none() | st.integers(1, 3), st.integers(1, 3))
MARK = st.tuples(st.just("mark"), st.integers(1, 3), st.booleans())
ROLL = st.tuples(st.just("roll"), st.none(), st.none())
STEPS = st.lists(st.one_of(WRITE, MARK, ROLL), max_size=30)


def a_log(steps: Sequence[tuple[str, int | None, int | None]]) -> Log:
    log = Log()
    for name, producer_id, argument in steps:
        match name, producer_id, argument:
            case "write", _, int(count):
                log.write(producer_id, count)
            case "mark", int(marked), committed:
                log.mark(marked, bool(committed))
            case _:
                log.roll()
    return log


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_every_fetch_gives_a_reader_the_committed_records_and_no_other(
    steps: list[tuple[str, int | None, int | None]],
) -> None:
    """Checks 95-98; scenarios 112, 115-117: any fetch offset, any number of batches."""
    log = a_log(steps)
    end = lso(log.stability, log.end)
    visible = [batch for batch in log.batches if batch.last_offset < end]
    data = {
        offset
        for batch in visible
        if batch.is_data
        for offset in range(batch.base_offset, batch.last_offset + 1)
    }

    for position in range(end):
        first = bisect_right(visible, position, key=lambda batch: batch.base_offset) - 1
        for last in range(first, len(visible)):
            fetched = visible[first : last + 1]
            fetched_end = fetched[-1].last_offset + 1
            aborted = log.aborted_list(position, fetched_end)

            delivered = read_as_clients_do(fetched, aborted, position)

            wanted = data - log.aborted
            assert delivered == [o for o in range(position, fetched_end) if o in wanted]


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 20))
def test_an_end_that_is_too_large_does_no_harm(
    steps: list[tuple[str, int | None, int | None]], too_much: int
) -> None:
    """Section 8.2: an upper bound for the data is enough."""
    log = a_log(steps)
    end = lso(log.stability, log.end)
    visible = [batch for batch in log.batches if batch.last_offset < end]

    for first, batch in enumerate(visible):
        exact = log.aborted_list(batch.base_offset, batch.last_offset + 1)
        larger = log.aborted_list(batch.base_offset, batch.last_offset + 1 + too_much)

        assert exact == larger[: len(exact)] or set(exact) <= set(larger)
        fetched = visible[first : first + 1]
        assert read_as_clients_do(fetched, exact, batch.base_offset) == read_as_clients_do(
            fetched, larger, batch.base_offset
        )


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_a_reader_past_a_marker_is_not_told_of_it(
    steps: list[tuple[str, int | None, int | None]],
) -> None:
    """Check 97: it would wait for that marker, and drop what is good."""
    log = a_log(steps)

    for start in range(log.end + 1):
        assert all(entry.last_offset >= start for entry in log.aborted_list(start, log.end + 1))


@given(STEPS, st.data())
def test_the_last_stable_offset_never_passes_what_is_undecided(
    steps: list[tuple[str, int | None, int | None]], data: st.DataObject
) -> None:
    """Checks 93, 94: for every high watermark, and settled or not."""
    log = a_log(steps)
    high_watermark = data.draw(st.integers(0, log.end), label="high watermark")
    decided: dict[int, int] = {}  # the marker that ends each record's transaction
    for batch in log.batches:
        if batch.producer_id is not None and batch.is_data:
            markers = [
                other.base_offset
                for other in log.batches
                if other.producer_id == batch.producer_id
                and not other.is_data
                and other.base_offset > batch.base_offset
            ]
            decided[batch.base_offset] = min(markers, default=log.end)
    undecided = [base for base, marker in decided.items() if marker >= high_watermark]

    expected = min([*undecided, high_watermark])

    assert lso(log.stability, high_watermark) == expected
    log.stability.settle(high_watermark)
    assert lso(log.stability, high_watermark) == expected
