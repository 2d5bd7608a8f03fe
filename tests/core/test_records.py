"""Records inside a batch: what is written reads back, what is bad is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.batch import HEADER_BYTES, read_header
from oncelog.core.errors import CorruptMessage
from oncelog.core.records import (
    KeyValue,
    Record,
    batches,
    decode_records,
    encode_batch,
    read_varint,
)
from oncelog.core.varints import varint
from tests.core.batches import TIME_MS, a_batch


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
        (9223372036854775807, "feffffffffffffffff01"),
        (-9223372036854775808, "ffffffffffffffffff01"),
    ],
)
def test_a_varint_is_zig_zag_leb128(number: int, encoded: str) -> None:
    """The zig-zag encoding of Protocol Buffers, which Kafka uses; section 1.3."""
    assert varint(number).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11, b"\x80" * 9])
def test_a_varint_that_does_not_end_is_corrupt(data: bytes) -> None:
    """O200."""
    with pytest.raises(CorruptMessage):
        read_varint(data, 0)


@given(
    st.lists(
        st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)),
        min_size=1,
        max_size=10,
    )
)
def test_records_read_back_as_they_were_written(pairs: list[tuple[bytes, bytes | None]]) -> None:
    batch = encode_batch([KeyValue(*pair) for pair in pairs], timestamp_ms=TIME_MS)
    header = read_header(batch)._replace(base_offset=40)

    records = list(decode_records(header, memoryview(batch)[HEADER_BYTES:]))

    assert records == [
        Record(40 + index, TIME_MS, key, value) for index, (key, value) in enumerate(pairs)
    ]


def test_a_record_with_null_key_and_headers_is_read() -> None:
    """Section 1.3, written out by hand: delta 5 ms, offset 0, no key, value v, one header h=x."""
    body = bytes.fromhex("16" + "00" + "0a" + "00" + "01" + "0276" + "02" + "0268" + "0278")
    header = read_header(a_batch())

    assert list(decode_records(header, body)) == [
        Record(0, TIME_MS + 5, None, b"v", (("h", b"x"),))
    ]


def test_a_body_that_is_cut_anywhere_is_corrupt() -> None:
    batch = a_batch(count=3)
    header, body = read_header(batch), batch[HEADER_BYTES:]

    for size in range(len(body)):
        with pytest.raises(CorruptMessage):
            list(decode_records(header, body[:size]))


def test_a_record_that_reaches_into_the_next_one_is_corrupt() -> None:
    """O210: a value of three bytes swallows the length of the next record and still parses."""
    batch = bytearray(a_batch(count=2))
    value_length = batch.index(b"\x02v", HEADER_BYTES)
    batch[value_length] = 0x06

    with pytest.raises(CorruptMessage):
        list(decode_records(read_header(batch), batch[HEADER_BYTES:]))


def test_a_run_of_batches_is_walked_and_a_cut_last_one_left_out() -> None:
    first, second = a_batch(count=2), a_batch(padding=30)
    run = first + second

    for size in range(len(first), len(run)):
        assert [bytes(batch) for _, batch in batches(run[:size])] == [first]
    assert [bytes(batch) for _, batch in batches(run)] == [first, second]
    assert list(batches(first[:-1])) == []
    assert list(batches(bytes(200))) == []
