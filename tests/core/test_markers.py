"""Transaction markers: Kafka's bytes, and what a reader makes of other control batches."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.batch import CONTROL, TRANSACTIONAL, read_header
from oncelog.core.errors import CorruptMessage
from oncelog.core.markers import Marker, decode_marker, encode_marker
from oncelog.core.records import KeyValue, encode_batch
from tests.core.batches import TIME_MS, resealed

# Section 1.4: base offset 0, leader epoch -1, producer 1000/5, coordinator epoch 7.
GOLDEN = {
    True: "000000000000000000000042ffffffff0240d514e90030000000000000018bcfe568000000018bcfe5680000"
    "000000000003e80005ffffffff000000012000000008000000010c00000000000700",
    False: "000000000000000000000042ffffffff02b4ebc2a10030000000000000018bcfe568000000018bcfe5680000"
    "000000000003e80005ffffffff000000012000000008000000000c00000000000700",
}
KEY_AT = 61 + 5  # length, attributes, two deltas, length of the key


def a_marker(*, committed: bool = True) -> Marker:
    return Marker(producer_id=1000, producer_epoch=5, committed=committed, coordinator_epoch=7)


def a_control_batch(key: bytes, value: bytes) -> bytes:
    return encode_batch(
        [KeyValue(key, value)],
        timestamp_ms=TIME_MS,
        attributes=CONTROL | TRANSACTIONAL,
        producer_id=1000,
        producer_epoch=5,
    )


def read(batch: bytes) -> Marker | None:
    return decode_marker(read_header(batch), batch)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_marker_has_kafkas_bytes(committed: bool) -> None:
    """Check 1."""
    batch = encode_marker(a_marker(committed=committed), timestamp_ms=TIME_MS)

    assert batch.hex() == GOLDEN[committed]
    assert len(batch) == 78


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_kafkas_bytes_are_read(committed: bool) -> None:
    assert read(bytes.fromhex(GOLDEN[committed])) == a_marker(committed=committed)


def test_a_marker_takes_one_offset_and_no_sequence() -> None:
    header = read_header(bytes.fromhex(GOLDEN[True]))

    assert (header.records_count, header.last_offset_delta, header.base_sequence) == (1, 0, -1)
    assert header.is_control
    assert header.is_transactional


@given(
    st.builds(
        Marker,
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(0, 32_767),
        committed=st.booleans(),
        coordinator_epoch=st.integers(-1, 2**31 - 1),
    ),
    st.integers(0, 2**62),
)
def test_whatever_is_written_is_read(marker: Marker, timestamp_ms: int) -> None:
    batch = encode_marker(marker, timestamp_ms=timestamp_ms)

    assert len(batch) == 78
    assert read(batch) == marker


@pytest.mark.parametrize("kind", [2, 3, 6, 99])
def test_other_kinds_of_control_records_are_skipped(kind: int) -> None:
    """Section 1.4: 2-6 belong to KRaft's logs."""
    assert read(a_control_batch(struct.pack(">hh", 0, kind), b"")) is None


def test_a_newer_version_is_read_like_this_one() -> None:
    """Section 1.4: fields may only be appended."""
    batch = a_control_batch(struct.pack(">hhi", 1, 1, 9), struct.pack(">hiq", 4, 7, 9))

    assert read(batch) == a_marker()


def test_a_marker_that_compaction_has_emptied_says_nothing() -> None:
    """Section 1.4: its batch stays for the epoch that it carries."""
    emptied = bytearray(encode_marker(a_marker(), timestamp_ms=TIME_MS)[:61])
    struct.pack_into(">i", emptied, 8, 61 - 12)
    struct.pack_into(">i", emptied, 57, 0)

    assert read(resealed(emptied)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0", b"\0\0\0\0\0\7"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\7"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\7"),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"", b""),
    ],
    ids=["short key", "negative key version", "negative value version", "short value", "nothing"],
)
def test_a_damaged_marker_is_noticed(key: bytes, value: bytes) -> None:
    """Section 1.4: a negative version is corruption."""
    with pytest.raises(CorruptMessage):
        read(a_control_batch(key, value))


def test_a_control_batch_without_a_whole_record_is_noticed() -> None:
    whole = encode_marker(a_marker(), timestamp_ms=TIME_MS)

    with pytest.raises(CorruptMessage):
        decode_marker(read_header(whole), whole[:KEY_AT])


def test_a_clients_batch_of_the_fact_sheet_has_kafkas_bytes() -> None:
    """Section 1.4, DATA: what a marker decides about."""
    batch = encode_batch(
        [KeyValue(b"k", b"v")],
        timestamp_ms=TIME_MS,
        attributes=TRANSACTIONAL,
        producer_id=1000,
        producer_epoch=5,
        base_sequence=0,
    )

    assert batch.hex() == (
        "00000000000000000000003affffffff02aa798e5c0010000000000000018bcfe568000000018bcfe5680000"
        "000000000003e80005000000000000000110000000026b027600"
    )
