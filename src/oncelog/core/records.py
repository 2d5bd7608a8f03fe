"""Records inside a batch: written for our own logs, read back at replay and for lookups by time.

    length varint | attributes i8 | timestampDelta varlong | offsetDelta varint
    keyLength varint (-1 null) | key | valueLength varint (-1 null) | value
    headerCount varint | { keyLength varint | key | valueLength varint | value } ...

The integers are zig-zag LEB128. Nothing on the path of Produce or Fetch comes here.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from oncelog.core.batch import HEADER, HEADER_BYTES, BatchHeader, Buffer, read_header
from oncelog.core.errors import CorruptMessage
from oncelog.core.varints import varint

_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_BEFORE_CRC: Final = struct.Struct(">qiibI")


class Record(NamedTuple):
    """One record with its place and time."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KeyValue(NamedTuple):
    """What a shard wants to have written: a value, or a tombstone, for a key."""

    key: bytes
    value: bytes | None


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zig-zag LEB128 of up to 64 bits and say where it ended."""
    value = shift = 0
    while True:
        if position >= len(buffer) or shift > 63:
            raise CorruptMessage("a variable-length integer in a record does not end")
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def encode_batch(
    records: Sequence[KeyValue],
    *,
    timestamp_ms: int,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """An uncompressed batch at base offset 0, all records at one time."""
    body = b"".join(_encode_record(index, record) for index, record in enumerate(records))
    last = len(records) - 1
    tail = _AFTER_CRC.pack(
        attributes,
        last,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        last + 1,
    )
    crc = crc32c(body, crc32c(tail))
    return _BEFORE_CRC.pack(0, HEADER_BYTES - 12 + len(body), -1, 2, crc) + tail + body


def _encode_record(index: int, record: KeyValue) -> bytes:
    value = b"\x01" if record.value is None else varint(len(record.value)) + record.value
    body = b"\0\0" + varint(index) + varint(len(record.key)) + record.key + value + b"\0"
    return varint(len(body)) + body


def decode_records(header: BatchHeader, body: Buffer) -> Iterator[Record]:
    """The records of a batch whose body is not, or no longer, compressed."""
    position = 0
    for _ in range(header.records_count):
        length, position = read_varint(body, position)
        end = position + length
        if length < 0 or end > len(body):
            raise CorruptMessage("a record is longer than its batch")
        yield _decode_record(header, body, position, end)
        position = end


def _decode_record(header: BatchHeader, body: Buffer, position: int, end: int) -> Record:
    time_delta, position = read_varint(body, position + 1)
    offset_delta, position = read_varint(body, position)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    count, position = read_varint(body, position)
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position)
        content, position = _read_bytes(body, position)
        headers.append(((name or b"").decode("utf-8", "replace"), content))
    if position != end:
        raise CorruptMessage(f"a record that ends at byte {end} of its batch is read to {position}")
    timestamp = header.base_timestamp + time_delta
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _read_bytes(body: Buffer, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(body, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > len(body):
        raise CorruptMessage("a field is longer than its record")
    return bytes(body[position : position + length]), position + length


def batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in a run of bytes, such as a fetch returns; a cut last one is left out."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= HEADER.size:
        header = read_header(view, position)
        end = position + header.size_bytes
        if header.size_bytes < HEADER_BYTES or end > len(view):
            return
        yield header, view[position:end]
        position = end
