"""All partitions of a broker: opened at start, made and removed as the metadata says.

A deleted topic's directories are renamed before they are emptied, so a crash half way leaves names
that belong to nobody; the next start removes those. They are gone from the disk before a new topic
gets the name: a directory that names another topic's id is damaged or misplaced, and is not served.
"""

import asyncio
import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from uuid import UUID

from oncelog.core.errors import UnknownTopicOrPartition
from oncelog.core.metadata.records import Topic
from oncelog.core.producers import ProducerTable
from oncelog.core.topic_config import TopicConfig
from oncelog.core.types import METADATA_TOPIC, Now, TopicPartition
from oncelog.observe import notes
from oncelog.runtime.flush import Flusher
from oncelog.runtime.partition import Partition
from oncelog.storage.checkpoints import (
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_checkpoint,
    encode_checkpoint,
)
from oncelog.storage.disk import Disk
from oncelog.storage.partition_log import PARTITION_METADATA, DamagedLogError, PartitionLog
from oncelog.storage.recovery import recover
from oncelog.storage.segment import segment_name

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
METADATA_ID: Final = UUID(int=1)
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_DELETED: Final = "-delete"
_TOPIC_ID: Final = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})")


def topic_id_text(topic_id: UUID) -> str:
    """A topic id as Kafka prints it."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def partition_metadata(topic_id: UUID) -> str:
    """The content of `partition.metadata`, as Kafka writes it."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}"


class LogDirectory:
    """The logs under one data directory."""

    def __init__(
        self,
        disk: Disk,
        flusher: Flusher,
        *,
        note: Callable[[object], None],
    ) -> None:
        self.disk = disk
        self.flusher = flusher
        self.leader_epoch = 0
        self._note = note
        self._partitions: dict[TopicPartition, Partition] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._clean = False
        self._stored_checkpoints: tuple[bytes, bytes] = (b"", b"")
        #: Held while checkpoints are written and log starts move: disk and memory may differ then.
        self.checkpointing = asyncio.Lock()
        #: Whether the disk may still hold something of a deleted topic: a former life may have left it.
        self.remembers_deleted = True

    # --- looking ----------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Partition:
        """A partition that is served here."""
        found = self.find(topic_partition)
        if found is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic_partition}")
        return found

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        """A partition, if it is served here. The metadata log is not: clients cannot name it."""
        if topic_partition.topic == METADATA_TOPIC:
            return None
        return self._partitions.get(topic_partition)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was an orderly one."""
        return self._clean

    # --- opening ----------------------------------------------------------------------------------

    async def read_checkpoints(self) -> None:
        """Learn where recovery has to look. The clean-stop mark counts once."""
        self._recovery_points = decode_checkpoint(self.disk.read_file(RECOVERY_POINTS))
        self._log_starts = decode_checkpoint(self.disk.read_file(LOG_STARTS))
        self._clean = self.disk.read_file(CLEAN_SHUTDOWN) is not None
        if self._clean:
            self.disk.remove(CLEAN_SHUTDOWN)
        # Also what a killed process has renamed here is relied on from now on.
        await self.disk.sync([], ["."])

    async def open_partition(
        self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig, now: Now
    ) -> Partition:
        """Open a partition from what is on the disk."""
        directory = str(topic_partition)
        metadata = partition_metadata(topic_id)
        try:
            await self._check_whose(directory, metadata)
            recovered = await recover(
                self.disk,
                directory,
                metadata=metadata,
                recovery_point=self._recovery_points.get(topic_partition, 0),
                log_start_offset=self._log_starts.get(topic_partition, 0),
                clean=self._clean,
                index_interval_bytes=config.index_interval_bytes,
                now_ms=now.wall_ms,
            )
            log, producers, reason = recovered.log, recovered.producers, None
            for kept_in, size in recovered.cut:
                self._note(notes.TailCut(partition=directory, kept_in=kept_in, size_bytes=size))
            for what in recovered.rebuilt:
                self._note(notes.Rebuilt(partition=directory, what=what))
        except DamagedLogError as error:
            log = PartitionLog(self.disk, directory, metadata=metadata)
            producers, reason = ProducerTable(), str(error)
        partition = self._add(topic_partition, topic_id, log, producers, config)
        if reason is not None:
            partition.take_offline(reason)
            self._note(notes.PartitionOffline(partition=directory, reason=reason))
        return partition

    async def _check_whose(self, directory: str, metadata: str) -> None:
        """Refuse a directory that names another topic: one wrong bit must not empty a partition.

        What cannot be read at all is written again. A power cut before the first sync leaves that,
        and the directory's own name says whose it is.
        """
        path = f"{directory}/{PARTITION_METADATA}"
        found = self.disk.read_file(path)
        if found is None or found == metadata.encode():
            return
        named = _TOPIC_ID.fullmatch(found)
        if named is not None:
            raise DamagedLogError(
                f"{path} names the topic id {named[1].decode()}, which is not this topic's: the file "
                "is damaged, or the directory belongs elsewhere. Nothing in it was touched. If its "
                f"records are those of {directory}, delete that one file and restart the broker"
            )
        await self.disk.write_file(path, metadata.encode())
        self._note(notes.Rebuilt(partition=directory, what=path))

    def create_partition(
        self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig
    ) -> Partition:
        """A partition that is new: its directory comes with its first batch."""
        metadata = partition_metadata(topic_id)
        log = PartitionLog(self.disk, str(topic_partition), metadata=metadata)
        return self._add(topic_partition, topic_id, log, ProducerTable(), config)

    def _add(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: PartitionLog,
        producers: ProducerTable,
        config: TopicConfig,
    ) -> Partition:
        partition = Partition(
            topic_partition,
            topic_id=topic_id,
            log=log,
            producers=producers,
            config=config,
            leader_epoch=self.leader_epoch,
            flusher=self.flusher,
        )
        self._partitions[topic_partition] = partition
        return partition

    async def remove_strays(self, topics: dict[str, Topic]) -> None:
        """Remove the directories of topics that were deleted while the broker went down."""
        known = {str(METADATA_PARTITION)}
        for topic in topics.values():
            known |= {f"{topic.name}-{index}" for index in range(topic.partition_count)}
        removed = False
        for name in self.disk.list("."):
            if name in known or not self._is_partition_directory(name):
                continue
            self.disk.remove(name)
            self._note(notes.StrayRemoved(directory=name))
            removed = True
        if removed:
            await self.disk.sync([], ["."])

    def _is_partition_directory(self, name: str) -> bool:
        """Only what looks like ours is ever removed."""
        if name.endswith(_DELETED):
            return True
        return PARTITION_METADATA in self.disk.list(name)

    # --- deleting ---------------------------------------------------------------------------------

    async def forget_deleted(self) -> None:
        """Leave no trace of deleted topics on the disk, before one of their names is used again.

        A power cut must not bring a directory back that the new topic would find under its name. And
        a checkpoint knows a topic by its name: a new one would inherit where the old one began and
        how far it was synced, and be taken for damaged after a crash. Before the deletion is
        committed would be too early: a topic that stays must keep its log start.
        """
        # Not while they are being written: what is on its way to the disk may name it too.
        async with self.checkpointing:
            self.remembers_deleted = False
            try:
                # The deletion first: a topic that comes back with it must find its directories.
                await self.flusher.flush()
                await self.disk.sync([], ["."])
                stored = {**self._recovery_points, **self._log_starts}
                if any(topic_partition not in self._partitions for topic_partition in stored):
                    await self._write_checkpoints_now()
            except OSError:
                self.remembers_deleted = True
                raise

    def remove_topic(self, name: str, topic_id: UUID) -> None:
        """Stop serving a topic and delete its directories."""
        self.remembers_deleted = True
        error = UnknownTopicOrPartition(f"the topic {name} was deleted")
        for topic_partition in [tp for tp in self._partitions if tp.topic == name]:
            partition = self._partitions.pop(topic_partition)
            partition.close(error)
            directory = str(topic_partition)
            if self.disk.list(directory):
                renamed = f"{directory}.{topic_id.hex}{_DELETED}"
                self.disk.rename(directory, renamed)
                self.disk.remove(renamed)

    # --- keeping house ----------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Write down how far each log is synced and where it begins."""
        await self.flusher.flush()
        for partition in self:
            if partition.offline is None:
                partition.log.write_indexes()
        await self._write_checkpoints()

    async def _write_checkpoints(self) -> None:
        # One at a time: whether a file has to be written depends on what was written last.
        async with self.checkpointing:
            await self._write_checkpoints_now()

    async def _write_checkpoints_now(self, moving: Mapping[Partition, int] | None = None) -> None:
        points = self._of_partitions_here(self._recovery_points)
        starts = self._of_partitions_here(self._log_starts)
        for partition in self:
            if partition.offline is not None:
                continue
            topic_partition = partition.topic_partition
            points[topic_partition] = partition.recovery_point
            start = max(partition.log_start_offset, (moving or {}).get(partition, 0))
            # With `flush=os` a log may be deleted up to an end that a power cut takes back.
            starts[topic_partition] = min(start, partition.recovery_point)
        texts = (
            encode_checkpoint({tp: o for tp, o in points.items() if o > 0}),
            encode_checkpoint({tp: o for tp, o in starts.items() if o > 0}),
        )
        # Before they are written: one that fails may have reached the disk all the same.
        self._recovery_points, self._log_starts = points, starts
        stored, self._stored_checkpoints = self._stored_checkpoints, (b"", b"")
        for name, text, old in zip((RECOVERY_POINTS, LOG_STARTS), texts, stored, strict=True):
            if text != old:
                await self.disk.write_file(name, text)
        self._stored_checkpoints = texts
        for partition in self:
            if partition.log.may_drop_snapshots and partition.offline is None:
                partition.log.drop_snapshots(points.get(partition.topic_partition, 0))

    def _of_partitions_here(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return {tp: offset for tp, offset in offsets.items() if tp in self._partitions}

    async def apply_retention(self, now: Now) -> None:
        """Drop old segments."""
        starts = {
            partition: start
            for partition in self
            if partition.offline is None
            and (start := partition.start_after_expiry(now)) is not None
        }
        await self.move_starts(starts)
        for partition, start in starts.items():
            self._note(
                notes.RetentionMoved(
                    partition=str(partition.topic_partition), log_start_offset=start
                )
            )

    async def move_starts(self, starts: Mapping[Partition, int]) -> None:
        """Let logs begin there: first that is stored, then readers see it, then segments go.

        Should it fail, nothing has moved: a start that readers have seen never goes back.
        """
        if not starts:
            return
        # What is deleted may have been the last trace of a producer, but for the newest snapshot.
        await self.flusher.flush()
        async with self.checkpointing:
            await self._write_checkpoints_now(starts)
            for partition, start in starts.items():
                if partition.offline is None:
                    partition.log.advance_start(start)
                    partition.log.drop_head()

    def expire_producers(self, now: Now, idle_ms: int) -> None:
        """Forget producers that have been idle for so long."""
        for partition in self:
            partition.producers.expire(now_ms=now.wall_ms, idle_ms=idle_ms)

    def _has_snapshot(self, partition: Partition) -> bool:
        """Whether the producers are stored as of the log's end: thousands of idle logs stay as is.

        Recovery has removed snapshots that cannot be read or lie above the end, so a name will do.
        """
        name = segment_name(partition.log.log_end_offset)
        return {f"{name}.snapshot", f"{name}.window"} <= set(
            self.disk.list(partition.log.directory)
        )

    async def close(self) -> None:
        """Stop in order: sync, snapshots, checkpoints, and last the mark that says so."""
        for partition in self:
            if partition.offline is None:
                if not self._has_snapshot(partition):
                    partition.log.write_snapshot(partition.producers)
                partition.log.write_indexes()
                self.flusher.wrote(partition)
        await self.flusher.close()
        await self._write_checkpoints()
        if all(partition.offline is None for partition in self):
            await self.disk.write_file(CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        for partition in self:
            partition.log.close()
        await asyncio.sleep(0)
