"""A partition that is being served: its log, its producers, and those who wait for it.

The high watermark is where the log is committed: the synced end with `flush=sync`, the end of the
log with `flush=os`. Readers never get past it and acks=all replies wait for it. Nothing here awaits
between reading state and changing it, so on one event loop no lock is needed.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.core.batch import HEADER_BYTES, BatchHeader, check_timestamp, read_header
from oncelog.core.errors import (
    BrokerError,
    ConnectionSuperseded,
    KafkaStorageError,
    OffsetOutOfRange,
)
from oncelog.core.log import count_expired, keeps_everything
from oncelog.core.markers import Marker, encode_marker
from oncelog.core.packing import unpack
from oncelog.core.producers import ProducerTable
from oncelog.core.records import Record
from oncelog.core.stability import AbortedTxn, EndedTxn, aborted_entry
from oncelog.core.topic_config import TopicConfig
from oncelog.core.types import Now, TopicPartition
from oncelog.runtime.flush import Flusher
from oncelog.storage.partition_log import DamagedLogError, LogEnd, PartitionLog, Unsynced

#: So many connections of producers are remembered without asking who is still known.
SPEAKERS_MIN: Final = 1_000


class AppendResult(NamedTuple):
    """Where a batch is."""

    base_offset: int
    last_offset: int
    #: The broker's time of the append, or -1 where the topic keeps the producer's.
    log_append_time_ms: int


class ReadBatches(NamedTuple):
    """What a fetch gets: bytes, and which transactions in them were aborted."""

    data: bytes
    aborted: Sequence[AbortedTxn]


class TimedOffset(NamedTuple):
    """A record that a lookup by time found."""

    offset: int
    timestamp: int
    leader_epoch: int


class Partition:
    """One log, open for business."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID,
        log: PartitionLog,
        producers: ProducerTable,
        config: TopicConfig,
        leader_epoch: int,
        flusher: Flusher,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.producers = producers
        self.config = config
        self.leader_epoch = leader_epoch
        self._flusher = flusher
        self._committed_end = log.end()
        #: Everything below it is on the disk: where the next recovery starts to look.
        self.recovery_point = log.log_end_offset
        self._stable_end: LogEnd | None = None
        #: Of producers with an open transaction, what the coordinator has to keep for it to count.
        self._joining: dict[int, Pending] = {}
        #: The newest connection on which a transactional producer of V1 was heard.
        self._speakers: dict[int, tuple[int, int]] = {}
        self._offline: str | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._watchers: dict[Callable[[], None], None] = {}

    # --- state ----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Records below it are safe and readable."""
        return self._committed_end.offset

    @property
    def committed_end(self) -> LogEnd:
        """The high watermark with its place in the files."""
        return self._committed_end

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        return self.producers.stability.last_stable_offset(
            high_watermark=self._committed_end.offset, log_start_offset=self.log.log_start_offset
        )

    def readable_end(self, *, committed_only: bool) -> LogEnd:
        """Where readers have to stop: at the last stable offset, or at the high watermark."""
        if not committed_only:
            return self._committed_end
        stable = self.last_stable_offset
        if stable == self._committed_end.offset:
            return self._committed_end
        if self._stable_end is None or self._stable_end.offset != stable:
            self._stable_end = self.log.end_at(stable, self._committed_end)
        return self._stable_end

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def offline(self) -> str | None:
        """Why the log does not serve, if it does not."""
        return self._offline

    def check_online(self) -> None:
        """Refuse to touch a log that failed."""
        if self._offline is not None:
            raise KafkaStorageError(f"{self.topic_partition} is offline: {self._offline}")

    def take_offline(self, reason: str) -> None:
        """Stop serving until a restart: what the page cache says can no longer be trusted."""
        if self._offline is not None:
            return
        self._offline = reason
        error = KafkaStorageError(f"{self.topic_partition} went offline: {reason}")
        while self._waiting:
            _, future = self._waiting.popleft()
            _fail(future, error)
        self._notify()

    # --- writing --------------------------------------------------------------------------------

    def must_join(self, header: BatchHeader) -> bool:
        """Whether the coordinator has to say first that this batch is part of a transaction."""
        if not header.is_transactional:
            return False
        self.producers.check_epoch(header.producer_id, header.producer_epoch)
        return not self.producers.has_open(header.producer_id, header.producer_epoch)

    def joins(self, producer_id: int, pending: "Pending") -> None:
        """A transaction begins here, and the coordinator's record of that is on its way to the disk."""
        self._joining[producer_id] = pending
        if len(self._joining) > SPEAKERS_MIN + 2 * len(self.producers):
            self._joining = {
                each: waits for each, waits in self._joining.items() if not waits.is_over
            }

    def joining(self, producer_id: int) -> "asyncio.Future[None] | None":
        """What a further batch of the transaction waits for.

        Raises if the coordinator has lost its record: a commit could not cover the batch.
        """
        pending = self._joining.get(producer_id)
        if pending is None:
            return None
        future = pending.committed()
        if future is None:
            del self._joining[producer_id]
        elif future.done() and (error := future.exception()) is not None:
            raise error
        return future

    def check_speaker(self, producer_id: int, producer_epoch: int, connection: int) -> None:
        """Refuse a batch from a connection that its producer has left behind.

        Before V2 a transaction's batches do not say which transaction they are for: one that was
        held up in the network could become part of the next.
        """
        known = self._speakers.get(producer_id, (-1, -1))
        if known[0] > producer_epoch:
            return  # It is refused for that, and must not make room for others who are late.
        if known[0] == producer_epoch and connection < known[1]:
            raise ConnectionSuperseded(f"producer {producer_id} speaks on a newer connection")
        self._speakers[producer_id] = (producer_epoch, connection)
        if len(self._speakers) > SPEAKERS_MIN + 2 * len(self.producers):
            # Those whose state has expired have nothing left to be confused with.
            self._speakers = {
                each: spoke for each, spoke in self._speakers.items() if self.producers.get(each)
            }

    def append_from_client(
        self, batch: memoryview, header: BatchHeader, now: Now, *, starts_at_zero: bool = False
    ) -> AppendResult:
        """Append a batch that has been admitted, or recognise it as a repeat."""
        self.check_online()
        if header.has_producer:
            repeated = self.producers.find_duplicate(header)
            if repeated is not None:
                append_time = repeated.timestamp if self._stamps_append_time else -1
                return AppendResult(repeated.base_offset, repeated.last_offset, append_time)
            self.producers.check(header, starts_at_zero=starts_at_zero)
        if not self._stamps_append_time:
            check_timestamp(
                header,
                now_ms=now.wall_ms,
                before_max_ms=self.config.message_timestamp_before_max_ms,
                after_max_ms=self.config.message_timestamp_after_max_ms,
            )
        return self.append(batch, header, now)

    def append_marker(self, marker: Marker, now: Now, transaction_version: int) -> AppendResult:
        """End a producer's transaction here. A repeat is appended again and changes nothing."""
        self.check_online()
        self.producers.check_marker(marker, transaction_version=transaction_version)
        batch = encode_marker(marker, timestamp_ms=now.wall_ms)
        placed = self._write(memoryview(batch), read_header(batch), None)
        ended = self.producers.apply_marker(marker, placed.base_offset, active_at_ms=now.wall_ms)
        if ended is not None and not ended.committed:
            self._index_aborted(ended)
        self._flusher.wrote(self)
        return AppendResult(placed.base_offset, placed.last_offset, -1)

    def _index_aborted(self, ended: EndedTxn) -> None:
        entry = aborted_entry(ended, self.producers.stability.oldest_open_offset())
        try:
            self.log.note_aborted(entry)
        except OSError as error:
            # The marker is in the log, and without its entry readers would get what was aborted.
            self.take_offline(f"an aborted transaction could not be indexed: {error}")
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error

    def append(self, batch: memoryview, header: BatchHeader, now: Now) -> AppendResult:
        """Append without asking the producer table; on an error nothing has changed."""
        self.check_online()
        append_time_ms = now.wall_ms if self._stamps_append_time else None
        placed = self._write(batch, header, append_time_ms)
        if placed.has_producer:
            self.producers.apply(
                placed, timestamp_ms=placed.max_timestamp, active_at_ms=now.wall_ms
            )
        self._flusher.wrote(self)
        return AppendResult(
            placed.base_offset,
            placed.last_offset,
            -1 if append_time_ms is None else append_time_ms,
        )

    def _write(
        self, batch: memoryview, header: BatchHeader, append_time_ms: int | None
    ) -> BatchHeader:
        try:
            return self.log.append(
                batch,
                header,
                leader_epoch=self.leader_epoch,
                config=self.config,
                producers=self.producers,
                append_time_ms=append_time_ms,
            )
        except OSError as error:
            # A full disk has room again some day; the file is as it was. Anything else is not ours
            # to judge.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.take_offline(f"a write failed: {error}")
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error

    @property
    def _stamps_append_time(self) -> bool:
        return self.config.message_timestamp_type == "LogAppendTime"

    def committed(self, end_offset: int) -> asyncio.Future[None] | None:
        """None if everything below `end_offset` is committed, else a future for that moment."""
        if self._committed_end.offset >= end_offset and self._offline is None:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._offline is not None:
            _fail(future, KafkaStorageError(f"{self.topic_partition}: {self._offline}"))
        else:
            # Appends come in order, so those who wait do too, but for repeats of older batches.
            self._waiting.append((end_offset, future))
        return future

    async def wait_committed(self, end_offset: int) -> None:
        """Wait until everything below `end_offset` is committed."""
        future = self.committed(end_offset)
        if future is not None:
            await future

    # --- called by the flusher --------------------------------------------------------------------

    def take_unsynced(self) -> Unsynced:
        """What the next sync has to cover."""
        return self.log.take_unsynced()

    def written_end(self) -> LogEnd:
        """Where the log ends, committed or not."""
        return self.log.end()

    def set_committed(self, end: LogEnd) -> None:
        """The log is committed up to here: wake who waited for it."""
        if end.offset <= self._committed_end.offset:
            return
        self._committed_end = end
        self.producers.stability.settle(end.offset)
        still: list[tuple[int, asyncio.Future[None]]] = []
        while self._waiting:
            end_offset, future = self._waiting.popleft()
            if end_offset > end.offset:
                still.append((end_offset, future))
            elif not future.done():
                future.set_result(None)
        self._waiting.extend(still)
        self._notify()

    def set_synced(self, end: LogEnd) -> None:
        """The log is on the disk up to here."""
        self.recovery_point = max(self.recovery_point, end.offset)

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, whole_first: bool, committed_only: bool = False
    ) -> ReadBatches:
        """Batches from the one that holds `offset`, as far as the reader may see."""
        self.check_online()
        self.check_range(offset)
        end = self.readable_end(committed_only=committed_only)
        if offset >= end.offset:
            return ReadBatches(b"", ())
        try:
            place = self.log.locate(offset, end=end, max_bytes=max_bytes, whole_first=whole_first)
            if place is None:
                return ReadBatches(b"", ())
            aborted: Sequence[AbortedTxn] = ()
            if committed_only:
                aborted = self.log.aborted(offset, min(place.end_offset(), end.offset))
            return ReadBatches(place.read(), aborted)
        except (DamagedLogError, OSError) as error:
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error

    def check_range(self, offset: int) -> None:
        """Refuse an offset that is not in the log."""
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} has offsets {self.log.log_start_offset} to "
                f"{self.log.log_end_offset}, asked for {offset}"
            )

    def available_bytes(self, offset: int, *, committed_only: bool = False) -> int:
        """Roughly how much a reader at `offset` could get now."""
        return self.log.bytes_between(offset, self.readable_end(committed_only=committed_only))

    def find_time(self, timestamp: int) -> TimedOffset | None:
        """The first record whose time is at or after `timestamp`."""
        for header in self.log.find_batch_by_time(timestamp, self._committed_end):
            for record in self._records(header):
                if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                    return TimedOffset(record.offset, record.timestamp, header.leader_epoch)
        return None

    def find_max_timestamp(self) -> TimedOffset | None:
        """The first record with the largest time."""
        header = self.log.header_of_max_timestamp(self._committed_end)
        if header is None:
            return None
        newest = max(self._records(header), key=lambda r: r.timestamp, default=None)
        if newest is None:
            return None
        return TimedOffset(newest.offset, newest.timestamp, header.leader_epoch)

    def _records(self, header: BatchHeader) -> list[Record]:
        data = self.log.read(
            header.base_offset, end=self._committed_end, max_bytes=0, whole_first=True
        )
        return unpack(header, memoryview(data)[HEADER_BYTES : header.size_bytes])

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever there may be more to read, until `unwatch`."""
        self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Stop calling."""
        self._watchers.pop(callback, None)

    def _notify(self) -> None:
        for callback in list(self._watchers):
            callback()

    def begin_segment(self) -> int:
        """Let the next batch begin a segment of its own; returns its offset."""
        self.check_online()
        if self.log.segments and self.log.segments[-1].size_bytes:
            try:
                self.log.roll(self.config, self.producers)
            except OSError as error:
                raise KafkaStorageError(f"{self.topic_partition}: {error}") from error
        return self.log.log_end_offset

    # --- the head -------------------------------------------------------------------------------

    def start_after_deleting(self, offset: int | None) -> int:
        """Where the log is to begin when the records below `offset` go; None: all committed ones."""
        self.check_online()
        target = self.high_watermark if offset is None else offset
        if target < 0 or target > self.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete up to {target}, the high watermark is {self.high_watermark}"
            )
        return max(target, self.log_start_offset)

    def start_after_expiry(self, now: Now) -> int | None:
        """Where the log is to begin by the rules of retention; None: where it does."""
        if len(self.log.segments) < 2 or keeps_everything(self.config):
            return None
        count = count_expired(
            self.log.facts(),
            # What an open transaction has written stays until it is decided.
            high_watermark=self.last_stable_offset,
            now_ms=now.wall_ms,
            config=self.config,
        )
        return self.log.segments[count].base_offset if count else None

    def close(self, error: BrokerError) -> None:
        """Stop serving for good, as when the topic is deleted."""
        self._offline = str(error)
        while self._waiting:
            _, future = self._waiting.popleft()
            _fail(future, error)
        self._notify()
        self.log.close()


class Pending(NamedTuple):
    """A place in a log that somebody's promise rests on."""

    log: Partition
    end_offset: int

    def committed(self) -> asyncio.Future[None] | None:
        """None if everything below it is committed, else a future for that moment."""
        return self.log.committed(self.end_offset)

    @property
    def is_over(self) -> bool:
        """Whether it is committed."""
        return self.log.offline is None and self.log.committed_end.offset >= self.end_offset


def _fail(future: asyncio.Future[None], error: BrokerError) -> None:
    """Tell who waits; nobody has to: a client may have gone, and that is no fault of ours."""
    if not future.done():
        future.set_exception(error)
        future.exception()
