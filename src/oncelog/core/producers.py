"""Idempotent producers, as one partition sees them (KIP-98, KIP-360).

Each producer id has an epoch and counts its records: the next batch continues the count, one of the
five newest batches is answered with the offset it got the first time, anything else is refused.
State changes only through `apply`, after the append has succeeded (KAFKA-6683).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from oncelog.core.batch import MAX_SEQUENCE, BatchHeader
from oncelog.core.errors import InvalidProducerEpoch, OutOfOrderSequence

#: A producer may have five requests in flight, so five batches may be repeated.
WINDOW: Final = 5


class Appended(NamedTuple):
    """A batch that was appended, as far as a repeat of it must be recognised."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return self.last_sequence - self.offset_delta & MAX_SEQUENCE

    @property
    def base_offset(self) -> int:
        """The offset that its first record got."""
        return self.last_offset - self.offset_delta


@dataclass(frozen=True, slots=True)
class Producer:
    """What is known of one producer id in one partition."""

    producer_epoch: int
    batches: tuple[Appended, ...]
    #: When the broker last heard of it, by the broker's clock: record times may be years old.
    active_at_ms: int
    coordinator_epoch: int = -1
    txn_first_offset: int | None = None


class ProducerTable:
    """The producers of one partition."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def items(self) -> Iterator[tuple[int, Producer]]:
        """Every producer, by id."""
        return iter(sorted(self._producers.items()))

    def get(self, producer_id: int) -> Producer | None:
        """One producer, if it is known here."""
        return self._producers.get(producer_id)

    def find_duplicate(self, header: BatchHeader) -> Appended | None:
        """The batch that this one repeats, record for record."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.producer_epoch != header.producer_epoch:
            return None
        for batch in producer.batches:
            if (
                batch.last_sequence == header.last_sequence
                and batch.first_sequence == header.base_sequence
            ):
                return batch
        return None

    def check(self, header: BatchHeader) -> None:
        """Refuse a batch that is neither the producer's next one nor the first of a newer epoch."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return  # No state: retention or expiry may have taken it, so any sequence goes on.
        if header.producer_epoch < producer.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} is at epoch {producer.producer_epoch}, "
                f"the batch has {header.producer_epoch}"
            )
        expected = 0
        if header.producer_epoch == producer.producer_epoch and producer.batches:
            expected = producer.batches[-1].last_sequence + 1 & MAX_SEQUENCE
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} at epoch {header.producer_epoch} sent sequence "
                f"{header.base_sequence}, expected {expected}"
            )

    def apply(self, header: BatchHeader, *, timestamp_ms: int, active_at_ms: int) -> None:
        """Take over a batch that is in the log; nothing is refused here (KAFKA-6003)."""
        producer = self._producers.get(header.producer_id)
        batch = Appended(
            header.last_sequence, header.last_offset, header.last_offset_delta, timestamp_ms
        )
        window: tuple[Appended, ...] = (batch,)
        coordinator_epoch = -1
        if producer is not None:
            coordinator_epoch = producer.coordinator_epoch
            if producer.producer_epoch == header.producer_epoch:
                window = (*producer.batches[-(WINDOW - 1) :], batch)
        self._producers[header.producer_id] = Producer(
            header.producer_epoch, window, active_at_ms, coordinator_epoch
        )

    def put(self, producer_id: int, producer: Producer) -> None:
        """Take over a producer as a snapshot has it."""
        self._producers[producer_id] = producer

    def expire(self, *, now_ms: int, idle_ms: int) -> list[int]:
        """Forget the producers that have been idle for so long; returns their ids."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.txn_first_offset is None and now_ms - producer.active_at_ms >= idle_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return idle


# --- snapshots ------------------------------------------------------------------------------
#
# <offset>.snapshot is Kafka's own file and holds the newest batch of each producer:
#   version i16 = 1 | crc u32 | count i32 | entries
#   entry: id i64 | epoch i16 | lastSequence i32 | lastOffset i64 | offsetDelta i32
#          | timestamp i64 | coordinatorEpoch i32 | currentTxnFirstOffset i64
# <offset>.window is ours and holds what Kafka's leaves out:
#   version i16 = 1 | crc u32 | count i32 | entries
#   entry: id i64 | activeAt i64 | batchCount i8
#          | { lastSequence i32 | lastOffset i64 | offsetDelta i32 | timestamp i64 } ...
# In both the checksum (CRC-32C) covers everything from byte 6 on.

SNAPSHOT_VERSION: Final = 1
_FILE_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_WINDOW_ENTRY: Final = struct.Struct(">qqb")
_WINDOW_BATCH: Final = struct.Struct(">iqiq")


class BadSnapshot(Exception):
    """A snapshot file that cannot be trusted; an older one or the log itself is used instead."""


def encode_snapshot(table: ProducerTable) -> tuple[bytes, bytes]:
    """The contents of the `.snapshot` and the `.window` file."""
    entries, windows = bytearray(), bytearray()
    for producer_id, producer in table.items():
        last = producer.batches[-1] if producer.batches else Appended(-1, -1, 0, -1)
        first_offset = -1 if producer.txn_first_offset is None else producer.txn_first_offset
        entries += _SNAPSHOT_ENTRY.pack(
            producer_id, producer.producer_epoch, *last, producer.coordinator_epoch, first_offset
        )
        windows += _WINDOW_ENTRY.pack(producer_id, producer.active_at_ms, len(producer.batches))
        for batch in producer.batches:
            windows += _WINDOW_BATCH.pack(*batch)
    return _seal(len(table), entries), _seal(len(table), windows)


def _seal(count: int, entries: bytes | bytearray) -> bytes:
    body = _COUNT.pack(count) + entries
    return _FILE_HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def _unseal(data: bytes) -> tuple[int, memoryview]:
    if len(data) < _FILE_HEAD.size + _COUNT.size:
        raise BadSnapshot(f"{len(data)} bytes are too few")
    version, crc = _FILE_HEAD.unpack_from(data)
    body = memoryview(data)[_FILE_HEAD.size :]
    if version != SNAPSHOT_VERSION or crc32c(body) != crc:
        raise BadSnapshot(f"version {version} or checksum is wrong")
    return _COUNT.unpack_from(body)[0], body[_COUNT.size :]


def decode_snapshot(snapshot: bytes, window: bytes) -> ProducerTable:
    """The table as it was when the two files were written."""
    count, entries = _unseal(snapshot)
    window_count, windows = _unseal(window)
    table = ProducerTable()
    position = 0
    if count != window_count or len(entries) != count * _SNAPSHOT_ENTRY.size:
        raise BadSnapshot(f"{count} producers, {window_count} windows, {len(entries)} bytes")
    try:
        for fields in _SNAPSHOT_ENTRY.iter_unpack(entries):
            active_at_ms, batches, position = _decode_window(windows, position, fields[0])
            producer = Producer(
                producer_epoch=fields[1],
                batches=batches,
                active_at_ms=active_at_ms,
                coordinator_epoch=fields[6],
                txn_first_offset=None if fields[7] < 0 else fields[7],
            )
            table.put(fields[0], producer)
    except struct.error as error:
        raise BadSnapshot(str(error)) from error
    return table


def _decode_window(
    windows: memoryview, position: int, producer_id: int
) -> tuple[int, tuple[Appended, ...], int]:
    found_id, active_at_ms, count = _WINDOW_ENTRY.unpack_from(windows, position)
    if found_id != producer_id or not 0 <= count <= WINDOW:
        raise BadSnapshot(f"window of producer {found_id} where {producer_id} was expected")
    position += _WINDOW_ENTRY.size
    end = position + count * _WINDOW_BATCH.size
    batches = tuple(map(Appended._make, _WINDOW_BATCH.iter_unpack(windows[position:end])))
    return active_at_ms, batches, end
