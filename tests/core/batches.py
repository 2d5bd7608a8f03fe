"""Batches for tests: only what a test is about is named."""

import struct

from crc32c import crc32c

from oncelog.core.batch import CRC_START, BatchHeader, read_header
from oncelog.core.records import KeyValue, encode_batch

#: Some day in 2023; the golden bytes of the fact sheet carry it.
TIME_MS = 1_700_000_000_000


def a_batch(
    *,
    count: int = 1,
    sequence: int = -1,
    producer_id: int | None = None,
    epoch: int = 0,
    timestamp_ms: int = TIME_MS,
    attributes: int = 0,
    value: bytes = b"v",
    padding: int = 0,
) -> bytes:
    """A batch as a client sends it; one with a sequence has a producer."""
    if producer_id is None:
        producer_id = 1000 if sequence >= 0 else -1
    return encode_batch(
        [KeyValue(b"k%d" % index, value + b"." * padding) for index in range(count)],
        timestamp_ms=timestamp_ms,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def a_header(
    *,
    count: int = 1,
    sequence: int = 0,
    producer_id: int = 1000,
    epoch: int = 0,
    base_offset: int = 0,
    timestamp_ms: int = TIME_MS,
) -> BatchHeader:
    """The header of a batch that stands in the log; its records are not there."""
    batch = a_batch(
        sequence=sequence, producer_id=producer_id, epoch=epoch, timestamp_ms=timestamp_ms
    )
    return read_header(batch)._replace(
        base_offset=base_offset, last_offset_delta=count - 1, records_count=count
    )


def with_field(batch: bytes, offset: int, form: str, value: int) -> bytes:
    """The batch with one header field changed and a checksum that holds."""
    changed = bytearray(batch)
    struct.pack_into(form, changed, offset, value)
    return resealed(changed)


def resealed(batch: bytes | bytearray) -> bytes:
    """The batch with a checksum that holds."""
    changed = bytearray(batch)
    struct.pack_into(">I", changed, CRC_START - 4, crc32c(changed[CRC_START:]))
    return bytes(changed)
