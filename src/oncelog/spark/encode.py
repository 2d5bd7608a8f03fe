"""Record batches (magic 2) made from columns, without a loop over rows.

Rows of many output partitions (slots) come mixed. They are sorted by slot and spelled as records in
one run of bytes, which is cut at once: each slot has an open batch, and what the next rows bring is
added to it until it is full. What only the writing task knows, the producer and the sequence, is
stamped into a batch later, together with its checksum.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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
    from_offsets,
    join,
    lengths,
    offsets_of,
    stable_order,
    varint_widths,
    varints,
)

#: What the records of one batch take at most, uncompressed, unless a single one takes more.
BATCH_BYTES: Final = 512 * 1024

#: What open batches hold all together before all of them are closed.
HELD_BYTES: Final = 32 * 1024 * 1024

#: The headers of one record that has none: their number. Made from buffers, since pyarrow imports
#: pandas for a Python value, and not every process that imports this writes anything.
NO_HEADERS: Final = from_offsets(np.array([0, 1]), pa.py_buffer(b"\0"))

#: What the first record of a batch takes for attributes, time and place.
_FIRST_BYTES: Final = 3
#: What any record takes at most beside its key, value and headers: attributes 1, time 10, place 5,
#: and 5 for each of the three lengths.
_MOST_BYTES: Final = 31

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A record batch that lacks its producer, its sequence and its checksum."""

    slot: int
    records: int
    rejected: int
    size_bytes: int
    chunks: tuple[bytes, ...]  # that make the batch when put together


def stamp(batch: Buffer, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
    """The batch as it can be sent."""
    stamped = bytearray(batch)
    _PRODUCER.pack_into(stamped, _PRODUCER_START, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(stamped, CRC_START - _CRC.size, checksum(stamped))
    return stamped


def stamped_by(producer_id: int, producer_epoch: int) -> Callable[[Buffer, int], bytearray]:
    """A stamp for all batches of one producer: what is left to say is the sequence."""

    def put(batch: Buffer, sequence: int) -> bytearray:
        return stamp(
            batch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )

    return put


def unnumbered(batch: Buffer, sequence: int) -> bytearray:
    """The stamp of a producer that is not idempotent."""
    return stamp(batch, producer_id=-1, producer_epoch=-1, base_sequence=-1)


def alone_bytes(rows: Rows) -> NDArray[np.int64]:
    """The size of each row as the only record of an uncompressed batch."""
    content = _FIRST_BYTES + _header_bytes(rows)
    for sizes in (lengths(rows.keys), lengths(rows.values)):
        content += varint_widths(sizes) + np.maximum(sizes, 0)
    return HEADER_BYTES + varint_widths(content) + content


@dataclass(slots=True)
class _Open:
    """A batch that still takes records."""

    slot: int
    base_timestamp: int
    max_timestamp: int = -1
    records: int = 0
    rejected: int = 0
    size_bytes: int = 0
    chunks: list[bytes] = field(default_factory=list)

    def take(self, chunk: bytes, *, max_timestamp: int, rejected: int) -> None:
        """Add records that have been counted already."""
        self.chunks.append(chunk)
        self.size_bytes += len(chunk)
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.rejected += rejected


class _Piece(NamedTuple):
    """Rows next to each other, in order of slots, that go into the same batch."""

    batch: _Open
    start: int
    offset: int  # of the first row, in its batch


class Encoder:
    """Makes batches of rows, in their order for each slot; `limits` bounds a batch's records by slot."""

    def __init__(self, *, limits: NDArray[np.int64], codec: Codec, transactional: bool) -> None:
        self._limits: list[int] = limits.tolist()
        self._codec = codec
        self._transactional = transactional
        self._open: dict[int, _Open] = {}
        self._held_bytes = 0

    def add(self, rows: Rows) -> list[Encoded]:
        """Take the rows in, and give the batches out that are full."""
        if len(rows.slots) == 0:
            return []
        order = stable_order(rows.slots)
        slots, times = rows.slots[order], rows.timestamps[order]
        key_lengths, value_lengths = lengths(rows.keys)[order], lengths(rows.values)[order]
        content = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
        content += _header_bytes(rows)[order]
        pieces = self._cut(slots, times, content + _MOST_BYTES)

        starts = np.array([piece.start for piece in pieces])
        counts = np.diff(starts, append=len(slots))
        every = np.arange(len(slots))
        offset_deltas = every + np.repeat([piece.offset - piece.start for piece in pieces], counts)
        time_deltas = times - np.repeat([piece.batch.base_timestamp for piece in pieces], counts)
        before_key = varints(np.zeros_like(content), time_deltas, offset_deltas, key_lengths)
        before_value = varints(value_lengths)
        content += lengths(before_key) + lengths(before_value)
        records = join(
            (varints(content), every),
            (before_key, every),
            (rows.keys, order),
            (before_value, every),
            (rows.values, order),
            (NO_HEADERS, 0) if rows.headers is None else (rows.headers, order),
        )
        ends = offsets_of(records)[np.append(starts, len(slots))].tolist()
        newest = np.maximum.reduceat(times, starts).tolist()
        rejected = np.add.reduceat(rows.rejected[order], starts, dtype=np.int64).tolist()
        body = memoryview(records.buffers()[2])
        for i, piece in enumerate(pieces):
            # A copy: a view would keep the rows of all slots alive as long as the slowest one.
            chunk = bytes(body[ends[i] : ends[i + 1]])
            piece.batch.take(chunk, max_timestamp=newest[i], rejected=rejected[i])
        self._held_bytes += len(body)
        full = self._close_full(pieces)
        return full + self.flush() if self._held_bytes >= HELD_BYTES else full

    def flush(self) -> list[Encoded]:
        """The batches that are still open."""
        last = [self._close(batch) for batch in self._open.values()]
        self._open.clear()
        return last

    def _cut(
        self, slots: NDArray[np.int64], times: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> list[_Piece]:
        """Go on with the open batches, and begin another where one would become too large."""
        sums = np.concatenate([[0], np.cumsum(sizes)])
        turns = (np.flatnonzero(np.diff(slots)) + 1).tolist()
        pieces: list[_Piece] = []
        for start, end in zip([0, *turns], [*turns, len(slots)], strict=True):
            slot = slots.item(start)
            limit = self._limits[slot]
            batch = self._open.get(slot)
            room = 0 if batch is None else limit - batch.size_bytes
            while start < end:
                stop = int(sums.searchsorted(sums.item(start) + room, side="right")) - 1
                if batch is None or stop <= start:
                    batch = _Open(slot, times.item(start))
                    stop = int(sums.searchsorted(sums.item(start) + limit, side="right")) - 1
                stop = min(max(stop, start + 1), end)
                pieces.append(_Piece(batch, start, batch.records))
                batch.records += stop - start
                start, room = stop, 0
        return pieces

    def _close_full(self, pieces: list[_Piece]) -> list[Encoded]:
        """A batch is full when another one of its slot has begun."""
        full = []
        for piece in pieces:
            before = self._open.get(piece.batch.slot)
            self._open[piece.batch.slot] = piece.batch
            if before is not None and before is not piece.batch:
                full.append(self._close(before))
        return full

    def _close(self, batch: _Open) -> Encoded:
        self._held_bytes -= batch.size_bytes
        codec, chunks, size = self._codec, batch.chunks, batch.size_bytes
        if codec is not Codec.NONE:
            packed = compress(codec, b"".join(chunks))
            # What compression makes larger could outgrow the topic's limit: it stays as it is.
            if len(packed) < size:
                chunks, size = [packed], len(packed)
            else:
                codec = Codec.NONE
        header = HEADER.pack(
            0,
            HEADER_BYTES - PREFIX_BYTES + size,
            -1,
            2,
            0,
            codec | (TRANSACTIONAL if self._transactional else 0),
            batch.records - 1,
            batch.base_timestamp,
            batch.max_timestamp,
            -1,
            -1,
            -1,
            batch.records,
        )
        return Encoded(
            slot=batch.slot,
            records=batch.records,
            rejected=batch.rejected,
            size_bytes=HEADER_BYTES + size,
            chunks=(header, *chunks),
        )


def _header_bytes(rows: Rows) -> NDArray[np.int64]:
    return np.ones(len(rows.slots), np.int64) if rows.headers is None else lengths(rows.headers)
