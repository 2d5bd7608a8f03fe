"""What the bytes of a recorded record hold, so that it tells where it came from by itself.

offset  size  field
     0     4  crc32 of everything after it, the padding included
     4     8  run: a number drawn once per run
    12     4  process
    16     4  txn_number: the how-manyeth operation of that process
    20     4  index inside the operation
    24     8  value
    32     -  padding, if the test wants larger records
"""

import struct
from dataclasses import dataclass
from typing import Final
from zlib import crc32

_FIELDS: Final = struct.Struct(">QiIIq")
_CRC: Final = struct.Struct(">I")
SIZE_BYTES: Final = _CRC.size + _FIELDS.size


class BadPayload(Exception):
    """Bytes that no recorded run has written, or that were changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Where a record came from."""

    run: int
    process: int
    txn_number: int
    index: int
    value: int


def encode_payload(payload: Payload, *, size_bytes: int = SIZE_BYTES) -> bytes:
    """The record's bytes, padded to at least size_bytes."""
    fields = _FIELDS.pack(
        payload.run, payload.process, payload.txn_number, payload.index, payload.value
    )
    body = fields.ljust(size_bytes - _CRC.size, b".")
    return _CRC.pack(crc32(body)) + body


def decode_payload(found: bytes) -> Payload:
    """The fields back, or BadPayload."""
    if len(found) < SIZE_BYTES:
        raise BadPayload(f"{len(found)} bytes where at least {SIZE_BYTES} were expected")
    (crc,) = _CRC.unpack_from(found)
    body = memoryview(found)[_CRC.size :]
    if crc32(body) != crc:
        raise BadPayload(f"the checksum is {crc:08x} and should be {crc32(body):08x}")
    run, process, txn_number, index, value = _FIELDS.unpack_from(body)
    return Payload(run=run, process=process, txn_number=txn_number, index=index, value=value)


def value_of(found: bytes, *, run: int) -> int | None:
    """What to write into a read step: the value, or None for bytes that this run never sent."""
    try:
        payload = decode_payload(found)
    except BadPayload:
        return None
    return payload.value if payload.run == run else None
