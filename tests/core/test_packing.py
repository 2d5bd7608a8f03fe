"""Record batches: agreement with another implementation, and what hostile bytes can do."""

import struct

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import CorruptMessage, UnsupportedCompressionType
from oncelog.core.packing import (
    Codec,
    compress,
    decompress,
    encode_batch,
    is_commit,
    read_batches,
    read_records,
)
from oncelog.core.records import Record

# From the protocol's fact sheet: one transactional record, and the markers after it.
DATA = bytes.fromhex(
    "00000000000000000000003affffffff02aa798e5c0010000000000000018bcfe568000000018bcfe56800000000"
    "00000003e80005000000000000000110000000026b027600"
)
COMMIT = bytes.fromhex(
    "000000000000000000000042ffffffff0240d514e90030000000000000018bcfe568000000018bcfe56800000000"
    "00000003e80005ffffffff000000012000000008000000010c00000000000700"
)
ABORT = bytes.fromhex(
    "000000000000000000000042ffffffff02b4ebc2a10030000000000000018bcfe568000000018bcfe56800000000"
    "00000003e80005ffffffff000000012000000008000000000c00000000000700"
)
NOON = 1_700_000_000_000


def a_record(value: bytes | None = b"v", key: bytes | None = b"k") -> Record:
    return Record(0, NOON, key, value)


def test_a_batch_is_written_as_the_protocol_says() -> None:
    batch = encode_batch(
        [a_record()], producer_id=1000, producer_epoch=5, base_sequence=0, is_transactional=True
    )

    assert batch == DATA


def test_markers_are_told_apart_and_left_out() -> None:
    [(_, commit), (_, abort)] = list(read_batches(COMMIT + ABORT))

    assert (is_commit(commit[0]), is_commit(abort[0])) == (True, False)
    assert read_records(DATA + COMMIT) == [a_record()]


contents = st.none() | st.binary(max_size=40)
some_records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**41),
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@given(records=some_records, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**40))
def test_what_is_written_reads_back(records: list[Record], codec: Codec, base_offset: int) -> None:
    placed = [r._replace(offset=base_offset + delta) for delta, r in enumerate(records)]

    batch = encode_batch(records, codec=codec, base_offset=base_offset)

    assert read_records(batch) == placed


@pytest.mark.parametrize("codec", Codec)
def test_another_implementation_reads_our_batches(codec: Codec) -> None:
    ours = [
        Record(0, NOON, b"k", b"v" * 100_000, (("h", b"1"), ("h", None))),
        Record(0, NOON + 5, None, None),
    ]

    theirs = list(DefaultRecordBatch(encode_batch(ours, codec=codec)))

    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [
        (0, NOON, b"k", b"v" * 100_000, (("h", b"1"), ("h", None))),
        (1, NOON + 5, None, None, ()),
    ]


@pytest.mark.parametrize("codec", Codec)
def test_we_read_batches_of_another_implementation(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10**6,
    )
    builder.append(0, timestamp=NOON, key=b"k", value=b"v" * 100_000, headers=[("h", b"1")])
    builder.append(1, timestamp=NOON - 5, key=None, value=None, headers=[])

    records = read_records(bytes(builder.build()))

    assert records == [
        Record(0, NOON, b"k", b"v" * 100_000, (("h", b"1"),)),
        Record(1, NOON - 5, None, None),
    ]


def test_snappy_without_the_frame_of_java_is_read_too() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"abc" * 100))

    assert decompress(Codec.SNAPPY, raw) == b"abc" * 100


def test_lz4_blocks_do_not_refer_to_one_another() -> None:
    # Java's reader refuses a frame without this bit.
    flags = compress(Codec.LZ4, b"abc")[4]

    assert flags & 0x20


def test_a_last_batch_that_is_cut_is_left_out() -> None:
    assert read_records(DATA + DATA[:-1]) == [a_record()]
    assert read_records(DATA[:60]) == []


def test_append_time_counts_for_every_record_of_its_batch() -> None:
    batch = bytearray(encode_batch([a_record(), a_record()]))
    struct.pack_into(">h", batch, 21, 0x08)
    struct.pack_into(">q", batch, 35, NOON + 99)

    records = read_records(with_checksum(batch))

    assert [record.timestamp for record in records] == [NOON + 99, NOON + 99]


def with_checksum(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


# --- hostile bytes --------------------------------------------------------------------------


def test_a_flipped_bit_is_found() -> None:
    batch = bytearray(DATA)
    batch[-2] ^= 1

    with pytest.raises(CorruptMessage, match="checksum"):
        read_records(bytes(batch))


def test_an_old_format_is_refused() -> None:
    batch = bytearray(DATA)
    batch[16] = 1

    with pytest.raises(CorruptMessage, match="format 1"):
        read_records(bytes(batch))


def test_an_unknown_codec_is_refused() -> None:
    batch = bytearray(DATA)
    struct.pack_into(">h", batch, 21, 7)

    with pytest.raises(UnsupportedCompressionType):
        read_records(with_checksum(batch))


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_record_count_that_cannot_be_is_refused(count: int) -> None:
    batch = bytearray(DATA)
    struct.pack_into(">i", batch, 57, count)

    with pytest.raises(CorruptMessage):
        read_records(with_checksum(batch))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_block_that_unpacks_beyond_the_limit_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(2_000_000))

    with pytest.raises(CorruptMessage):
        decompress(codec, bomb, max_bytes=1_000_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_block_of_exactly_the_limit_is_read(codec: Codec) -> None:
    packed = compress(codec, bytes(1_000_000))

    assert bytes(decompress(codec, packed, max_bytes=1_000_000)) == bytes(1_000_000)


def test_a_small_snappy_block_cannot_claim_a_large_size() -> None:
    with pytest.raises(CorruptMessage, match="claims 100000000"):
        decompress(Codec.SNAPPY, b"\x80\xc2\xd7\x2f" + b"\0" * 10)


@given(codec=st.sampled_from([c for c in Codec if c]), junk=st.binary(max_size=64))
def test_junk_is_refused_and_never_crashes(codec: Codec, junk: bytes) -> None:
    try:
        found = decompress(codec, junk, max_bytes=100_000)
    except CorruptMessage:
        return
    assert len(found) <= 100_000


@given(tail=st.binary(max_size=30), count=st.integers(0, 5))
def test_junk_behind_a_good_header_is_refused_and_never_crashes(tail: bytes, count: int) -> None:
    batch = bytearray(DATA[:61] + tail)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)

    try:
        found = read_records(with_checksum(batch))
    except CorruptMessage:
        return
    assert len(found) == count
