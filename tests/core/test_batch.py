"""Record batches: golden bytes, what is admitted from a client, and the place a batch gets."""

import struct

import pytest
from crc32c import crc32c

from oncelog.core.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAX_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    admit,
    check_timestamp,
    checksum,
    is_whole,
    place,
    place_with_append_time,
    read_header,
)
from oncelog.core.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from oncelog.core.records import KeyValue, encode_batch
from tests.core.batches import TIME_MS, a_batch, a_header, resealed, with_field

# Bytes of a Kafka broker and a Kafka client: transactions.md, section 1.4.
COMMIT = bytes.fromhex(
    "000000000000000000000042ffffffff0240d514e90030000000000000018bcfe568000000018bcfe568"
    "0000000000000003e80005ffffffff000000012000000008000000010c00000000000700"
)
ABORT = bytes.fromhex(
    "000000000000000000000042ffffffff02b4ebc2a10030000000000000018bcfe568000000018bcfe568"
    "0000000000000003e80005ffffffff000000012000000008000000000c00000000000700"
)
DATA = bytes.fromhex(
    "00000000000000000000003affffffff02aa798e5c0010000000000000018bcfe568000000018bcfe568"
    "0000000000000003e80005000000000000000110000000026b027600"
)


def admitted(batch: bytes | None, *, zstd: bool = True, max_bytes: int = 1 << 20) -> BatchHeader:
    view = None if batch is None else memoryview(batch)
    return admit(view, zstd_allowed=zstd, max_bytes=max_bytes)


def test_the_checksum_is_castagnoli() -> None:
    """Section 1.4, self-check."""
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(("kind", "golden"), [(1, COMMIT), (0, ABORT)])
def test_a_marker_is_written_byte_for_byte_as_kafka_writes_it(kind: int, golden: bytes) -> None:
    """Check 1."""
    marker = encode_batch(
        [KeyValue(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))],
        timestamp_ms=TIME_MS,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=1000,
        producer_epoch=5,
    )

    assert marker == golden
    assert len(marker) == 78


def test_a_data_batch_is_written_byte_for_byte_as_kafka_writes_it() -> None:
    batch = encode_batch(
        [KeyValue(b"k", b"v")],
        timestamp_ms=TIME_MS,
        attributes=TRANSACTIONAL,
        producer_id=1000,
        producer_epoch=5,
        base_sequence=0,
    )

    assert batch == DATA


def test_every_field_of_a_header_is_read_from_its_place() -> None:
    header = read_header(DATA)

    assert header == BatchHeader(
        base_offset=0,
        batch_length=58,
        leader_epoch=-1,
        magic=2,
        crc=0xAA798E5C,
        attributes=TRANSACTIONAL,
        last_offset_delta=0,
        base_timestamp=TIME_MS,
        max_timestamp=TIME_MS,
        producer_id=1000,
        producer_epoch=5,
        base_sequence=0,
        records_count=1,
    )
    assert header.size_bytes == len(DATA) == 70
    assert checksum(DATA) == header.crc
    assert header.is_transactional
    assert not header.is_control
    assert read_header(COMMIT).is_control


def test_a_good_batch_is_admitted() -> None:
    header = admitted(a_batch(count=3, sequence=5))

    assert (header.records_count, header.base_sequence, header.last_sequence) == (3, 5, 7)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(None, InvalidRecord, id="null"),
        pytest.param(b"", InvalidRecord, id="none at all"),
        pytest.param(a_batch() + a_batch(), InvalidRecord, id="two batches"),
        pytest.param(a_batch()[:-1], CorruptMessage, id="cut in the records"),
        pytest.param(a_batch()[:60], CorruptMessage, id="cut in the header"),
        pytest.param(a_batch()[:16] + b"\0" + a_batch()[17:], InvalidRecord, id="magic 0"),
        pytest.param(a_batch()[:16] + b"\1" + a_batch()[17:], InvalidRecord, id="magic 1"),
        pytest.param(a_batch()[:16] + b"\3" + a_batch()[17:], CorruptMessage, id="magic 3"),
        pytest.param(with_field(a_batch(), 0, ">q", 1), InvalidRecord, id="base offset 1"),
        pytest.param(with_field(a_batch(), 8, ">i", 10), CorruptMessage, id="length below header"),
        pytest.param(with_field(a_batch(), 8, ">i", -1), CorruptMessage, id="length -1"),
        pytest.param(with_field(a_batch(), 8, ">i", 1 << 30), CorruptMessage, id="length 1 GiB"),
        pytest.param(with_field(a_batch(), 57, ">i", 0), InvalidRecord, id="no records"),
        pytest.param(with_field(a_batch(), 57, ">i", -1), InvalidRecord, id="-1 records"),
        pytest.param(with_field(a_batch(), 57, ">i", 2), InvalidRecord, id="check 4: count"),
        pytest.param(with_field(a_batch(), 23, ">i", -1), InvalidRecord, id="last delta -1"),
        pytest.param(with_field(a_batch(), 23, ">i", 1), InvalidRecord, id="check 4: last delta"),
        pytest.param(a_batch(attributes=CONTROL), InvalidRecord, id="check 2: control"),
        pytest.param(COMMIT, InvalidRecord, id="check 2: a real marker"),
        pytest.param(a_batch(producer_id=7), InvalidRecord, id="check 3: no sequence"),
        pytest.param(a_batch(sequence=0, epoch=-1), InvalidRecord, id="no epoch"),
        pytest.param(a_batch(attributes=TRANSACTIONAL), InvalidRecord, id="no producer"),
        pytest.param(a_batch(attributes=5), InvalidRecord, id="codec 5"),
    ],
)
def test_a_batch_that_no_client_may_send_is_refused(
    batch: bytes | None, error: type[BrokerError]
) -> None:
    """Section 1.6; checks 2-4; O209-O211."""
    with pytest.raises(error):
        admitted(batch)


def test_zstd_is_refused_below_produce_version_7() -> None:
    """Section 1.6."""
    batch = a_batch(attributes=4)

    assert admitted(batch).compression == 4
    with pytest.raises(UnsupportedCompressionType):
        admitted(batch, zstd=False)


def test_a_batch_above_the_topics_limit_is_too_large() -> None:
    """Section 1.6."""
    batch = a_batch(padding=100)

    assert admitted(batch, max_bytes=len(batch)).size_bytes == len(batch)
    with pytest.raises(MessageTooLarge):
        admitted(batch, max_bytes=len(batch) - 1)


def test_o208_no_single_flipped_bit_is_admitted_with_another_meaning() -> None:
    """Check 5; O208. Bytes 12-15 are the leader epoch, which the broker overwrites unread."""
    batch = a_batch(count=2, sequence=3)

    for position in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            if 12 <= position < 16:
                assert admitted(bytes(flipped))._replace(leader_epoch=-1) == read_header(batch)
            else:
                with pytest.raises((CorruptMessage, InvalidRecord)):
                    admitted(bytes(flipped))


def test_a_batch_is_cut_nowhere_without_notice() -> None:
    """O209."""
    batch = a_batch(count=2)

    for size in range(len(batch)):
        with pytest.raises((CorruptMessage, InvalidRecord)):
            admitted(batch[:size])


# --- sequences ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "count", "last"),
    [
        (0, 1, 0),
        (0, 5, 4),
        (MAX_SEQUENCE, 1, MAX_SEQUENCE),
        (MAX_SEQUENCE, 2, 0),
        (MAX_SEQUENCE - 1, 5, 2),
    ],
)
def test_the_last_sequence_wraps_to_zero(first: int, count: int, last: int) -> None:
    """Section 1.5; A9; check 12."""
    assert a_header(sequence=first, count=count).last_sequence == last


# --- times ----------------------------------------------------------------------------------


def is_in_time(header: BatchHeader) -> bool:
    """Where a batch may be 10 ms late and 50 ms early."""
    try:
        check_timestamp(header, now_ms=TIME_MS, before_max_ms=10, after_max_ms=50)
    except InvalidTimestamp:
        return False
    return True


@pytest.mark.parametrize(("ahead_ms", "is_fine"), [(0, True), (50, True), (51, False)])
def test_f92_a_time_too_far_ahead_is_refused(ahead_ms: int, is_fine: bool) -> None:
    """F92."""
    header = a_header(timestamp_ms=TIME_MS + ahead_ms)

    assert is_in_time(header) is is_fine


@pytest.mark.parametrize(("behind_ms", "is_fine"), [(0, True), (10, True), (11, False)])
def test_f92_a_time_too_far_behind_is_refused(behind_ms: int, is_fine: bool) -> None:
    """F92."""
    header = a_header(timestamp_ms=TIME_MS - behind_ms)

    assert is_in_time(header) is is_fine


def test_a_batch_without_a_time_is_never_too_old() -> None:
    header = a_header(timestamp_ms=-1)

    assert is_in_time(header)


# --- the place in the log -------------------------------------------------------------------


def test_a_placed_batch_differs_in_offset_and_leader_epoch_alone() -> None:
    """Section 1.1: both lie outside the checksum."""
    batch = a_batch(count=2, sequence=0)

    placed = b"".join(place(memoryview(batch), read_header(batch), base_offset=42, leader_epoch=7))

    header = read_header(placed)
    assert (header.base_offset, header.leader_epoch) == (42, 7)
    assert (header.last_offset, header.next_offset) == (43, 44)
    assert checksum(placed) == header.crc == read_header(batch).crc
    assert placed[16:] == batch[16:]


def test_the_append_time_changes_max_timestamp_and_type_and_reseals_the_batch() -> None:
    """Appendix B 14: the base timestamp stays the client's."""
    batch = a_batch(count=2, sequence=0)

    placed = b"".join(
        place_with_append_time(
            memoryview(batch),
            read_header(batch),
            base_offset=42,
            leader_epoch=7,
            now_ms=TIME_MS + 5,
        )
    )

    header = read_header(placed)
    assert header.attributes == LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (TIME_MS, TIME_MS + 5)
    assert checksum(placed) == header.crc
    assert placed[HEADER_BYTES:] == batch[HEADER_BYTES:]
    assert resealed(placed) == placed


@pytest.mark.parametrize(
    ("header", "left", "whole"),
    [
        (a_header(), 10_000, True),
        (a_header(), a_header().size_bytes, True),
        (a_header(), a_header().size_bytes - 1, False),
        (a_header()._replace(magic=0), 10_000, False),
        (a_header()._replace(batch_length=48), 10_000, False),
        (a_header()._replace(batch_length=-1), 10_000, False),
        (a_header()._replace(last_offset_delta=-1), 10_000, False),
        (a_header()._replace(base_offset=-1), 10_000, False),
        (read_header(bytes(HEADER_BYTES)), 10_000, False),
    ],
)
def test_bytes_in_a_file_are_a_batch_only_if_they_can_be_one(
    header: BatchHeader, left: int, whole: bool
) -> None:
    """E69: a run of zeros is none."""
    assert is_whole(header, left) == whole
