"""Records of any batch, compressed or not: for lookups by time, tools, tests and clients.

The broker keeps batches closed; whoever opens one may be handed anything, so every size is checked
before memory is spent on it. Pure functions all.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Final

import cramjam

from oncelog.core.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    checksum,
)
from oncelog.core.errors import CorruptMessage, UnsupportedCompressionType
from oncelog.core.records import Record, batches, decode_records
from oncelog.core.varints import varint

#: What one batch may unpack to, unless the caller says otherwise.
UNPACKED_MAX_BYTES: Final = 256 * 1024 * 1024

#: Seven fields of at least one byte each.
_RECORD_MIN_BYTES: Final = 7


class Codec(IntEnum):
    """How the records of a batch are compressed: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def read_batches(
    buffer: Buffer, *, max_bytes: int = UNPACKED_MAX_BYTES
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Each whole batch of a fetch response or a segment, its checksum checked, with its records.

    A broker fills a response to the byte, so a last batch that is cut is left out and no error.
    """
    for header, batch in batches(buffer):
        if header.magic != 2:
            raise CorruptMessage(f"the batch at {header.base_offset} is of format {header.magic}")
        if checksum(batch) != header.crc:
            raise CorruptMessage(f"the checksum of the batch at {header.base_offset} does not hold")
        yield header, unpack(header, batch[HEADER_BYTES:], max_bytes=max_bytes)


def read_records(buffer: Buffer, *, max_bytes: int = UNPACKED_MAX_BYTES) -> list[Record]:
    """All records of a fetch response or a segment, but for transaction markers."""
    found = []
    for header, records in read_batches(buffer, max_bytes=max_bytes):
        if not header.is_control:
            found += records
    return found


def unpack(
    header: BatchHeader, body: memoryview, *, max_bytes: int = UNPACKED_MAX_BYTES
) -> list[Record]:
    """The records behind a batch's header; `max_bytes` bounds their uncompressed size."""
    content = decompress(codec_of(header), body, max_bytes)
    if not 0 <= header.records_count <= len(content) // _RECORD_MIN_BYTES:
        raise CorruptMessage(
            f"the batch at {header.base_offset} claims {header.records_count} records in "
            f"{len(content)} bytes"
        )
    records = list(decode_records(header, content))
    if header.attributes & LOG_APPEND_TIME:
        # The broker stamps the batch alone; every record in it was appended at that time.
        return [record._replace(timestamp=header.max_timestamp) for record in records]
    return records


def codec_of(header: BatchHeader) -> Codec:
    """How the batch is compressed."""
    try:
        return Codec(header.compression)
    except ValueError:
        raise UnsupportedCompressionType(f"codec {header.compression} is not known") from None


def is_commit(marker: Record) -> bool:
    """Whether the one record of a control batch says COMMIT."""
    kind = marker.key or b""
    if len(kind) < 4:
        raise CorruptMessage(f"the marker at {marker.offset} has a key of {len(kind)} bytes")
    return int.from_bytes(kind[2:4], "big") == 1


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    base_offset: int = 0,
) -> bytes:
    """One batch as a producer sends it; the records get consecutive offsets, whatever they say."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    packed = b"".join(
        _pack(record, record.timestamp - base_timestamp, offset_delta)
        for offset_delta, record in enumerate(records)
    )
    body = compress(codec, packed)
    header = HEADER.pack(
        base_offset,
        HEADER_BYTES - PREFIX_BYTES + len(body),
        -1,
        2,
        0,
        codec | (TRANSACTIONAL if is_transactional else 0),
        len(records) - 1,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch = bytearray(header + body)
    struct.pack_into(">I", batch, CRC_START - 4, checksum(batch))
    return bytes(batch)


def _pack(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    parts = [
        b"\0",
        varint(timestamp_delta),
        varint(offset_delta),
        _sized(record.key),
        _sized(record.value),
        varint(len(record.headers)),
    ]
    for name, content in record.headers:
        parts += (_sized(name.encode()), _sized(content))
    packed = b"".join(parts)
    return varint(len(packed)) + packed


def _sized(content: bytes | None) -> bytes:
    return b"\1" if content is None else varint(len(content)) + content


# --- compression ----------------------------------------------------------------------------

#: What snappy-java puts around its blocks, and what Java clients therefore send.
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_MAX_GROWTH: Final = 22


def compress(codec: Codec, content: bytes) -> bytes:
    """One block as Kafka's clients write it."""
    match codec:
        case Codec.NONE:
            return content
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(content))
        case Codec.SNAPPY:
            return _snappy(content)
        case Codec.LZ4:
            # Java's reader knows only blocks that do not refer to one another. Level 1 is what LZ4
            # is chosen for: five times as fast as the default, for a fifth more bytes.
            packer = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            packer.compress(content)
            return bytes(packer.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(content))


def decompress(codec: Codec, content: Buffer, max_bytes: int = UNPACKED_MAX_BYTES) -> Buffer:
    """Unpack one block; what would grow beyond `max_bytes` is refused."""
    match codec:
        case Codec.NONE:
            return content
        case Codec.GZIP:
            return _unpack_into(cramjam.gzip.decompress_into, content, max_bytes)
        case Codec.SNAPPY:
            return _unsnappy(memoryview(content), max_bytes)
        case Codec.LZ4:
            return _unpack_into(cramjam.lz4.decompress_into, content, max_bytes)
        case Codec.ZSTD:
            return _unpack_into(cramjam.zstd.decompress_into, content, max_bytes)


def _unpack_into(
    unpack: Callable[[Any, bytearray], int], content: Buffer, max_bytes: int
) -> memoryview:
    # These formats need not say how large they become. A small block can claim anything, so the
    # room for it grows only as it proves to need it.
    room = min(max(8 * len(content), 64 * 1024), max_bytes)
    while True:
        out = bytearray(room)
        try:
            return memoryview(out)[: unpack(bytes(content), out)]
        except cramjam.DecompressionError as error:
            if room >= max_bytes:
                raise CorruptMessage(
                    f"the block cannot be unpacked into {max_bytes} bytes: {error}"
                ) from error
        room = min(room * 8, max_bytes)


def _snappy(content: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(content), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(content[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(content: memoryview, max_bytes: int) -> bytes:
    if bytes(content[: len(_XERIAL)]) != _XERIAL:
        return _unsnappy_block(content, max_bytes)
    blocks = []
    position = len(_XERIAL_HEADER)
    left = max_bytes
    while position < len(content):
        size = int.from_bytes(content[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(content) - position:
            raise CorruptMessage(f"a snappy block of {size} bytes in {len(content)}")
        block = _unsnappy_block(content[position : position + size], left)
        blocks.append(block)
        left -= len(block)
        position += size
    return b"".join(blocks)


def _unsnappy_block(content: memoryview, max_bytes: int) -> bytes:
    block = bytes(content)
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        # Three bytes of snappy give 64 at most, so a small block cannot become a large one.
        if size > max_bytes or size > _SNAPPY_MAX_GROWTH * len(block):
            raise CorruptMessage(f"a snappy block of {len(block)} bytes claims {size}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"the snappy block cannot be unpacked: {error}") from error
