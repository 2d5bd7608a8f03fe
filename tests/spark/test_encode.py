"""Batches made from columns are, byte for byte, what a producer sends."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.batch import HEADER_BYTES, read_header
from oncelog.core.packing import Codec, encode_batch, read_batches
from oncelog.core.records import Record
from oncelog.spark.byte_columns import BYTES
from oncelog.spark.encode import Encoded, Encoder, Rows, alone_bytes, stamp
from oncelog.spark.headers import pack

contents = st.none() | st.binary(max_size=80) | st.integers(0, 300).map(bytes)
header_lists = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple)
records = st.builds(Record, st.just(0), st.integers(0, 2**62), contents, contents, header_lists)
placed = st.lists(st.tuples(st.integers(0, 3), records), max_size=40)


def rows_of(placed: list[tuple[int, Record]]) -> Rows:
    every = [record for _, record in placed]
    packed = pa.array([pack(record.headers) for record in every], BYTES)
    return Rows(
        slots=np.array([slot for slot, _ in placed], np.int64),
        timestamps=np.array([record.timestamp for record in every], np.int64),
        keys=pa.array([record.key for record in every], BYTES),
        values=pa.array([record.value for record in every], BYTES),
        headers=packed if any(record.headers for record in every) else None,
        rejected=np.zeros(len(every), np.bool_),
    )


def an_encoder(
    *, limit: int = 1000, codec: Codec = Codec.NONE, transactional: bool = True
) -> Encoder:
    return Encoder(limits=np.full(4, limit), codec=codec, transactional=transactional)


def encode(encoder: Encoder, *parts: list[tuple[int, Record]]) -> list[Encoded]:
    encoded = [batch for part in parts for batch in encoder.add(rows_of(part))]
    return encoded + encoder.flush()


def stamped(encoded: Encoded) -> bytes:
    batch = b"".join(encoded.chunks)
    return bytes(stamp(batch, producer_id=7, producer_epoch=2, base_sequence=11))


def numbered(records: list[Record]) -> list[Record]:
    return [record._replace(offset=0) for record in records]


@given(st.lists(placed, max_size=4), st.sampled_from(Codec), st.booleans())
def test_a_batch_is_what_a_producer_makes_of_its_records(
    parts: list[list[tuple[int, Record]]], codec: Codec, transactional: bool
) -> None:
    found: dict[int, list[Record]] = defaultdict(list)
    for encoded in encode(an_encoder(codec=codec, transactional=transactional), *parts):
        batch = stamped(encoded)
        ((header, records),) = read_batches(batch)
        found[encoded.slot] += numbered(records)
        assert encoded.records == len(records)
        assert encoded.size_bytes == len(batch)
        assert batch == encode_batch(
            records,
            codec=Codec(header.compression),
            producer_id=7,
            producer_epoch=2,
            base_sequence=11,
            is_transactional=transactional,
        )

    expected: dict[int, list[Record]] = defaultdict(list)
    for slot, record in (row for part in parts for row in part):
        expected[slot].append(record)
    assert found == expected


@given(placed, st.integers(100, 2000))
@settings(max_examples=50)
def test_only_a_single_record_outgrows_the_limit(
    rows: list[tuple[int, Record]], limit: int
) -> None:
    for encoded in encode(an_encoder(limit=limit), rows):
        assert encoded.records == 1 or encoded.size_bytes - HEADER_BYTES <= limit


@given(placed)
@settings(max_examples=50)
def test_the_size_of_a_record_alone_is_known_beforehand(rows: list[tuple[int, Record]]) -> None:
    sizes = alone_bytes(rows_of(rows)).tolist() if rows else []

    assert sizes == [len(encode_batch([record])) for _, record in rows]


def test_small_portions_become_one_large_batch() -> None:
    rows = [(1, Record(0, 5, b"k", b"v"))]

    (encoded,) = encode(an_encoder(limit=10_000), *[rows] * 100)

    assert encoded.records == 100


def test_what_is_held_for_many_slots_is_bounded() -> None:
    encoder = an_encoder(limit=1 << 30)
    rows = rows_of([(slot, Record(0, 5, None, bytes(2 << 20))) for slot in range(4)])

    given_out = [len(encoder.add(rows)) for _ in range(8)]

    assert given_out == [0, 0, 0, 4, 0, 0, 0, 4]
    assert encoder.flush() == []


def test_rejected_rows_are_counted() -> None:
    rows = rows_of([(0, Record(0, 5, None, b"v")), (1, Record(0, 5, None, b"w"))] * 3)
    rows.rejected[[1, 3]] = True
    encoder = an_encoder()

    encoded = encoder.add(rows) + encoder.flush()

    assert [(batch.slot, batch.rejected) for batch in encoded] == [(0, 0), (1, 2)]


def test_what_lies_under_a_null_is_not_written() -> None:
    rows = rows_of([(0, Record(0, 5, b"key", b"value"))])
    hidden = pa.Array.from_buffers(BYTES, 1, [pa.py_buffer(b"\0"), *rows.values.buffers()[1:]])
    encoder = an_encoder()

    (encoded,) = encoder.add(replace(rows, values=hidden)) + encoder.flush()

    ((_, records),) = read_batches(stamped(encoded))
    assert records == [Record(0, 5, b"key", None)]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_what_compression_would_make_larger_stays_as_it_is(codec: Codec) -> None:
    (noise,) = encode(an_encoder(codec=codec), [(0, Record(0, 5, None, bytes(range(256))))])
    (zeros,) = encode(an_encoder(codec=codec), [(0, Record(0, 5, None, bytes(256)))])

    assert read_header(stamped(noise)).compression == Codec.NONE
    assert read_header(stamped(zeros)).compression == codec
    assert zeros.size_bytes < noise.size_bytes
