"""Rows are what the records say, and bytes that are no records are never rows."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.batch import CRC_START, HEADER, HEADER_BYTES, LOG_APPEND_TIME, checksum
from oncelog.core.errors import BrokerError, CorruptMessage
from oncelog.core.packing import Codec, encode_batch, read_records
from oncelog.core.records import Record, batches
from oncelog.core.types import TopicPartition
from oncelog.core.varints import varint
from oncelog.spark.decode import decode

PLACE = TopicPartition("orders", 3)

fields = st.none() | st.binary(max_size=200)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(-1, 1 << 45),
    key=fields,
    value=fields | st.just(b"v" * 90),
    headers=st.lists(st.tuples(st.text(max_size=5), fields), max_size=3).map(tuple),
)
some_batches = st.lists(
    st.tuples(
        st.lists(records, min_size=1, max_size=90), st.sampled_from(Codec), st.integers(0, 5)
    ),
    max_size=4,
)


def joined(parts: list[tuple[list[Record], Codec, int]]) -> bytes:
    """Batches behind one another, with gaps between their offsets."""
    out, offset = [], 0
    for content, codec, gap in parts:
        offset += gap
        out.append(encode_batch(content, codec=codec, base_offset=offset))
        offset += len(content)
    return b"".join(out)


def rows(buffer: bytes, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in decode(list(batches(buffer)), PLACE, **options):
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def as_records(found: list[dict[str, Any]]) -> list[Record]:
    return [
        Record(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in found
    ]


def one_batch(body: bytes, *, count: int, attributes: int = 0, last: int | None = None) -> bytes:
    """A batch with any body; only its checksum is right."""
    head = HEADER.pack(
        7, HEADER_BYTES - 12 + len(body), -1, 2, 0, attributes,
        count - 1 if last is None else last, 1000, 2000, -1, -1, -1, count,
    )  # fmt: skip
    batch = bytearray(head + body)
    struct.pack_into(">I", batch, CRC_START - 4, checksum(batch))
    return bytes(batch)


def record(
    key: bytes = b"\1", value: bytes = b"\1", headers: bytes = b"\0", *, delta: int = 0
) -> bytes:
    body = b"\0\0" + varint(delta) + key + value + headers
    return varint(len(body)) + body


@given(some_batches)
def test_rows_are_what_the_records_say(parts: list[tuple[list[Record], Codec, int]]) -> None:
    buffer = joined(parts)

    found = rows(buffer, include_headers=True)

    assert as_records(found) == read_records(buffer)
    assert all((r["topic"], r["partition"], r["timestampType"]) == ("orders", 3, 0) for r in found)
    assert rows(buffer, chunk_bytes=1) == [
        {name: value for name, value in row.items() if name != "headers"} for row in found
    ]


@given(some_batches, st.integers(0, 300), st.integers(0, 300))
def test_what_is_outside_of_the_range_is_left_out(
    parts: list[tuple[list[Record], Codec, int]], start: int, end: int
) -> None:
    buffer = joined(parts)

    found = rows(buffer, start=start, end=end, include_headers=True)

    assert as_records(found) == [r for r in read_records(buffer) if start <= r.offset < end]


@given(some_batches, st.data())
def test_damaged_bytes_are_an_error_or_as_many_whole_rows_as_were_announced(
    parts: list[tuple[list[Record], Codec, int]], data: st.DataObject
) -> None:
    buffer = bytearray(joined(parts))
    found = list(batches(buffer))
    if not found:
        return
    at = data.draw(st.integers(0, len(buffer) - 1))
    buffer[at] = data.draw(st.integers(0, 255))

    try:
        decoded = list(decode(found, PLACE, include_headers=True))
    except BrokerError:
        return
    for batch in decoded:
        batch.validate(full=True)  # raises if a column points outside of its bytes
    announced = sum(header.records_count for header, _ in found)
    assert sum(batch.num_rows for batch in decoded) <= announced


@given(st.binary(max_size=120), st.integers(-1, 20))
def test_any_bytes_are_rows_of_the_plain_reader_or_an_error(body: bytes, count: int) -> None:
    batch = one_batch(body, count=count, last=1 << 30)

    try:
        found = rows(batch, include_headers=True)
    except CorruptMessage:
        return
    assert as_records(found) == read_records(batch)


def test_records_of_one_length_are_followed_in_runs() -> None:
    content = [Record(0, 5, b"k", b"v" * 80) for _ in range(20_000)]
    content[9_000] = Record(0, 5, b"k", b"other")

    found = rows(joined([(content, Codec.NONE, 0)]))

    assert [row["offset"] for row in found] == list(range(20_000))
    assert [row["value"] for row in found] == [record.value for record in content]


def test_long_values_are_whole() -> None:
    content = [Record(0, 5, None, bytes([n]) * (1 << 22)) for n in range(3)]

    found = rows(joined([(content, Codec.ZSTD, 0)]))

    assert [row["value"] for row in found] == [record.value for record in content]


def test_a_batch_of_append_time_gives_it_to_all_its_records() -> None:
    batch = one_batch(record() + record(delta=1), count=2, attributes=LOG_APPEND_TIME)

    found = rows(batch)

    assert [row["timestamp"].timestamp() for row in found] == [2.0, 2.0]
    assert [row["timestampType"] for row in found] == [1, 1]


def test_compaction_leaves_gaps_and_empty_batches() -> None:
    buffer = one_batch(record(delta=1) + record(delta=4), count=2, last=9)

    assert [row["offset"] for row in rows(buffer)] == [8, 11]
    assert rows(one_batch(b"", count=0, last=9)) == []


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (one_batch(record(), count=2), "claims 2 records"),
        (one_batch(record() + record(delta=1), count=1), "end at byte"),
        (one_batch(record()[:-1] + b"\2", count=1), "more headers"),
        (one_batch(record(key=varint(100) + b"k"), count=1), "longer than its record"),
        (one_batch(record(key=varint(1 << 40)), count=1), "longer than its record"),
        (one_batch(record(key=varint(-2)), count=1), "longer than its record"),
        (one_batch(record(headers=varint(-1)), count=1), "does not end"),
        (one_batch(record(headers=varint(1 << 30)), count=1), "more headers"),
        (one_batch(record(headers=varint(1) + b"\1\1"), count=1), "no key"),
        (one_batch(record(headers=varint(1) + b"\0\0\0"), count=1), "does not end"),
        (one_batch(record(key=b"\xff" * 11), count=1), "does not end"),
        (one_batch(record(delta=5), count=1), "outside of its batch"),
        (one_batch(record() + record(), count=2), "do not ascend"),
        (one_batch(b"\x0d" + bytes(6), count=1), "too short"),
        (one_batch(varint(1 << 40) + bytes(9), count=1), "end at byte"),
        (one_batch(varint(-5000) + bytes(9), count=1), "end at byte"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_add_up_is_corrupt(batch: bytes, reason: str) -> None:
    with pytest.raises(CorruptMessage, match=reason):
        rows(batch, include_headers=True)


def test_a_time_that_no_calendar_knows_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="timestamp"):
        rows(encode_batch([Record(0, 1 << 60, None, b"v")]))


def test_a_record_without_headers_has_null_for_them() -> None:
    batch = one_batch(record(), count=1)

    assert rows(batch, include_headers=True)[0]["headers"] is None


def test_a_header_name_that_is_not_text_is_shown_as_well_as_it_can_be() -> None:
    batch = one_batch(record(headers=varint(1) + b"\4a\xff" + b"\1"), count=1)

    assert rows(batch, include_headers=True)[0]["headers"] == [{"key": "a�", "value": None}]
