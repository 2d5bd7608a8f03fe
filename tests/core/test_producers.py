"""Idempotent producers in one partition: sequences, epochs, repeats, snapshots."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.batch import MAX_SEQUENCE, BatchHeader
from oncelog.core.errors import BrokerError, InvalidProducerEpoch, OutOfOrderSequence
from oncelog.core.producers import (
    WINDOW,
    Appended,
    BadSnapshot,
    Producer,
    ProducerTable,
    decode_snapshot,
    encode_snapshot,
)
from tests.core.batches import TIME_MS, a_header


class Log:
    """As much of a partition as producers need: admit, append, or recognise a repeat."""

    def __init__(self, table: ProducerTable | None = None, end_offset: int = 0) -> None:
        self.table = table or ProducerTable()
        self.end_offset = end_offset

    def send(
        self, sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 1000
    ) -> int:
        """The base offset that the producer is told."""
        header = a_header(sequence=sequence, count=count, epoch=epoch, producer_id=producer_id)
        repeated = self.table.find_duplicate(header)
        if repeated is not None:
            return repeated.base_offset
        self.table.check(header)
        return self.append(header)

    def append(self, header: BatchHeader) -> int:
        placed = header._replace(base_offset=self.end_offset)
        self.table.apply(placed, timestamp_ms=TIME_MS, active_at_ms=TIME_MS)
        self.end_offset = placed.next_offset
        return placed.base_offset

    def refusal(self, sequence: int, *, count: int = 1, epoch: int = 0) -> type[BrokerError] | None:
        """Why this batch is refused, or None; either way nothing was appended."""
        before = self.end_offset
        try:
            self.send(sequence, count=count, epoch=epoch)
        except BrokerError as error:
            assert self.end_offset == before
            return type(error)
        return None


def a_log(*, batches: int, records: int = 1) -> Log:
    log = Log()
    for index in range(batches):
        log.send(index * records, count=records)
    return log


# --- sequences ------------------------------------------------------------------------------


def test_a1_the_newest_batch_is_answered_with_its_first_offset() -> None:
    """A1; check 6."""
    log = a_log(batches=3, records=2)

    assert log.send(4, count=2) == 4
    assert log.end_offset == 6


@pytest.mark.parametrize("order", [(2, 3, 4), (4, 3, 2), (3, 2, 4, 3)])
def test_a2_five_batches_are_recognised_in_any_order(order: tuple[int, ...]) -> None:
    """A2; check 7."""
    log = a_log(batches=5, records=3)

    assert [log.send(3 * index, count=3) for index in order] == [3 * index for index in order]
    assert log.end_offset == 15


@pytest.mark.parametrize("sequence", [3, 14])
def test_a3_a_batch_older_than_the_window_is_refused(sequence: int) -> None:
    """A3; check 8: 15-19 are the five newest."""
    log = a_log(batches=20)

    assert log.refusal(sequence) is OutOfOrderSequence
    assert log.send(15) == 15


def test_a_repeat_with_another_end_is_refused() -> None:
    """Check 9."""
    log = a_log(batches=2, records=3)

    assert log.refusal(3, count=2) is OutOfOrderSequence
    assert log.refusal(3, count=4) is OutOfOrderSequence
    assert log.refusal(4, count=2) is OutOfOrderSequence


def test_a4_a_gap_is_refused_and_the_right_batch_still_accepted() -> None:
    """A4, A14; check 10."""
    log = a_log(batches=1)

    assert log.refusal(2) is OutOfOrderSequence
    assert log.send(1) == 1
    assert log.send(2) == 2


def test_zero_follows_the_highest_sequence() -> None:
    """A9; check 11."""
    log = Log()
    log.send(MAX_SEQUENCE)

    assert log.refusal(1) is OutOfOrderSequence
    assert log.send(0) == 1
    assert log.send(1) == 2


def test_a_batch_across_the_wrap_is_accepted_and_its_repeat_recognised() -> None:
    """A9; check 12."""
    log = Log()
    log.send(MAX_SEQUENCE - 1, count=5)

    assert log.send(MAX_SEQUENCE - 1, count=5) == 0
    assert log.refusal(2) is OutOfOrderSequence
    assert log.send(3) == 5


@given(st.lists(st.integers(1, 9), min_size=10, max_size=20), st.integers(0, 40))
def test_a9_any_batch_sizes_cross_the_wrap_in_one_count(sizes: list[int], before: int) -> None:
    """A9: accepted as consecutive, and each of the last five is recognised after it."""
    log, sequence = Log(), MAX_SEQUENCE - before
    sent: list[tuple[int, int, int]] = []
    for size in sizes:
        offset = log.send(sequence, count=size)
        sent.append((sequence, size, offset))
        for repeated, count, first in sent[-WINDOW:]:
            assert log.send(repeated, count=count) == first
        sequence = (sequence + size) % (MAX_SEQUENCE + 1)

    assert log.end_offset == sum(sizes)


def test_a10_a_producer_without_state_goes_on_where_it_is() -> None:
    """A10; check 15: expiry or retention may have taken what we knew."""
    log = Log()

    assert log.send(7) == 0
    assert log.send(8) == 1


def test_producers_do_not_disturb_each_other() -> None:
    log = Log()
    log.send(0, producer_id=1)
    log.send(0, producer_id=2)

    assert log.send(1, producer_id=1) == 2
    assert log.send(0, producer_id=2) == 1


# --- epochs ---------------------------------------------------------------------------------


def test_a8_a_newer_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    """A8; checks 13, 14."""
    log = a_log(batches=3)

    assert log.refusal(5, epoch=1) is OutOfOrderSequence
    assert log.refusal(3, epoch=1) is OutOfOrderSequence
    assert log.send(0, epoch=1) == 3
    assert log.refusal(3, epoch=0) is InvalidProducerEpoch
    assert log.refusal(2, epoch=0) is InvalidProducerEpoch
    assert log.send(1, epoch=1) == 4


def test_the_window_of_an_older_epoch_answers_no_repeats_of_the_new() -> None:
    log = a_log(batches=3)
    log.send(0, epoch=1)

    assert log.refusal(1, epoch=2) is OutOfOrderSequence
    assert log.send(0, epoch=1) == 3


def test_an_epoch_may_jump() -> None:
    """Section 2.3: a client that saw a gap raises its epoch by itself."""
    log = a_log(batches=1)

    assert log.send(0, epoch=32767) == 1


def test_a_producer_known_by_a_marker_alone_begins_at_zero() -> None:
    """Section 2.3, window empty."""
    log = Log()
    log.table.put(1000, Producer(producer_epoch=4, batches=(), active_at_ms=TIME_MS))

    assert log.refusal(1, epoch=4) is OutOfOrderSequence
    assert log.send(0, epoch=4) == 0


def test_what_is_in_the_log_is_taken_over_without_a_check() -> None:
    """KAFKA-6003: replay refuses nothing."""
    log = a_log(batches=3)

    log.append(a_header(sequence=77, epoch=0))

    assert log.send(78) == 4


def test_deciding_changes_nothing() -> None:
    """KAFKA-6683: state moves only after the append."""
    log = a_log(batches=2)
    before = encode_snapshot(log.table)

    log.table.find_duplicate(a_header(sequence=1))
    log.table.check(a_header(sequence=2))
    assert log.refusal(9) is OutOfOrderSequence

    assert encode_snapshot(log.table) == before


# --- expiry ---------------------------------------------------------------------------------


def test_an_idle_producer_is_forgotten_and_a_busy_one_is_not() -> None:
    """Check 23; section 2.6."""
    table = ProducerTable()
    table.apply(a_header(producer_id=1), timestamp_ms=0, active_at_ms=TIME_MS)
    table.apply(a_header(producer_id=2), timestamp_ms=0, active_at_ms=TIME_MS + 1)

    assert table.expire(now_ms=TIME_MS + 99, idle_ms=100) == []
    assert table.expire(now_ms=TIME_MS + 100, idle_ms=100) == [1]
    assert table.get(1) is None
    assert table.get(2) is not None


def test_old_record_times_do_not_make_a_producer_idle() -> None:
    """Section 2.6, trap: only the broker's clock counts."""
    table = ProducerTable()
    table.apply(a_header(timestamp_ms=0), timestamp_ms=0, active_at_ms=TIME_MS)

    assert table.expire(now_ms=TIME_MS + 1, idle_ms=100) == []


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    """Check 23."""
    table = ProducerTable()
    table.put(1, Producer(0, (), active_at_ms=0))
    table.stability.begin(1, 5)

    assert table.expire(now_ms=TIME_MS, idle_ms=1) == []


# --- snapshots ------------------------------------------------------------------------------


def test_a_snapshot_has_kafkas_layout() -> None:
    """Section 2.7, packed here by hand; the checksum covers byte 6 to the end."""
    log = a_log(batches=2, records=3)

    snapshot, _ = encode_snapshot(log.table)

    entry = struct.pack(">qhiqiqiq", 1000, 0, 5, 5, 2, TIME_MS, -1, -1)
    assert snapshot[:2] == b"\0\1"
    assert snapshot[6:] == struct.pack(">i", 1) + entry
    assert len(entry) == 46


producer = st.builds(
    Producer,
    producer_epoch=st.integers(0, 32767),
    batches=st.lists(
        st.builds(
            Appended,
            last_sequence=st.integers(0, MAX_SEQUENCE),
            last_offset=st.integers(0, 1 << 60),
            offset_delta=st.integers(0, MAX_SEQUENCE),
            timestamp=st.integers(-1, 1 << 60),
        ),
        max_size=WINDOW,
    ).map(tuple),
    active_at_ms=st.integers(0, 1 << 60),
    coordinator_epoch=st.integers(-1, MAX_SEQUENCE),
)
open_at = st.none() | st.integers(0, 1 << 60)


@given(st.dictionaries(st.integers(0, 1 << 62), st.tuples(producer, open_at), max_size=5))
def test_a_table_comes_back_from_its_snapshot(
    producers: dict[int, tuple[Producer, int | None]],
) -> None:
    """P15: all five batches, not the one that Kafka's file has room for; and what is open."""
    table = ProducerTable()
    for producer_id, (known, first_offset) in producers.items():
        table.put(producer_id, known)
        if first_offset is not None:
            table.stability.begin(producer_id, first_offset)

    restored = decode_snapshot(*encode_snapshot(table))

    assert dict(restored.items()) == {key: known for key, (known, _) in producers.items()}
    assert restored.stability.open_transactions() == {
        key: first_offset
        for key, (_, first_offset) in producers.items()
        if first_offset is not None
    }


def test_repeats_are_recognised_after_a_snapshot() -> None:
    """Check 20, for the whole window."""
    log = a_log(batches=7)

    restored = Log(decode_snapshot(*encode_snapshot(log.table)), log.end_offset)

    assert [restored.send(sequence) for sequence in range(2, 8)] == [2, 3, 4, 5, 6, 7]
    assert restored.refusal(2) is OutOfOrderSequence


@pytest.mark.parametrize("which", [0, 1])
def test_a6_no_damaged_snapshot_is_believed(which: int) -> None:
    """A6; check 24: each bit of either file flipped, and each cut."""
    files = encode_snapshot(a_log(batches=3).table)

    def damaged(data: bytes) -> tuple[bytes, bytes]:
        return (data, files[1]) if which == 0 else (files[0], data)

    for position in range(len(files[which])):
        with pytest.raises(BadSnapshot):
            decode_snapshot(*damaged(files[which][:position]))
        for bit in range(8):
            flipped = bytearray(files[which])
            flipped[position] ^= 1 << bit
            with pytest.raises(BadSnapshot):
                decode_snapshot(*damaged(bytes(flipped)))


def test_the_two_files_of_a_snapshot_must_belong_together() -> None:
    one, other = a_log(batches=1), Log()
    other.send(0, producer_id=7)

    with pytest.raises(BadSnapshot):
        decode_snapshot(encode_snapshot(one.table)[0], encode_snapshot(other.table)[1])
    with pytest.raises(BadSnapshot):
        decode_snapshot(encode_snapshot(one.table)[0], encode_snapshot(ProducerTable())[1])
