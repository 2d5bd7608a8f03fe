"""One partition on any disk: opened, written to, and described in full."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from oncelog.core.batch import admit
from oncelog.core.markers import Marker
from oncelog.core.producers import Appended
from oncelog.core.stability import AbortedTxn
from oncelog.core.topic_config import TopicConfig
from oncelog.core.types import Now, TopicPartition
from oncelog.runtime.flush import OsFlusher, SyncFlusher
from oncelog.runtime.log_directory import LogDirectory
from oncelog.runtime.partition import AppendResult, Partition
from oncelog.storage.disk import Disk
from oncelog.testing.sim.loop import run
from tests.core.batches import TIME_MS, a_batch

TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
CHECKPOINT = "recovery-point-offset-checkpoint"
T = TypeVar("T")


def small_segments(**settings: object) -> TopicConfig:
    """Three small batches to a segment, and an index entry for each batch."""
    config = replace(TopicConfig(), segment_bytes=250, index_interval_bytes=1)
    return replace(config, **settings)  # type: ignore[arg-type] # settings by their names


def at(ms: int = 0) -> Now:
    """An instant so long after the time of the tests' records."""
    return Now(TIME_MS + ms, ms)


@dataclass
class Opened:
    """A partition that is open, with the directory it belongs to."""

    logs: LogDirectory
    partition: Partition
    notes: list[object]

    def append(
        self, *, sequence: int = -1, count: int = 1, producer_id: int | None = None,
        epoch: int = 0, time_ms: int = TIME_MS, padding: int = 0, attributes: int = 0,
    ) -> AppendResult:  # fmt: skip
        """Append a client's batch; it is not committed yet."""
        batch = memoryview(
            a_batch(
                sequence=sequence,
                count=count,
                producer_id=producer_id,
                epoch=epoch,
                timestamp_ms=time_ms,
                padding=padding,
                attributes=attributes,
            )
        )
        header = admit(batch, zstd_allowed=True, max_bytes=1 << 20)
        return self.partition.append_from_client(batch, header, at())

    def abort(self, producer_id: int, *, epoch: int = 0) -> AppendResult:
        """End a producer's transaction; its marker is not committed yet."""
        marker = Marker(
            producer_id=producer_id, producer_epoch=epoch, committed=False, coordinator_epoch=0
        )
        return self.partition.append_marker(marker, at(), 1)

    async def delete_records(self, offset: int | None) -> None:
        """Let the log begin there."""
        start = self.partition.start_after_deleting(offset)
        await self.logs.move_starts({self.partition: start})

    async def commit(self) -> None:
        """Wait until all of it is committed."""
        await self.partition.wait_committed(self.partition.log.log_end_offset)


async def open_on(
    disk: Disk, config: TopicConfig | None = None, *, flush: str = "sync", epoch: int = 0
) -> Opened:
    """Open the partition as a broker does at its start."""
    notes: list[object] = []
    flusher = SyncFlusher(disk) if flush == "sync" else OsFlusher(disk)
    logs = LogDirectory(disk, flusher, note=notes.append)
    logs.leader_epoch = epoch
    await logs.read_checkpoints()
    partition = await logs.open_partition(TP, TOPIC_ID, config or small_segments(), at())
    return Opened(logs, partition, notes)


class State(NamedTuple):
    """All that a partition knows, apart from when it last heard of a producer (check K6)."""

    log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    producers: tuple[tuple[int, int, tuple[Appended, ...]], ...]
    batches: tuple[tuple[int, bytes], ...]
    aborted: tuple[AbortedTxn, ...]


def state_of(partition: Partition) -> State:
    """Read everything back."""
    log = partition.log
    return State(
        log.log_start_offset,
        log.log_end_offset,
        tuple(log.leader_epochs.entries),
        tuple((p, known.producer_epoch, known.batches) for p, known in partition.producers.items()),
        tuple((h.base_offset, batch) for h, batch in log.walk(log.log_start_offset, log.end())),
        tuple(log.aborted(log.log_start_offset, log.log_end_offset)),
    )


def offsets_of(partition: Partition) -> list[int]:
    """The offset of every record that a reader gets."""
    assert partition.high_watermark == partition.log.log_end_offset
    log = partition.log
    found = [
        offset
        for header, _ in log.walk(log.log_start_offset, log.end())
        for offset in range(header.base_offset, header.next_offset)
    ]
    return [offset for offset in found if offset >= log.log_start_offset]


def simulated(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in virtual time: a sync takes no time at all."""
    return run(lambda loop: main())


def steps_of(attempt: Callable[[int], Coroutine[Any, Any, bool]]) -> int:
    """Cut the power after each step in turn, until none is left (K12); how many there were."""
    for last_step in count(1):
        if not simulated(partial(attempt, last_step)):
            return last_step
    raise AssertionError("counting does not end")
