"""The broker as its APIs see it: what there is, and how to change it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, assert_never
from uuid import UUID

from oncelog.core.errors import (
    BrokerError,
    InvalidTopic,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.core.groups.commands import Command as GroupCommand
from oncelog.core.groups.commands import TopicDeleted as TopicOffsetsDeleted
from oncelog.core.groups.config import GroupConfig
from oncelog.core.metadata import records
from oncelog.core.metadata.records import Topic
from oncelog.core.metadata.shard import (
    TRANSACTION_VERSION,
    AllocateProducerIds,
    Command,
    CreateTopic,
    DeleteTopic,
    Effect,
    MetadataShard,
    Reply,
    SetFeatures,
    StartBroker,
    check_topic_name,
)
from oncelog.core.topic_config import TopicConfig
from oncelog.core.txn.commands import (
    TxnConfig,
    WriteMarkers,
)
from oncelog.core.types import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition
from oncelog.observe.metrics import Metrics
from oncelog.runtime.clock import Clock
from oncelog.runtime.config import BrokerConfig
from oncelog.runtime.dynamic_config import in_force
from oncelog.runtime.fetch_sessions import FetchSessions
from oncelog.runtime.groups import GroupCoordinator
from oncelog.runtime.host import ShardHost
from oncelog.runtime.log_directory import METADATA_ID, METADATA_PARTITION, LogDirectory
from oncelog.runtime.partition import Partition
from oncelog.runtime.producer_ids import ProducerIdSource
from oncelog.runtime.transactions import TransactionCoordinator
from oncelog.runtime.unowned import abort_unowned

#: What a new broker tells clients to use.
NEWEST_TRANSACTIONS: Final = 2
#: Topics are not forgotten because they are old, whatever the settings of topics say.
METADATA_CONFIG: Final = TopicConfig(cleanup_policy=("compact",))


class Node:
    """One broker: its metadata, its logs, its coordinators."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogDirectory,
        *,
        clock: Clock,
        fresh_id: Callable[[], UUID],
        note: Callable[[object], None],
        metrics: Metrics,
    ) -> None:
        #: What the file, the environment and the command line said.
        self.started_with = config
        #: What is in force: the above, with what clients changed laid over it.
        self.config = config
        self.logs = logs
        self.clock = clock
        self.fresh_id = fresh_id
        self.note = note
        self.metrics = metrics
        self.cluster_id = ""
        #: Where clients reach this broker; known once it listens.
        self.advertised: tuple[str, int] = ("", 0)
        self.metadata = MetadataShard(
            topic_defaults=config.topic_defaults(), max_partitions=config.oncelog_partitions_max
        )
        self.producer_ids = ProducerIdSource(self._allocate_producer_ids)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots)
        self.groups = GroupCoordinator(_group_config(config), clock, note)
        self.transactions = TransactionCoordinator(
            TxnConfig(
                transaction_max_timeout_ms=config.transaction_max_timeout_ms,
                transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            ),
            logs=logs,
            groups=self.groups,
            next_producer_id=self.producer_ids.next,
            clock=clock,
            note=note,
            metrics=metrics,
            busy_wait_ms=config.oncelog_transaction_busy_wait_ms,
        )
        self._host: ShardHost[Command, Reply, Effect] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- start ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the metadata, then open every partition that it names."""
        now = self.clock.now()
        await self.logs.read_checkpoints()
        partition = await self.logs.open_partition(
            METADATA_PARTITION, METADATA_ID, METADATA_CONFIG, now
        )
        partition.check_online()
        self._host = ShardHost(
            self.metadata, partition, clock=self.clock, act=self._act, note=self.note
        )
        self._host.replay()
        self._adopt_configs()
        epoch = await self._host.submit(StartBroker())
        assert isinstance(epoch, int), "a start is answered with its epoch"
        self.logs.leader_epoch = epoch
        if TRANSACTION_VERSION not in self.metadata.feature_levels:
            await self._host.submit(SetFeatures(levels={TRANSACTION_VERSION: NEWEST_TRANSACTIONS}))
        self._adopt_features()
        await self.logs.remove_strays(self.metadata.topics)
        for topic in self.metadata.topics.values():
            config = self.metadata.topic_config(topic)
            for index in range(topic.partition_count):
                topic_partition = TopicPartition(topic.name, index)
                await self.logs.open_partition(topic_partition, topic.topic_id, config, now)
                if index % 100 == 0:
                    await asyncio.sleep(0)
        self._open_coordinators()

    def _open_coordinators(self) -> None:
        """Groups first: a marker for their offsets needs them."""
        for partition in self._partitions_of(OFFSETS_TOPIC):
            self.groups.open(partition)
        unfinished: list[WriteMarkers] = []
        logs = self._partitions_of(TRANSACTION_TOPIC)
        for partition in logs:
            unfinished += self.transactions.open(partition, partition_count=len(logs))
        transactions = self.transactions
        abort_unowned(self.logs, transactions.all_transactions(), transactions.markers, self.note)
        self.transactions.carry_on(tuple(unfinished))

    def _partitions_of(self, name: str) -> list[Partition]:
        topic = self.metadata.topics.get(name)
        count = topic.partition_count if topic else 0
        return [self.logs.get(TopicPartition(name, index)) for index in range(count)]

    # --- metadata ---------------------------------------------------------------------------------

    async def change(self, command: Command) -> Reply:
        """Change the metadata; when this returns, the change is durable and in force."""
        assert self._host is not None, "the node is open"
        if isinstance(command, CreateTopic):
            while self._has_leftovers(command.name):
                await self._host.wait_committed()
                await self._forget_deleted()
        return await self._host.submit(command)

    async def refusal(self, error: BrokerError) -> BrokerError:
        """What to answer when a change is refused: it may have seen what is not committed yet.

        Whoever is told that a topic exists, or is gone, may count on that after a power cut.
        """
        assert self._host is not None, "the node is open"
        try:
            await self._host.wait_committed()
        except BrokerError as offline:
            return offline
        return error

    def _has_leftovers(self, name: str) -> bool:
        """Whether an earlier topic of this name is still being deleted, or may be on the disk."""
        is_served = self.logs.find(TopicPartition(name, 0)) is not None
        return self.logs.remembers_deleted or (is_served and name not in self.metadata.topics)

    async def _forget_deleted(self) -> None:
        try:
            await self.logs.forget_deleted()
        except OSError as error:
            raise KafkaStorageError(f"the checkpoints cannot be written: {error}") from error

    def _act(self, record: Effect) -> None:
        """Bring the logs in line with what the metadata says now."""
        match record:
            case records.Topic():
                self._take_over(record)
            case records.TopicDeleted():
                self.logs.remove_topic(record.name, record.topic_id)
                if self.groups.is_open:
                    task = asyncio.get_running_loop().create_task(
                        self._forget_offsets(record.name, record.topic_id)
                    )
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            case records.BrokerConfigs():
                self._adopt_configs()
                for topic in self.metadata.topics.values():
                    self._take_over(topic)
            case records.FeatureLevel():
                self._adopt_features()
            case records.ProducerIds() | records.BrokerStarted():
                pass
            case _:
                assert_never(record)

    def _adopt_configs(self) -> None:
        self.config = in_force(self.started_with, self.metadata.broker_configs, self.note)
        self.metadata.topic_defaults = self.config.topic_defaults()

    def _adopt_features(self) -> None:
        self.transactions.set_transaction_version(
            self.metadata.feature_levels.get(TRANSACTION_VERSION, 0)
        )

    @property
    def metadata_epoch(self) -> int:
        """Grows with every change of the metadata, also over restarts."""
        assert self._host is not None, "the node is open"
        return self._host.end_offset

    async def _forget_offsets(self, name: str, topic_id: UUID) -> None:
        try:
            await self.groups.submit_to_all(TopicOffsetsDeleted(topic=name, topic_id=topic_id))
        except BrokerError as error:
            # A log of groups is offline or full. What is left there names a topic id that is gone.
            self.note(error)

    def _take_over(self, topic: Topic) -> None:
        config = self.metadata.topic_config(topic)
        for index in range(topic.partition_count):
            topic_partition = TopicPartition(topic.name, index)
            partition = self.logs.find(topic_partition)
            if partition is None:
                partition = self.logs.create_partition(topic_partition, topic.topic_id, config)
            else:
                partition.config = config
            if topic.name == OFFSETS_TOPIC:
                self.groups.open(partition)
            elif topic.name == TRANSACTION_TOPIC:
                self.transactions.open(partition, partition_count=topic.partition_count)

    async def _allocate_producer_ids(self) -> int:
        first = await self.change(AllocateProducerIds())
        assert isinstance(first, int), "a block is answered with its first id"
        return first

    async def create_topic(
        self, name: str, partition_count: int, configs: Mapping[str, str] | None = None,
        *, internal: bool = False,
    ) -> Topic:  # fmt: skip
        """Make a topic, or return the one that somebody made at the same moment."""
        command = CreateTopic(
            name=name,
            partition_count=partition_count,
            fresh_id=self.fresh_id(),
            configs=configs or {},
            internal=internal,
        )
        try:
            await self.change(command)
        except TopicAlreadyExists:
            pass
        return self.metadata.topic(name)

    async def delete_topics(self, topics: Sequence[Topic]) -> list[BrokerError | None]:
        """Delete topics; for each the reason why it was not, or None."""

        async def delete(topic: Topic) -> BrokerError | None:
            try:
                await self.change(DeleteTopic(topic_id=topic.topic_id))
            except BrokerError as error:
                return error
            return None

        return await asyncio.gather(*(delete(topic) for topic in topics))

    async def ensure_topic(self, name: str) -> Topic:
        """The topic, made on first use where the settings allow that."""
        found = await self._existing(name)
        if found is not None:
            return found
        check_topic_name(name)
        if name == OFFSETS_TOPIC:
            return await self.ensure_offsets_topic()
        if name == TRANSACTION_TOPIC:
            return await self.ensure_transaction_topic()
        if name in INTERNAL_TOPICS or not self.config.auto_create_topics_enable:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return await self.create_topic(name, self.config.num_partitions)

    async def _existing(self, name: str) -> Topic | None:
        """A topic that is there; one that is being made is waited for."""
        found = self.metadata.topics.get(name)
        if found is not None and self.logs.find(TopicPartition(name, 0)) is None:
            assert self._host is not None, "the node is open"
            await self._host.wait_committed()
        return found

    async def ensure_offsets_topic(self) -> Topic:
        """The topic of group offsets: made when the first group looks for its coordinator."""
        found = await self._existing(OFFSETS_TOPIC)
        if found is not None:
            return found
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.config.offsets_topic_segment_bytes),
        }
        count = self.config.offsets_topic_num_partitions
        return await self.create_topic(OFFSETS_TOPIC, count, configs, internal=True)

    async def ensure_transaction_topic(self) -> Topic:
        """The transaction log: made when the first producer looks for its coordinator."""
        found = await self._existing(TRANSACTION_TOPIC)
        if found is not None:
            return found
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(self.config.transaction_state_log_segment_bytes),
        }
        count = self.config.transaction_state_log_num_partitions
        return await self.create_topic(TRANSACTION_TOPIC, count, configs, internal=True)

    @property
    def offsets_partition_count(self) -> int:
        """How many partitions the groups are spread over; 0 where there is no group yet."""
        topic = self.metadata.topics.get(OFFSETS_TOPIC)
        return topic.partition_count if topic else 0

    # --- groups -----------------------------------------------------------------------------------

    async def ask_group(self, group_id: str, command: GroupCommand) -> Any:
        """Ask the shard of a group; `core/groups/commands.py` says what each command answers."""
        count = self.offsets_partition_count
        return await self.groups.submit(group_id, command, partition_count=count)

    async def ask_group_and_wait(
        self, group_id: str, command: Callable[[int], GroupCommand], *, wait_ms: int
    ) -> Any:
        """As `ask_group`, for a command that may be parked: it is made with a ticket."""
        count = self.offsets_partition_count
        return await self.groups.submit_parked(
            group_id, command, partition_count=count, wait_ms=wait_ms
        )

    # --- partitions -------------------------------------------------------------------------------

    def topic_name(self, name: str, topic_id: UUID) -> str:
        """The name of a topic that a request names by name or by id."""
        if topic_id.int:
            return self.metadata.topic_by_id(topic_id).name
        return name

    def partition(self, name: str, index: int) -> Partition:
        """A partition by name."""
        return self.logs.get(TopicPartition(name, index))

    def partition_by_id(self, topic_id: UUID, index: int) -> Partition:
        """A partition by its topic's id."""
        topic = self.metadata.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with the id {topic_id}")
        return self.logs.get(TopicPartition(topic.name, index))

    def writable_partition(self, name: str, index: int) -> Partition:
        """A partition that clients may write to."""
        if name in INTERNAL_TOPICS:
            raise InvalidTopic(f"{name} is written by the broker alone")
        return self.partition(name, index)

    async def rewrite_shards(self) -> None:
        """Keep the logs of the shards small: let each begin with its present state."""
        hosts: list[ShardHost[Any, Any, Any]] = [
            *self.groups.hosts(), *self.transactions.hosts()
        ]  # fmt: skip
        if self._host is not None:
            hosts.append(self._host)
        for host in hosts:
            rewritten = await host.rewrite(self.config.oncelog_shard_rewrite_bytes)
            if rewritten is not None:
                await self.logs.move_starts(dict([rewritten]))

    async def close(self) -> None:
        """Stop in order."""
        await self.transactions.close()
        self.groups.close()
        if self._host is not None:
            self._host.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.logs.close()


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_minutes=config.offsets_retention_minutes,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
