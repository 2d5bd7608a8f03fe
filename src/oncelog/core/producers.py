"""Idempotent and transactional producers, as one partition sees them (KIP-98, KIP-360, KIP-890).

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
from oncelog.core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from oncelog.core.markers import Marker
from oncelog.core.stability import EndedTxn, Stability

#: A producer may have five requests in flight, so five batches may be repeated.
WINDOW: Final = 5
#: The highest epoch there is; it exists only to fence.
MAX_EPOCH: Final = (1 << 15) - 1


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


class ProducerTable:
    """The producers of one partition, and which of them have a transaction open here."""

    __slots__ = ("_held_back", "_producers", "stability")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self.stability = Stability()
        #: The lowest sequence of a producer's batches that was sent away to come again.
        self._held_back: dict[int, tuple[int, int]] = {}

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

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of exactly this identity is open here."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.producer_epoch == producer_epoch
            and producer_id in self.stability
        )

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse what a newer instance has made obsolete."""
        producer = self._producers.get(producer_id)
        if producer is not None and producer_epoch < producer.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} is at epoch {producer.producer_epoch}, "
                f"not {producer_epoch} any more"
            )

    def hold_back(self, header: BatchHeader) -> None:
        """A first batch was sent away for a moment: no later one may take its place (KAFKA-14920)."""
        known = self._held_back.get(header.producer_id)
        if known is None or header.producer_epoch > known[0]:
            self._held_back[header.producer_id] = (header.producer_epoch, header.base_sequence)
        elif header.producer_epoch == known[0] and header.base_sequence < known[1]:
            self._held_back[header.producer_id] = (known[0], header.base_sequence)

    def check(self, header: BatchHeader, *, starts_at_zero: bool = False) -> None:
        """Refuse a batch that is neither the producer's next one nor the first of a newer epoch.

        In transactions V2 each transaction begins at sequence 0: `starts_at_zero`.
        """
        self.check_epoch(header.producer_id, header.producer_epoch)
        if not header.is_transactional and header.producer_id in self.stability:
            raise InvalidTxnState(f"producer {header.producer_id} has a transaction open here")
        held_back = self._held_back.get(header.producer_id)
        if held_back is not None and held_back[0] == header.producer_epoch:
            if header.base_sequence > held_back[1]:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {header.base_sequence} while "
                    f"{held_back[1]} has yet to come again"
                )
        producer = self._producers.get(header.producer_id)
        if producer is None and not starts_at_zero:
            return  # No state: retention or expiry may have taken it, so any sequence goes on.
        expected = 0
        if producer is None:
            producer = _NOBODY
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
        if header.is_transactional:
            self.stability.begin(header.producer_id, header.base_offset)
        self._held_back.pop(header.producer_id, None)

    # --- markers ------------------------------------------------------------------------------------

    def check_marker(self, marker: Marker, *, transaction_version: int) -> None:
        """Refuse a marker that is too late: of an older epoch or of a replaced coordinator."""
        self.check_epoch(marker.producer_id, marker.producer_epoch)
        producer = self._producers.get(marker.producer_id)
        if producer is None:
            return
        # In V2 a marker raises the epoch. At the same epoch it is a repeat, which is fine where
        # nothing is open and would end the next transaction where something is (KIP-1228).
        if (
            transaction_version >= 2
            and marker.producer_epoch == producer.producer_epoch
            and marker.producer_epoch != MAX_EPOCH
            and marker.producer_id in self.stability
        ):
            raise InvalidProducerEpoch(
                f"a marker at epoch {marker.producer_epoch} would end a later transaction"
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the coordinator is at epoch {producer.coordinator_epoch}, "
                f"the marker has {marker.coordinator_epoch}"
            )

    def apply_marker(
        self, marker: Marker, marker_offset: int, *, active_at_ms: int
    ) -> EndedTxn | None:
        """Take over a marker that is in the log; returns the transaction that it ended."""
        producer = self._producers.get(marker.producer_id)
        window: tuple[Appended, ...] = ()
        if producer is not None and producer.producer_epoch == marker.producer_epoch:
            window = producer.batches
        self._producers[marker.producer_id] = Producer(
            marker.producer_epoch, window, active_at_ms, marker.coordinator_epoch
        )
        held_back = self._held_back.get(marker.producer_id)
        if held_back is not None and held_back[0] != marker.producer_epoch:
            del self._held_back[marker.producer_id]
        return self.stability.end(marker.producer_id, marker_offset, committed=marker.committed)

    def put(self, producer_id: int, producer: Producer) -> None:
        """Take over a producer as a snapshot has it."""
        self._producers[producer_id] = producer

    def expire(self, *, now_ms: int, idle_ms: int) -> list[int]:
        """Forget the producers that have been idle for so long; returns their ids."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer_id not in self.stability and now_ms - producer.active_at_ms >= idle_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        # Nor is a first batch remembered that was sent away and never came again.
        self._held_back = {
            each: held for each, held in self._held_back.items() if each in self._producers
        }
        return idle


_NOBODY: Final = Producer(-1, (), 0)


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
    open_transactions = table.stability.open_transactions()
    for producer_id, producer in table.items():
        last = producer.batches[-1] if producer.batches else Appended(-1, -1, 0, -1)
        first_offset = open_transactions.get(producer_id, -1)
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
            )
            table.put(fields[0], producer)
            if fields[7] >= 0:
                table.stability.begin(fields[0], fields[7])
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
