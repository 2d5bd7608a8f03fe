"""The second phase of a transaction: a marker for every partition that took part.

A decided transaction will get its markers, whatever happens: where one cannot be written it is tried
again until it can, and after a restart the coordinator asks for all of them once more. When the last
one is committed the coordinator is told.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias
from uuid import UUID

from oncelog.core.errors import (
    InvalidProducerEpoch,
    KafkaStorageError,
    NotCoordinator,
    TransactionCoordinatorFenced,
)
from oncelog.core.markers import Marker
from oncelog.core.txn.commands import WriteMarkers
from oncelog.core.txn.records import Partitions, Txn
from oncelog.core.types import OFFSETS_TOPIC, TopicPartition
from oncelog.observe import notes
from oncelog.observe.metrics import Metrics
from oncelog.runtime.clock import Clock
from oncelog.runtime.groups import GroupCoordinator
from oncelog.runtime.log_directory import LogDirectory
from oncelog.runtime.partition import Partition
from oncelog.runtime.tasks import Tasks

#: How long a marker that could not be written waits for another try: the disk may be full.
RETRY_S: Final = 0.2
RETRY_MAX_S: Final = 2.0

#: Markers that are written and not committed yet, with their partitions.
Commits: TypeAlias = dict[asyncio.Future[None], tuple[TopicPartition, UUID | None]]


class MarkerWriter:
    """Writes the markers of decided transactions, and knows which are still missing."""

    def __init__(
        self,
        *,
        logs: LogDirectory,
        groups: GroupCoordinator,
        clock: Clock,
        note: Callable[[object], None],
        metrics: Metrics,
        tasks: Tasks,
        coordinator_epoch: Callable[[str], int],
        complete: Callable[[Txn], None],
    ) -> None:
        self._logs = logs
        self._groups = groups
        self._clock = clock
        self._note = note
        self._metrics = metrics
        self._tasks = tasks
        self._coordinator_epoch = coordinator_epoch
        self._complete = complete
        #: Partitions whose markers are not committed yet, by transactional id.
        self._missing: dict[str, set[TopicPartition]] = {}
        #: When the outcome was decided, in precise seconds, of those.
        self._decided_at: dict[str, float] = {}

    def missing(self, transactional_id: str) -> tuple[TopicPartition, ...]:
        """The partitions that still lack the marker of a decided transaction."""
        return tuple(sorted(self._missing.get(transactional_id, ())))

    @property
    def ending_count(self) -> int:
        """How many transactions are decided and not complete yet."""
        return len(self._missing)

    @property
    def missing_count(self) -> int:
        """How many partitions still lack the marker of a decided transaction."""
        return sum(map(len, self._missing.values()))

    def write(self, effect: WriteMarkers) -> None:
        """Begin the second phase, but not before the reply to the first has left."""
        txn = effect.txn
        self._missing[txn.transactional_id] = set(txn.topic_partitions())
        self._decided_at[txn.transactional_id] = self._clock.precise_s()
        if effect.committed:
            self._metrics.transactions_committed += 1
        else:
            self._metrics.transactions_aborted += 1
        self._tasks.start(self._write_all(effect))

    async def _write_all(self, effect: WriteMarkers) -> None:
        """Where nothing has to be waited for, the transaction is completed at once."""
        commits: Commits = {}
        failed = self._try(effect, effect.txn.partitions, commits)
        if failed or commits:
            await self._until_committed(effect, failed, commits)
        self._finish(effect.txn)

    def _try(self, effect: WriteMarkers, partitions: Partitions, commits: Commits) -> Partitions:
        """Write markers to partitions; returns those where it has to be tried again."""
        failed = []
        for topic_partition, topic_id in partitions:
            try:
                future = self._write_one(effect, topic_partition, topic_id)
            except (KafkaStorageError, NotCoordinator):
                failed.append((topic_partition, topic_id))
                continue
            if future is None:
                self._mark_done(effect.txn, topic_partition)
            else:
                commits[future] = (topic_partition, topic_id)
                future.add_done_callback(self._marking_done(effect.txn, topic_partition))
        return tuple(failed)

    def _marking_done(
        self, txn: Txn, topic_partition: TopicPartition
    ) -> Callable[[asyncio.Future[None]], None]:
        def done(committed: asyncio.Future[None]) -> None:
            if not committed.cancelled() and committed.exception() is None:
                self._mark_done(txn, topic_partition)

        return done

    def _mark_done(self, txn: Txn, topic_partition: TopicPartition) -> None:
        self._missing.get(txn.transactional_id, set()).discard(topic_partition)

    def _write_one(
        self, effect: WriteMarkers, topic_partition: TopicPartition, topic_id: UUID | None
    ) -> asyncio.Future[None] | None:
        partition = self._logs.find(topic_partition)
        if partition is None or (topic_id is not None and partition.topic_id != topic_id):
            return None  # The topic is gone, or another one has its name: nothing to decide there.
        txn = effect.txn
        marker = Marker(
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            committed=effect.committed,
            coordinator_epoch=self._coordinator_epoch(txn.transactional_id),
        )
        try:
            return self.mark(partition, marker, transaction_version=txn.client_version)
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            # Somebody with a higher epoch has ended it there already.
            self._note(notes.MarkerRefused(partition=str(topic_partition), reason=str(error)))
            return None

    def mark(
        self, partition: Partition, marker: Marker, *, transaction_version: int
    ) -> asyncio.Future[None] | None:
        """Write one marker; for group offsets it also decides what is pending."""
        if partition.topic_partition.topic == OFFSETS_TOPIC:
            index = partition.topic_partition.partition
            end_offset = self._groups.write_marker(
                index, marker, transaction_version=transaction_version
            )
        else:
            now = self._clock.now()
            result = partition.append_marker(marker, now, transaction_version)
            end_offset = result.last_offset + 1
        return partition.committed(end_offset)

    async def _until_committed(
        self, effect: WriteMarkers, failed: Partitions, commits: Commits
    ) -> None:
        """Wait for the markers, and try again where one could not be written."""
        retry_s = RETRY_S
        while True:
            if commits:
                await asyncio.wait(commits)
            # A log went offline, and a restart writes its marker; or its topic was deleted, which
            # the next try finds out. Nobody else is held up by either.
            failed += tuple(place for done, place in commits.items() if done.exception())
            if not failed:
                return
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_MAX_S)
            commits = {}
            failed = self._try(effect, failed, commits)

    def _finish(self, txn: Txn) -> None:
        self._missing.pop(txn.transactional_id, None)
        decided_at = self._decided_at.pop(txn.transactional_id, None)
        if decided_at is not None:
            took_s = self._clock.precise_s() - decided_at
            self._metrics.completion_seconds.observe(took_s)
        self._complete(txn)
