"""The transaction coordinator at work: one shard for each partition of `__transaction_state`.

The shard decides; here its effects happen: `markers` writes to every partition that took part, and
when its last marker is committed the transaction is completed here. A request that meets a transaction
whose markers are under way waits for them, for a bounded time, instead of being sent away: clients
would sleep for longer than the markers take.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from oncelog.core.errors import (
    BrokerError,
    ConcurrentTransactions,
    ConnectionSuperseded,
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from oncelog.core.txn.commands import (
    AddPartitions,
    Busy,
    Command,
    Completed,
    Effect,
    EndTxn,
    ExpireIds,
    Identity,
    InitProducerId,
    Marked,
    Overdue,
    ProducerIdNeeded,
    Reply,
    TimeOut,
    TxnConfig,
    WriteMarkers,
)
from oncelog.core.txn.machine import PREPARED
from oncelog.core.txn.records import Txn
from oncelog.core.txn.shard import V2, TxnShard
from oncelog.core.types import TRANSACTION_TOPIC, TopicPartition, partition_for
from oncelog.observe.metrics import Metrics
from oncelog.runtime.clock import Clock
from oncelog.runtime.groups import GroupCoordinator
from oncelog.runtime.host import ShardHost
from oncelog.runtime.log_directory import LogDirectory
from oncelog.runtime.markers import RETRY_S, MarkerWriter
from oncelog.runtime.partition import Partition, Pending
from oncelog.runtime.tasks import Tasks

T = TypeVar("T")
TxnHost = ShardHost[Command, Reply, Effect]

#: How much of a client's name is kept for each id: it may be 32 KiB long.
CLIENT_ID_KEPT: Final = 200
#: How long an overdue transaction that could not be aborted waits for another try.
TIMEOUT_RETRY_S: Final = 1.0


class Heard(NamedTuple):
    """Who spoke to the coordinator last under a transactional id. Not stored."""

    client_id: str
    client_host: str
    at_ms: int


class TransactionCoordinator:
    """All transactional ids of this broker."""

    def __init__(
        self,
        config: TxnConfig,
        *,
        logs: LogDirectory,
        groups: GroupCoordinator,
        next_producer_id: Callable[[], Awaitable[int]],
        clock: Clock,
        note: Callable[[object], None],
        metrics: Metrics,
        busy_wait_ms: int,
    ) -> None:
        self._config = config
        self._logs = logs
        self._next_producer_id = next_producer_id
        self._clock = clock
        self._note = note
        self._metrics = metrics
        self._busy_wait_ms = busy_wait_ms
        self._transaction_version = V2
        #: How many partitions the ids are spread over; 0 where there is none yet.
        self.partition_count = 0
        self._shards: dict[int, TxnShard] = {}
        self._hosts: dict[int, TxnHost] = {}
        self._epochs: dict[int, int] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        #: Partitions whose addition is not committed yet, by transactional id.
        self._unanswered: dict[str, list[TopicPartition]] = {}
        self._speakers: dict[str, tuple[int, int, int]] = {}
        self._heard: dict[str, Heard] = {}
        self._tasks = Tasks()
        #: The second phase of every transaction that is decided.
        self.markers = MarkerWriter(
            logs=logs,
            groups=groups,
            clock=clock,
            note=note,
            metrics=metrics,
            tasks=self._tasks,
            coordinator_epoch=self._coordinator_epoch,
            complete=self._complete,
        )

    # --- opening ------------------------------------------------------------------------------------

    def open(self, partition: Partition, *, partition_count: int) -> tuple[WriteMarkers, ...]:
        """Take over a partition of the log; returns what was decided and is not carried out yet."""
        self.partition_count = partition_count
        index = partition.topic_partition.partition
        if index in self._hosts or partition.offline is not None:
            return ()
        shard = TxnShard(self._config, transaction_version=self._transaction_version)
        host: TxnHost = ShardHost(
            shard, partition, clock=self._clock, act=self._act, note=self._note
        )
        host.replay()
        unfinished = shard.loaded(self._clock.now())
        host.start_timer()
        self._shards[index] = shard
        self._hosts[index] = host
        self._epochs[index] = partition.leader_epoch
        return unfinished

    def carry_on(self, unfinished: tuple[WriteMarkers, ...]) -> None:
        """Write the markers that were under way when the broker went down."""
        for effect in unfinished:
            self._act(effect)

    def set_transaction_version(self, level: int) -> None:
        """The cluster's feature level: it decides about aborts that no client asks for."""
        self._transaction_version = level
        for shard in self._shards.values():
            shard.transaction_version = level

    def hosts(self) -> list[TxnHost]:
        """The shards at work, in order."""
        return [host for _, host in sorted(self._hosts.items())]

    def all_transactions(self) -> list[Txn]:
        """Every transactional id, in order."""
        return [txn for _, shard in sorted(self._shards.items()) for txn in shard]

    def find(self, transactional_id: str) -> Txn | None:
        """The state of one id."""
        index, _ = self._host(transactional_id)
        return self._shards[index].get(transactional_id)

    def unmarked(self, txn: Txn) -> tuple[TopicPartition, ...]:
        """The partitions of a transaction, or those that still lack their marker."""
        if txn.state not in PREPARED:
            return txn.topic_partitions()
        return self.markers.missing(txn.transactional_id)

    def open_since_ms(self) -> list[int]:
        """When each open transaction began."""
        return [at_ms for shard in self._shards.values() for at_ms in shard.open_since_ms()]

    def hear(self, transactional_id: str, client_id: str, client_host: str) -> None:
        """Remember who spoke for an id that exists, for those who wonder whose it is."""
        at_ms = self._clock.now().wall_ms
        self._heard[transactional_id] = Heard(client_id[:CLIENT_ID_KEPT], client_host, at_ms)

    def last_heard(self, transactional_id: str) -> Heard | None:
        """Who spoke last under an id, since this broker started."""
        return self._heard.get(transactional_id)

    def _host(self, transactional_id: str) -> tuple[int, TxnHost]:
        if self.partition_count == 0:
            raise CoordinatorNotAvailable(f"{TRANSACTION_TOPIC} does not exist yet")
        index = partition_for(transactional_id, self.partition_count)
        host = self._hosts.get(index)
        if host is None:
            raise NotCoordinator(f"{transactional_id!r} is not coordinated here")
        return index, host

    def _coordinator_epoch(self, transactional_id: str) -> int:
        """The leader epoch of the log partition that owns the id: what a marker is dated by."""
        index, _ = self._host(transactional_id)
        return self._epochs[index]

    # --- requests -----------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, supplied: tuple[int, int] | None
    ) -> Identity:
        """An identity for a producer; whatever was open under its id has ended before."""

        def command(fresh: int | None) -> Command:
            return InitProducerId(
                transactional_id=transactional_id,
                timeout_ms=timeout_ms,
                supplied=supplied,
                fresh_producer_id=fresh,
            )

        reply = await self._ask(transactional_id, command)
        assert isinstance(reply, Identity), f"InitProducerId was answered with {reply!r}"
        return reply

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: tuple[TopicPartition, ...],
        *,
        client_version: int = 0,
    ) -> None:
        """Partitions take part in the transaction from now on."""
        command = self._adding(
            transactional_id, producer_id, producer_epoch, partitions, client_version
        )
        unanswered = self._unanswered.setdefault(transactional_id, [])
        unanswered += partitions
        try:
            await self._ask(transactional_id, lambda fresh: command)
        finally:
            for partition in partitions:
                unanswered.remove(partition)
            if not unanswered:
                self._unanswered.pop(transactional_id, None)

    def _adding(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: tuple[TopicPartition, ...],
        client_version: int,
    ) -> AddPartitions:
        return AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=tuple((tp, self._topic_id(tp)) for tp in partitions),
            client_version=client_version,
        )

    def _topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        partition = self._logs.find(topic_partition)
        return partition.topic_id if partition else None

    def join_now(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        is_v2: bool,
    ) -> asyncio.Future[None] | None:
        """Make sure that a partition is part of the transaction, without a moment's pause.

        A V2 client's partition is added, any other's must have been (KIP-890). Between this and the
        append nothing can happen, so no guard is needed. The future says when an addition is
        committed: the reply to the append waits for it too.
        """
        _, host = self._host(transactional_id)
        if not is_v2:
            self.verify(transactional_id, producer_id, producer_epoch, partition)
            if partition in self._unanswered.get(transactional_id, ()):
                # Its epoch does not tell a V1 transaction from the one before: should a power cut
                # keep the batch and lose the addition, it would be taken for part of that one.
                raise ConcurrentTransactions(f"{partition} is still being added")
            return None
        command = self._adding(
            transactional_id, producer_id, producer_epoch, (partition,), client_version=V2
        )
        try:
            return host.submit_now(command)[1]
        except KafkaStorageError as error:
            raise NotCoordinator(str(error)) from error

    def pending(self, transactional_id: str) -> Pending:
        """What has to be committed for everything that the id's transactions were told to count."""
        return self._host(transactional_id)[1].pending()

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int,
        partition: TopicPartition,
    ) -> None:  # fmt: skip
        """Refuse unless the partition is part of the open transaction."""
        index, _ = self._host(transactional_id)
        self._shards[index].verify(transactional_id, producer_id, producer_epoch, partition)

    def is_busy(self, transactional_id: str) -> bool:
        """Whether markers of this id are under way, and somebody would wait for them."""
        if self._busy_wait_ms == 0:
            return False
        try:
            txn = self.find(transactional_id)
        except (CoordinatorNotAvailable, NotCoordinator):
            return False  # Whoever asks this coordinator next is told so.
        return txn is not None and txn.state in PREPARED

    async def wait_until_idle(self, transactional_id: str) -> None:
        """Wait for markers that are under way, as long as patience lasts."""
        await self.wait_completed(transactional_id, self._busy_wait_ms / 1000)

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        is_v2: bool,
    ) -> None:
        """As `join_now`, waiting for markers that are under way and for the commit."""

        async def attempt() -> None:
            future = self.join_now(
                transactional_id, producer_id, producer_epoch, partition, is_v2=is_v2
            )
            if future is not None:
                await future

        await self._patiently(transactional_id, attempt)

    async def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        client_version: int,
    ) -> Identity:
        """Decide the transaction: when this returns, the outcome is durable."""
        asked_at = self._clock.precise_s()
        if committed:
            await self._sync_participants(transactional_id)

        def command(fresh: int | None) -> Command:
            return EndTxn(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=committed,
                client_version=client_version,
                fresh_producer_id=fresh,
            )

        reply = await self._ask(transactional_id, command)
        assert isinstance(reply, Identity), f"EndTxn was answered with {reply!r}"
        if committed:
            took_s = self._clock.precise_s() - asked_at
            self._metrics.commit_seconds.observe(took_s)
        return reply

    async def _sync_participants(self, transactional_id: str) -> None:
        """What was written with acks 0 or 1 must be as durable as the decision to commit it."""
        txn = self.find(transactional_id)
        for topic_partition in txn.topic_partitions() if txn else ():
            partition = self._logs.find(topic_partition)
            if partition is None:
                continue
            try:
                await partition.wait_committed(partition.log.log_end_offset)
            except UnknownTopicOrPartition:
                continue  # Deleted meanwhile: there is nothing left to commit in it.
            except KafkaStorageError as error:
                # Whether it can be committed is not known before a restart: ask again until then.
                raise CoordinatorNotAvailable(str(error)) from error

    async def expire_ids(self) -> None:
        """Forget ids that have been idle for too long, a batch at a time."""
        for _, host in sorted(self._hosts.items()):
            while await host.submit(ExpireIds()):
                pass
        for volatile in (self._speakers, self._heard):
            for name in list(volatile):
                if self.find(name) is None:
                    del volatile[name]

    def check_speaker(
        self, transactional_id: str, producer_id: int, producer_epoch: int, connection: int
    ) -> None:
        """Refuse a request from a connection that its producer has left behind (KAFKA-17754).

        Before V2 a request does not say which transaction it is for. But a producer asks its
        coordinator over one connection, and opens another only when it has given the first one up:
        what still arrives on that one was meant for an earlier moment.
        """
        txn = self.find(transactional_id)
        if txn is None or (txn.producer_id, txn.producer_epoch) != (producer_id, producer_epoch):
            return  # It is refused for that, and must not make room for others who are late.
        known = self._speakers.get(transactional_id)
        if known is not None and known[:2] == (producer_id, producer_epoch):
            if connection < known[2]:
                raise ConnectionSuperseded(f"{transactional_id!r} speaks on a newer connection")
        self._speakers[transactional_id] = (producer_id, producer_epoch, connection)

    # --- patience -----------------------------------------------------------------------------------

    async def _ask(self, transactional_id: str, command: Callable[[int | None], Command]) -> Reply:
        _, host = self._host(transactional_id)
        fresh: int | None = None

        async def attempt() -> Reply:
            nonlocal fresh
            while True:
                try:
                    given, fresh = fresh, None  # An id that a decision may have used is not reused.
                    return await host.submit(command(given))
                except ProducerIdNeeded:
                    fresh = await self._next_producer_id()
                except KafkaStorageError as error:
                    raise NotCoordinator(str(error)) from error

        return await self._patiently(transactional_id, attempt)

    async def _patiently(self, transactional_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the transaction is no longer being completed, or the patience is used up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._busy_wait_ms / 1000
        while True:
            try:
                reply = await attempt()
                if not isinstance(reply, Busy):
                    return reply
                busy = ConcurrentTransactions(f"{transactional_id!r} is being aborted")
            except ConcurrentTransactions as error:
                busy = error
            left_s = deadline - loop.time()
            if left_s <= 0 or not await self.wait_completed(transactional_id, left_s):
                raise busy

    async def wait_completed(self, transactional_id: str, within_s: float) -> bool:
        """Wait until no markers are under way; False where they take longer."""
        txn = self.find(transactional_id)
        if txn is None or txn.state not in PREPARED:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(transactional_id, []).append(future)
        done, _ = await asyncio.wait([future], timeout=within_s)
        return bool(done)

    # --- effects ------------------------------------------------------------------------------------

    def _act(self, effect: Effect) -> None:
        match effect:
            case WriteMarkers():
                self.markers.write(effect)
            case Completed():
                self._wake(effect.transactional_id)
            case Overdue():
                self._tasks.start(self._time_out(effect))

    def _wake(self, transactional_id: str) -> None:
        """Let those go on who waited for the markers."""
        for future in self._waiting.pop(transactional_id, ()):
            if not future.done():
                future.set_result(None)

    async def _time_out(self, overdue: Overdue) -> None:
        def command(fresh: int | None) -> Command:
            return TimeOut(
                transactional_id=overdue.transactional_id,
                started_at_ms=overdue.started_at_ms,
                fresh_producer_id=fresh,
            )

        while True:
            try:
                await self._ask(overdue.transactional_id, command)
            except BrokerError as error:
                self._note(error)
                await asyncio.sleep(TIMEOUT_RETRY_S)
            else:
                return

    def _complete(self, txn: Txn) -> None:
        """Every marker is committed: record that the transaction has ended."""
        command = Marked(
            transactional_id=txn.transactional_id,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            started_at_ms=txn.started_at_ms,
        )
        try:
            self._host(txn.transactional_id)[1].submit_now(command)
        except BrokerError as error:
            self._note(error)
            self._tasks.start(self._complete_later(txn))
            return
        # Before that is committed: whatever comes next is written behind it and waits for both.
        self._wake(txn.transactional_id)

    async def _complete_later(self, txn: Txn) -> None:
        await asyncio.sleep(RETRY_S)
        self._complete(txn)

    async def close(self) -> None:
        """Stop the timers and send everybody who waits away."""
        for host in self._hosts.values():
            host.close()
        await self._tasks.close()
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.cancel()
        self._waiting = {}
