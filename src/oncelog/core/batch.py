"""The header of a record batch (magic 2): read it, check it, give it its place in the log.

    0 baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8 | 17 crc u32
    21 attributes i16 | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64
    43 producerId i64 | 51 producerEpoch i16 | 53 baseSequence i32 | 57 recordsCount i32 | 61 records

The checksum (CRC-32C) covers byte 21 to the end, so the two fields that the broker sets, base offset
and leader epoch, change without touching it. The records themselves are never looked at here.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from oncelog.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
)

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
#: baseOffset and batchLength: what precedes the part that batchLength counts.
PREFIX_BYTES: Final = 12
CRC_START: Final = 21
MAGIC_OFFSET: Final = 16

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
ZSTD: Final = 4
HIGHEST_CODEC: Final = 4

MAX_SEQUENCE: Final = (1 << 31) - 1

_PLACE: Final = struct.Struct(">qii")
_STAMPED_TAIL: Final = struct.Struct(">hiqqqhii")


class BatchHeader(NamedTuple):
    """What a batch says about itself."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, its prefix included."""
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record: 0 follows the highest one."""
        return self.base_sequence + self.last_offset_delta & MAX_SEQUENCE

    @property
    def compression(self) -> int:
        """The number of the codec; 0 is none."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker."""
        return bool(self.attributes & CONTROL)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent or transactional producer wrote it."""
        return self.producer_id >= 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Unpack the 61 bytes at `position`; the caller has checked that they are there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def checksum(batch: Buffer) -> int:
    """CRC-32C of what the checksum covers."""
    return crc32c(memoryview(batch)[CRC_START:])


def is_whole(header: BatchHeader, left_bytes: int) -> bool:
    """Whether a batch read from a file can be one: its length is sane and inside the file."""
    return (
        header.magic == 2
        and header.batch_length >= HEADER_BYTES - PREFIX_BYTES
        and header.size_bytes <= left_bytes
        and header.last_offset_delta >= 0
        and header.base_offset >= 0
    )


def admit(batch: memoryview | None, *, zstd_allowed: bool, max_bytes: int) -> BatchHeader:
    """Check a batch that a client wants to append, in the order in which Kafka checks it."""
    if batch is None or len(batch) == 0:
        raise InvalidRecord("a produce request needs one record batch for each partition")
    if len(batch) > MAGIC_OFFSET and batch[MAGIC_OFFSET] < 2:
        raise InvalidRecord("message formats 0 and 1 are not supported, only record batches")
    if len(batch) < HEADER_BYTES:
        raise CorruptMessage(f"a record batch of {len(batch)} bytes is cut short")
    header = read_header(batch)
    if header.magic != 2:
        raise CorruptMessage(f"unknown magic {header.magic}")
    if header.size_bytes > len(batch) or header.size_bytes < HEADER_BYTES:
        raise CorruptMessage(f"batch length {header.batch_length} in {len(batch)} bytes")
    if header.size_bytes < len(batch):
        raise InvalidRecord("a produce request holds one record batch for each partition")
    if header.compression == ZSTD and not zstd_allowed:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or above")
    if header.compression > HIGHEST_CODEC:
        raise InvalidRecord(f"unknown compression codec {header.compression}")
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset {header.base_offset} of a client's batch is not 0")
    if len(batch) > max_bytes:
        raise MessageTooLarge(f"a batch of {len(batch)} bytes is above the limit of {max_bytes}")
    if checksum(batch) != header.crc:
        raise CorruptMessage("the checksum of the batch does not hold")
    _admit_counts(header)
    return header


def _admit_counts(header: BatchHeader) -> None:
    if header.records_count <= 0 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"{header.records_count} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecord("clients may not write control batches")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord("a batch with a producer id needs an epoch and a sequence number")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecord("a transactional batch needs a producer id")


def check_timestamp(
    header: BatchHeader, *, now_ms: int, before_max_ms: int, after_max_ms: int
) -> None:
    """Refuse a batch whose times are too far from the broker's clock."""
    if header.max_timestamp - now_ms > after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp} is more than {after_max_ms} ms in the future"
        )
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > before_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.base_timestamp} is more than {before_max_ms} ms in the past"
        )


def place(
    batch: memoryview, header: BatchHeader, *, base_offset: int, leader_epoch: int
) -> tuple[bytes, memoryview]:
    """The batch with its offset and leader epoch, as chunks to write: the body is not copied."""
    prefix = _PLACE.pack(base_offset, header.batch_length, leader_epoch)
    return prefix, batch[MAGIC_OFFSET:]


def place_with_append_time(
    batch: memoryview, header: BatchHeader, *, base_offset: int, leader_epoch: int, now_ms: int
) -> tuple[bytes, memoryview]:
    """As `place`, for topics that stamp the time of the append; this one needs a new checksum."""
    tail = _STAMPED_TAIL.pack(
        header.attributes | LOG_APPEND_TIME,
        header.last_offset_delta,
        header.base_timestamp,
        now_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records_count,
    )
    body = batch[HEADER_BYTES:]
    crc = crc32c(body, crc32c(tail))
    prefix = _PLACE.pack(base_offset, header.batch_length, leader_epoch)
    return prefix + struct.pack(">bI", header.magic, crc) + tail, body
