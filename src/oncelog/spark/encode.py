"""Record batches (magic 2) made from columns, without a loop over rows.

Rows of many output partitions (slots) come mixed. They are sorted by slot, cut into batches and
written as one run of bytes; what only the writing task knows, the producer and the sequence, is
stamped into a batch later, together with its checksum.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oncelog.core.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL,
    Buffer,
    checksum,
)
from oncelog.core.packing import Codec, compress
from oncelog.spark.byte_columns import (
    BYTES,
    join,
    lengths,
    offsets_of,
    varint_widths,
    varints,
)

#: What the records of one batch take at most, uncompressed, unless a single one takes more.
BATCH_BYTES: Final = 512 * 1024

#: The headers of a record that has none: their number.
NO_HEADERS: Final = pa.scalar(b"\0", BYTES)

#: How much longer a record may be inside a batch than alone in one: its place takes up to 4 bytes
#: more, its time 9, and its own length one.
_GROWTH_BYTES: Final = 14

_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_START: Final = 43
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that have their place, column by column."""

    slots: NDArray[np.int64]
    timestamps: NDArray[np.int64]  # milliseconds
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None  # as a record spells them, their number first
    rejected: NDArray[np.bool_]  # rows on their way to the dead letters

    @property
    def size_bytes(self) -> int:
        """About what the rows take."""
        headers = 0 if self.headers is None else int(self.headers.nbytes)
        return int(self.keys.nbytes) + int(self.values.nbytes) + headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A record batch that lacks its producer, its sequence and its checksum."""

    slot: int
    records: int
    rejected: int
    batch: bytes


def stamp(batch: Buffer, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
    """The batch as it can be sent."""
    stamped = bytearray(batch)
    _PRODUCER.pack_into(stamped, _PRODUCER_START, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(stamped, CRC_START - _CRC.size, checksum(stamped))
    return stamped


def alone_bytes(rows: Rows) -> NDArray[np.int64]:
    """The size of each row as the only record of an uncompressed batch."""
    content = 3 + _content_bytes(lengths(rows.keys), lengths(rows.values), _header_bytes(rows))
    return HEADER_BYTES + varint_widths(content) + content


def concat(parts: Sequence[Rows]) -> Rows:
    """All rows of the parts, in order."""
    if len(parts) == 1:
        return parts[0]
    headers = None
    if any(part.headers is not None for part in parts):
        headers = pa.concat_arrays(
            pa.repeat(NO_HEADERS, len(p.slots)) if p.headers is None else p.headers for p in parts
        )
    return Rows(
        slots=np.concatenate([part.slots for part in parts]),
        timestamps=np.concatenate([part.timestamps for part in parts]),
        keys=pa.concat_arrays([part.keys for part in parts]),
        values=pa.concat_arrays([part.values for part in parts]),
        headers=headers,
        rejected=np.concatenate([part.rejected for part in parts]),
    )


def encode(
    rows: Rows, *, limits: NDArray[np.int64], codec: Codec, transactional: bool
) -> Iterator[Encoded]:
    """The rows as batches, slot by slot, in their order; `limits` bounds the records' bytes by slot."""
    if len(rows.slots) == 0:
        return
    order = _by_slot(rows.slots)
    slots, times = rows.slots[order], rows.timestamps[order]
    key_lengths, value_lengths = lengths(rows.keys)[order], lengths(rows.values)[order]
    header_lengths = _header_bytes(rows)[order]
    content = _content_bytes(key_lengths, value_lengths, header_lengths)

    most = 3 + content + varint_widths(content + 3) + _GROWTH_BYTES
    starts = _cut(slots, most, limits)
    counts = np.diff(starts, append=len(slots))
    offset_deltas = np.arange(len(slots)) - np.repeat(starts, counts)
    time_deltas = times - np.repeat(times[starts], counts)
    content += 1 + varint_widths(offset_deltas) + varint_widths(time_deltas)

    every = np.arange(len(slots))
    records = join(
        (varints(content, np.zeros_like(content), time_deltas, offset_deltas, key_lengths), every),
        (rows.keys, order),
        (varints(value_lengths), every),
        (rows.values, order),
        (pa.repeat(NO_HEADERS, 1), np.zeros_like(order))
        if rows.headers is None
        else (rows.headers, order),
    )
    bounds = offsets_of(records)[np.append(starts, len(slots))]
    body = memoryview(records.buffers()[2])
    newest = np.maximum.reduceat(times, starts)
    rejected = np.add.reduceat(rows.rejected[order], starts, dtype=np.int64)
    for i, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
        packed, used = _packed(codec, body[bounds[i] : bounds[i + 1]])
        header = HEADER.pack(
            0,
            HEADER_BYTES - PREFIX_BYTES + len(packed),
            -1,
            2,
            0,
            used | (TRANSACTIONAL if transactional else 0),
            count - 1,
            times[start],
            newest[i],
            -1,
            -1,
            -1,
            count,
        )
        yield Encoded(
            slot=int(slots[start]),
            records=count,
            rejected=int(rejected[i]),
            batch=b"".join((header, packed)),
        )


def _by_slot(slots: NDArray[np.int64]) -> NDArray[np.int64]:
    # Numbers of 16 bits are sorted in linear time.
    narrow = slots.astype(np.uint16) if slots.max() <= 0xFFFF else slots
    return np.argsort(narrow, kind="stable")


def _header_bytes(rows: Rows) -> NDArray[np.int64]:
    return np.ones(len(rows.slots), np.int64) if rows.headers is None else lengths(rows.headers)


def _content_bytes(
    keys: NDArray[np.int64], values: NDArray[np.int64], headers: NDArray[np.int64]
) -> NDArray[np.int64]:
    sized = varint_widths(keys) + np.maximum(keys, 0) + varint_widths(values)
    return sized + np.maximum(values, 0) + headers


def _cut(
    slots: NDArray[np.int64], sizes: NDArray[np.int64], limits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where each batch starts: at a new slot, and before what would make one too large."""
    ends = np.cumsum(sizes)
    turns = np.flatnonzero(np.diff(slots)) + 1
    starts: list[int] = []
    for first, end in zip([0, *turns.tolist()], [*turns.tolist(), len(slots)], strict=True):
        limit, start = int(limits[slots[first]]), first
        while start < end:
            starts.append(start)
            room = int(ends[start] - sizes[start]) + limit
            start = max(start + 1, int(np.searchsorted(ends, room, side="right")))
    return np.array(starts)


def _packed(codec: Codec, body: memoryview) -> tuple[Buffer, Codec]:
    if codec is Codec.NONE:
        return body, codec
    packed = compress(codec, bytes(body))
    # What compression makes larger could outgrow the topic's limit.
    return (packed, codec) if len(packed) < len(body) else (body, Codec.NONE)
