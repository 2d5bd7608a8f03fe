"""Transaction markers: the control batch that ends a transaction in one partition.

    key    version i16 = 0 | type i16: 0 ABORT, 1 COMMIT
    value  version i16 = 0 | coordinator epoch i32

A marker batch has 78 bytes and one record, takes one offset, and carries the producer's id and epoch.
"""

import struct
from dataclasses import dataclass
from typing import Final

from oncelog.core.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, Buffer
from oncelog.core.errors import CorruptMessage
from oncelog.core.records import KeyValue, decode_records, encode_batch

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How a producer's transaction ended."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def encode_marker(marker: Marker, *, timestamp_ms: int) -> bytes:
    """The batch that is appended."""
    record = KeyValue(
        _KEY.pack(0, COMMIT if marker.committed else ABORT),
        _VALUE.pack(0, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        timestamp_ms=timestamp_ms,
        attributes=CONTROL | TRANSACTIONAL,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def decode_marker(header: BatchHeader, batch: Buffer) -> Marker | None:
    """The marker in a control batch; None for another kind, or one that compaction emptied."""
    if header.records_count == 0:
        return None
    record = next(decode_records(header, memoryview(batch)[HEADER_BYTES:]))
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise CorruptMessage(f"the control record at {record.offset} has a key of {len(key)} bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptMessage(f"the control record at {record.offset} has version {version}")
    if kind not in (ABORT, COMMIT):
        return None
    # A version above 0 only appends fields.
    if len(value) < _VALUE.size:
        raise CorruptMessage(f"the marker at {record.offset} has a value of {len(value)} bytes")
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if value_version < 0:
        raise CorruptMessage(f"the marker at {record.offset} has version {value_version}")
    return Marker(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        committed=kind == COMMIT,
        coordinator_epoch=coordinator_epoch,
    )
