"""The log of one partition: segments in a directory that is named after it, as in Kafka.

    <topic>-<partition>/
      00000000000000000000.log, .index, .timeindex     for each segment
      00000000000000000000.txnindex                    where it has aborted transactions
      00000000000000000042.snapshot, .window           producers as of offset 42
      leader-epoch-checkpoint, partition.metadata

A partition that was never written to has no directory. What is written reaches the page cache;
`take_unsynced` says what a sync has to cover.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.core.batch import (
    BatchHeader,
    place,
    place_with_append_time,
)
from oncelog.core.leader_epochs import LeaderEpochs, encode_epochs
from oncelog.core.log import SegmentFacts, must_roll
from oncelog.core.producers import ProducerTable, encode_snapshot
from oncelog.core.records import batches
from oncelog.core.stability import AbortedTxn, aborted_between
from oncelog.core.topic_config import TopicConfig
from oncelog.storage.disk import Disk, File
from oncelog.storage.segment import SUFFIXES, Segment, segment_name

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"


class DamagedLogError(Exception):
    """The bytes below the sync point are not what was written there."""


class LogEnd(NamedTuple):
    """A place between two batches: the offset of the next one, and where in which file it begins."""

    offset: int
    segment_base: int
    position: int


class Unsynced(NamedTuple):
    """What a sync has to cover to make the log durable up to `end`."""

    end: LogEnd
    files: tuple[File, ...]
    directories: tuple[str, ...]


class Place(NamedTuple):
    """A run of bytes in a segment."""

    segment: Segment
    position: int
    size: int

    def read(self) -> bytes:
        """The bytes."""
        return self.segment.file.read(self.position, self.size)

    def end_offset(self) -> int:
        """An offset above every record in it, not much too large."""
        return self.segment.offset_after(self.position + self.size)


class PartitionLog:
    """An append-only run of batches, addressed by offset."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        metadata: str,
        segments: list[Segment] | None = None,
        log_start_offset: int = 0,
        leader_epochs: LeaderEpochs | None = None,
    ) -> None:
        self.directory = directory
        self.segments = segments or []
        self.log_start_offset = log_start_offset
        self.leader_epochs = leader_epochs or LeaderEpochs()
        self._disk = disk
        self._metadata = metadata
        self._unsynced_files: dict[File, None] = {}
        self._unsynced_directories: dict[str, None] = {}
        #: How many snapshots there may be: only a log that wrote some is looked through.
        self._snapshot_count = 3

    @property
    def may_drop_snapshots(self) -> bool:
        """Whether there could be snapshots that nobody needs."""
        return self._snapshot_count > 2

    # --- where it begins and ends -------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.segments[-1].end_offset if self.segments else self.log_start_offset

    def end(self) -> LogEnd:
        """The end as it is now."""
        if not self.segments:
            return LogEnd(self.log_start_offset, self.log_start_offset, 0)
        active = self.segments[-1]
        return LogEnd(active.end_offset, active.base_offset, active.size_bytes)

    def facts(self) -> list[SegmentFacts]:
        """The segments, oldest first, as retention sees them."""
        return [segment.facts() for segment in self.segments]

    @property
    def size_bytes(self) -> int:
        """All segments together."""
        return sum(segment.size_bytes for segment in self.segments)

    # --- writing --------------------------------------------------------------------------------

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        config: TopicConfig,
        producers: ProducerTable,
        append_time_ms: int | None = None,
    ) -> BatchHeader:
        """Give the batch the next offset and write it; returns the header that is in the log now.

        On OSError nothing has changed.
        """
        timestamp = header.max_timestamp if append_time_ms is None else append_time_ms
        active = self._writable_segment(header, timestamp, config, producers)
        base_offset = active.end_offset
        placed = header._replace(
            base_offset=base_offset, leader_epoch=leader_epoch, max_timestamp=timestamp
        )
        chunks: tuple[bytes, memoryview]
        if append_time_ms is None:
            chunks = place(batch, header, base_offset=base_offset, leader_epoch=leader_epoch)
        else:
            chunks = place_with_append_time(
                batch,
                header,
                base_offset=base_offset,
                leader_epoch=leader_epoch,
                now_ms=append_time_ms,
            )
        active.append(placed, chunks)
        self._unsynced_files[active.file] = None
        latest = self.leader_epochs.latest()
        if (latest is None or latest < leader_epoch) and self.leader_epochs.assign(
            leader_epoch, base_offset
        ):
            self._replace_file(LEADER_EPOCHS, encode_epochs(self.leader_epochs))
        return placed

    def _writable_segment(
        self, header: BatchHeader, timestamp: int, config: TopicConfig, producers: ProducerTable
    ) -> Segment:
        if not self.segments:
            return self._create_first_segment(config)
        active = self.segments[-1]
        rolls = must_roll(
            active.facts(),
            batch_bytes=header.size_bytes,
            batch_timestamp=timestamp,
            last_delta=header.last_offset_delta,
            config=config,
        )
        return self.roll(config, producers) if rolls else active

    def _create_first_segment(self, config: TopicConfig) -> Segment:
        self._disk.make_directory(self.directory)
        self._unsynced_directories["."] = None
        self._replace_file(PARTITION_METADATA, self._metadata.encode())
        return self._create_segment(self.log_start_offset, config)

    def roll(self, config: TopicConfig, producers: ProducerTable) -> Segment:
        """Begin a new segment, with a snapshot of the producers as of its first offset."""
        # A full segment's indexes are not rebuilt at the next start, so they are synced with it. All
        # this comes first: should the disk be full, the old segment is still the active one.
        old = self.segments[-1]
        self._unsynced_files |= dict.fromkeys(old.seal())
        self.write_snapshot(producers)
        return self._create_segment(old.end_offset, config)

    def _create_segment(self, base_offset: int, config: TopicConfig) -> Segment:
        segment = Segment(
            self._disk,
            self.directory,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            create=True,
        )
        # The name of the new file must survive a power cut before anything in it is acknowledged.
        self._unsynced_directories[self.directory] = None
        self.segments.append(segment)
        return segment

    def write_snapshot(self, producers: ProducerTable) -> None:
        """Keep the producers as of the log's end. A torn snapshot is noticed by its checksum."""
        if not self.segments:
            return
        snapshot, window = encode_snapshot(producers)
        name = segment_name(self.log_end_offset)
        self._replace_file(f"{name}.snapshot", snapshot)
        self._replace_file(f"{name}.window", window)
        self._snapshot_count += 1

    def drop_snapshots(self, recovery_point: int) -> None:
        """Remove the snapshots that no recovery needs.

        After a crash one at or below the recovery point is taken: what it says of aborted
        transactions is on the disk. Should the newest of these be torn, the one before it serves.
        """
        names = [n for n in self._disk.list(self.directory) if n.endswith(".snapshot")]
        old = [n for n in names if int(n.removesuffix(".snapshot")) <= recovery_point]
        for name in old[:-2]:
            self._disk.remove(f"{self.directory}/{name}")
            self._disk.remove(f"{self.directory}/{name.removesuffix('.snapshot')}.window")
        self._snapshot_count = len(names) - len(old[:-2])

    def _replace_file(self, name: str, data: bytes) -> None:
        path = f"{self.directory}/{name}"
        file = self._disk.open(f"{path}.tmp", create=True)
        file.append([data])
        file.close()
        self._disk.rename(f"{path}.tmp", path)
        self._unsynced_files[self._disk.open(path)] = None
        self._unsynced_directories[self.directory] = None

    def take_unsynced(self) -> Unsynced:
        """What has been written since the last call, and the end that it reaches."""
        unsynced = Unsynced(
            self.end(), tuple(self._unsynced_files), tuple(self._unsynced_directories)
        )
        self._unsynced_files = {}
        self._unsynced_directories = {}
        return unsynced

    @property
    def has_unsynced(self) -> bool:
        """Whether a sync would have anything to do."""
        return bool(self._unsynced_files or self._unsynced_directories)

    def write_indexes(self) -> None:
        """Hand new index entries of the active segment to the disk."""
        if self.segments:
            self.segments[-1].write_indexes()

    # --- reading --------------------------------------------------------------------------------

    def read(self, offset: int, *, end: LogEnd, max_bytes: int, whole_first: bool) -> bytes:
        """Batches from the one that holds `offset`, up to `end`; the last of them may be cut."""
        place = self.locate(offset, end=end, max_bytes=max_bytes, whole_first=whole_first)
        return b"" if place is None else place.read()

    def locate(
        self, offset: int, *, end: LogEnd, max_bytes: int, whole_first: bool
    ) -> "Place | None":
        """Where a read finds its bytes; None where there are none.

        A first batch larger than `max_bytes` is taken whole if `whole_first` says so, otherwise a
        reader could never get past it.
        """
        for index in range(max(self._segment_index(offset), 0), len(self.segments)):
            segment = self.segments[index]
            limit = end.position if segment.base_offset == end.segment_base else segment.size_bytes
            found = segment.find(offset)
            if found is None:
                if segment.base_offset == end.segment_base:
                    break
                continue
            position, header = found
            if position >= limit:
                break
            if header.magic != 2:
                raise DamagedLogError(f"{segment.file.path} at byte {position} is not a batch")
            size = min(max_bytes, limit - position)
            if size < header.size_bytes:
                if not whole_first:
                    break
                size = header.size_bytes
            return Place(segment, position, size)
        return None

    def end_at(self, offset: int, end: LogEnd) -> LogEnd:
        """The place between the batches before `offset` and the rest; `end` bounds it."""
        for segment in self.segments[max(self._segment_index(offset), 0) :]:
            found = segment.find(offset)
            if found is not None:
                return LogEnd(offset, segment.base_offset, found[0])
        return end

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [start, end), in the order of their markers."""
        found: list[AbortedTxn] = []
        for segment in self.segments[max(self._segment_index(start), 0) :]:
            for entry in aborted_between(segment.txn_index.entries, start, end):
                if entry is None:
                    return found
                found.append(entry)
        return found

    def note_aborted(self, entry: AbortedTxn) -> None:
        """Index an aborted transaction whose marker was just appended."""
        self._unsynced_files[self.segments[-1].txn_index.append(entry)] = None
        self._unsynced_directories[self.directory] = None

    def bytes_between(self, offset: int, end: LogEnd) -> int:
        """How much a read from `offset` could return, roughly: for `min_bytes` of a fetch."""
        index = self._segment_index(offset)
        if index < 0 or offset >= end.offset:
            return 0
        segment = self.segments[index]
        start = segment.index_position(offset)
        if segment.base_offset == end.segment_base:
            found = segment.find(offset)
            return max(end.position - found[0], 0) if found else 0
        return max(segment.size_bytes - start, 1)

    def _segment_index(self, offset: int) -> int:
        return bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1

    def walk(self, offset: int, end: LogEnd) -> Iterator[tuple[BatchHeader, bytes]]:
        """Whole batches from the one that holds `offset` up to `end`: for replay and lookups."""
        while offset < end.offset:
            data = self.read(offset, end=end, max_bytes=1 << 20, whole_first=True)
            start = offset
            for header, batch in batches(data):
                yield header, bytes(batch)
                offset = header.next_offset
            if offset == start:
                return

    def find_batch_by_time(self, timestamp: int, end: LogEnd) -> Iterator[BatchHeader]:
        """Batches that may hold the first record at or after `timestamp`, in order."""
        for segment in self.segments:
            if segment.max_timestamp < timestamp or segment.end_offset <= self.log_start_offset:
                continue
            entry = segment.time_index.find(timestamp - 1)
            relative = entry[1] if entry else 0
            position = segment.index_position(segment.base_offset + relative)
            for _, header in segment.walk(position):
                if header.next_offset > end.offset:
                    return
                if header.max_timestamp >= timestamp and header.last_offset >= (
                    self.log_start_offset
                ):
                    yield header

    def header_of_max_timestamp(self, end: LogEnd) -> BatchHeader | None:
        """The first batch that holds the largest record time below `end`."""
        best: BatchHeader | None = None
        largest = max((s.max_timestamp for s in self.segments), default=-1)
        for segment in self.segments:
            # A segment is walked only where it could hold the answer; usually that is one.
            if segment.max_timestamp < largest and segment.base_offset != end.segment_base:
                continue
            for _, header in segment.walk():
                if header.next_offset > end.offset:
                    break
                if header.last_offset < self.log_start_offset:
                    continue
                if best is None or header.max_timestamp > best.max_timestamp:
                    best = header
        return best

    # --- the head -------------------------------------------------------------------------------

    def advance_start(self, offset: int) -> None:
        """Nothing below `offset` is readable any more."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)

    def drop_head(self) -> list[str]:
        """Delete the segments that lie below the log start; returns what was deleted.

        The caller has stored the log start first, so a crash half way leaves no hole above it.
        """
        removed = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start_offset:
            segment = self.segments.pop(0)
            segment.close()
            stem = f"{self.directory}/{segment_name(segment.base_offset)}"
            for suffix in SUFFIXES:
                self._disk.remove(stem + suffix)
            removed.append(segment.file.path)
        return removed

    def close(self) -> None:
        """Let go of every file."""
        for segment in self.segments:
            segment.close()
