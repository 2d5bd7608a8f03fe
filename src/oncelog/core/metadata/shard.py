"""The metadata shard: decides what topics, settings and producer ids there are."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never
from uuid import UUID

from oncelog.core.decision import Decision
from oncelog.core.errors import (
    InvalidPartitions,
    InvalidTopic,
    InvalidUpdateVersion,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.core.markers import Marker
from oncelog.core.metadata import records
from oncelog.core.metadata.records import (
    BrokerConfigs,
    BrokerStarted,
    FeatureLevel,
    ProducerIds,
    Record,
    Topic,
    TopicDeleted,
)
from oncelog.core.records import KeyValue
from oncelog.core.topic_config import TopicConfig
from oncelog.core.types import INTERNAL_TOPICS, METADATA_TOPIC, Now

#: Ids are handed out in blocks: one record for so many producers.
PRODUCER_ID_BLOCK: Final = 1000
MAX_TOPIC_NAME: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

#: Which transaction protocol clients are told to use (KIP-890).
TRANSACTION_VERSION: Final = "transaction.version"

#: The features that we know and the levels that they may have.
FEATURES: Final[Mapping[str, tuple[int, int]]] = {TRANSACTION_VERSION: (0, 2)}


# --- commands -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Make a topic; `fresh_id` becomes its id."""

    name: str
    partition_count: int
    fresh_id: UUID
    configs: Mapping[str, str] = field(default_factory=dict)
    #: Only the broker itself makes internal topics.
    internal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Remove a topic and its records; a new topic of the same name is another one."""

    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Let a topic grow to so many partitions."""

    name: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTopicConfigs:
    """Replace the settings of a topic."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBrokerConfigs:
    """Replace the settings that were changed while brokers ran: of one broker, or of all."""

    node_id: int | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """Reserve a block of producer ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBroker:
    """Begin a new leader epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFeatures:
    """Set features to levels, all or none."""

    levels: Mapping[str, int]


Command: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | AddPartitions
    | SetTopicConfigs
    | SetBrokerConfigs
    | AllocateProducerIds
    | StartBroker
    | SetFeatures
)
Reply: TypeAlias = Topic | int | None
#: After the commit the broker opens, closes and re-configures partitions as the records say.
Effect: TypeAlias = Record


def check_topic_name(name: str) -> None:
    """Refuse a name that could not be a directory of its own."""
    if not name:
        raise InvalidTopic("a topic's name may not be empty")
    if name in (".", ".."):
        raise InvalidTopic("a topic's name may not be '.' or '..'")
    if len(name) > MAX_TOPIC_NAME:
        raise InvalidTopic(f"a topic's name may have {MAX_TOPIC_NAME} characters, not {len(name)}")
    if name == METADATA_TOPIC:
        raise InvalidTopic(f"{name} is the broker's own log")
    if _NAME.fullmatch(name) is None:
        raise InvalidTopic(
            f"the topic's name {name!r} may hold only letters, digits, '.', '_' and '-'"
        )


def _dotless(name: str) -> str:
    return name.replace(".", "_")


class MetadataShard:
    """All topics and settings of a broker."""

    def __init__(self, *, topic_defaults: TopicConfig, max_partitions: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        #: What was changed while brokers ran, by broker; under None what holds for all of them.
        self.broker_configs: dict[int | None, Mapping[str, str]] = {}
        self.feature_levels: dict[str, int] = {}
        self.next_producer_id = 0
        self.leader_epoch = -1
        #: What a topic has that says nothing itself; it follows the broker's own settings.
        self.topic_defaults = topic_defaults
        self._max_partitions = max_partitions
        self._dotless: dict[str, str] = {}
        self._partition_count = 0

    # --- looking ----------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """A topic by its name."""
        found = self.topics.get(name)
        if found is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return found

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """A topic by its id."""
        found = self.topics_by_id.get(topic_id)
        if found is None:
            raise UnknownTopicId(f"there is no topic with the id {topic_id}")
        return found

    def topic_config(self, topic: Topic) -> TopicConfig:
        """The settings in force for a topic."""
        return TopicConfig.from_overrides(self.topic_defaults, topic.configs)

    # --- deciding ---------------------------------------------------------------------------------

    def decide(self, command: Command, now: Now) -> Decision[Reply, Record, Effect]:
        """Say what a command leads to; nothing has changed yet."""
        match command:
            case CreateTopic():
                topic = self.plan_topic(command)
                return _said(topic, topic)
            case DeleteTopic():
                found = self.topic_by_id(command.topic_id)
                return _said(None, TopicDeleted(name=found.name, topic_id=found.topic_id))
            case AddPartitions():
                topic = self.plan_partitions(command)
                return _said(topic, topic)
            case SetTopicConfigs():
                topic = self.plan_configs(command)
                return _said(topic, topic)
            case SetBrokerConfigs():
                configs = dict(command.configs)
                return _said(None, BrokerConfigs(node_id=command.node_id, configs=configs))
            case AllocateProducerIds():
                first = self.next_producer_id
                return _said(first, ProducerIds(next_id=first + PRODUCER_ID_BLOCK))
            case StartBroker():
                epoch = self.leader_epoch + 1
                return _said(epoch, BrokerStarted(leader_epoch=epoch))
            case SetFeatures():
                levels = tuple(self.plan_features(command))
                return Decision(reply=None, records=levels, effects=levels)
            case _:
                assert_never(command)

    def plan_topic(self, command: CreateTopic) -> Topic:
        """The topic as it would be: also the answer to a `validate_only` request."""
        self.check_new_name(command.name)
        if command.name in INTERNAL_TOPICS and not command.internal:
            raise InvalidTopic(f"{command.name} is made by the broker itself")
        TopicConfig.from_overrides(self.topic_defaults, command.configs)
        self._check_count(command.partition_count, already=0)
        return Topic(
            name=command.name,
            topic_id=command.fresh_id,
            partition_count=command.partition_count,
            configs=dict(command.configs),
        )

    def check_new_name(self, name: str) -> None:
        """Refuse a name that no topic may have, or that is taken."""
        check_topic_name(name)
        if name in self.topics:
            raise TopicAlreadyExists(f"the topic {name!r} exists")
        # Kafka names its metrics so, and two such topics could not be told apart there.
        other = self._dotless.get(_dotless(name))
        if other is not None:
            raise InvalidTopic(f"{name!r} and {other!r} differ only in '.' and '_'")

    def plan_partitions(self, command: AddPartitions) -> Topic:
        """The topic with its new partitions."""
        topic = self.topic(command.name)
        if command.name in INTERNAL_TOPICS:
            raise InvalidTopic(f"the partition count of {command.name} is fixed")
        if command.partition_count <= topic.partition_count:
            raise InvalidPartitions(
                f"{command.name} has {topic.partition_count} partitions and can only get more"
            )
        self._check_count(command.partition_count, already=topic.partition_count)
        return Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=command.partition_count,
            configs=topic.configs,
        )

    def plan_configs(self, command: SetTopicConfigs) -> Topic:
        """The topic with its new settings."""
        topic = self.topic(command.name)
        TopicConfig.from_overrides(self.topic_defaults, command.configs)
        return Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=topic.partition_count,
            configs=dict(command.configs),
        )

    def _check_count(self, count: int, *, already: int) -> None:
        if count < 1:
            raise InvalidPartitions(f"a topic needs at least one partition, not {count}")
        if self._partition_count + count - already > self._max_partitions:
            raise PolicyViolation(
                f"this broker has {self._partition_count} partitions and takes "
                f"{self._max_partitions} (oncelog.partitions.max)"
            )

    def plan_features(self, command: SetFeatures) -> list[FeatureLevel]:
        """The levels as they would be, of those that change."""
        for name, level in command.levels.items():
            if name not in FEATURES:
                raise InvalidUpdateVersion(f"the feature {name!r} is not known here")
            lowest, highest = FEATURES[name]
            if not lowest <= level <= highest:
                raise InvalidUpdateVersion(
                    f"{name} may have levels {lowest} to {highest}, not {level}"
                )
        return [
            FeatureLevel(name=name, level=level)
            for name, level in sorted(command.levels.items())
            if level != self.feature_levels.get(name, 0)
        ]

    def next_deadline_ms(self) -> int | None:
        """Nothing here happens by itself."""
        return None

    def on_deadline(self, now: Now) -> Decision[Reply, Record, Effect]:
        """Nothing here happens by itself."""
        return Decision(reply=None)

    # --- applying ---------------------------------------------------------------------------------

    def apply(self, record: Record, *, offset: int | None = None) -> None:
        """Take over what is in the log: the one place where the shard changes."""
        match record:
            case Topic():
                self._forget(record.name)
                self.topics[record.name] = record
                self.topics_by_id[record.topic_id] = record
                self._dotless[_dotless(record.name)] = record.name
                self._partition_count += record.partition_count
            case TopicDeleted():
                self._forget(record.name)
            case BrokerConfigs():
                self.broker_configs[record.node_id] = record.configs
            case ProducerIds():
                self.next_producer_id = record.next_id
            case BrokerStarted():
                self.leader_epoch = record.leader_epoch
            case FeatureLevel():
                self.feature_levels[record.name] = record.level
            case _:
                assert_never(record)

    def _forget(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            del self.topics_by_id[topic.topic_id]
            self._dotless.pop(_dotless(name), None)
            self._partition_count -= topic.partition_count

    # --- storing ----------------------------------------------------------------------------------

    def encode(self, record: Record) -> KeyValue:
        """A record as the log holds it."""
        return records.encode(record)

    def live_records(self) -> Iterator[Record]:
        """The records that would give the present state, if the log held nothing else."""
        yield from (topic for _, topic in sorted(self.topics.items()))
        for node_id, configs in self.broker_configs.items():
            yield BrokerConfigs(node_id=node_id, configs=configs)
        yield ProducerIds(next_id=self.next_producer_id)
        yield BrokerStarted(leader_epoch=self.leader_epoch)
        for name, level in sorted(self.feature_levels.items()):
            yield FeatureLevel(name=name, level=level)

    def moved(self, record: Record, offset: int) -> None:
        """Where a record stands means nothing here."""

    def decode_pending(
        self, key: bytes, value: bytes | None, timestamp_ms: int, producer_id: int
    ) -> Record | None:
        """This log has no transactions of its own."""
        return None

    def decode_marker(self, marker: Marker) -> Record | None:
        """This log has no transactions of its own."""
        return None

    def decode(self, key: bytes, value: bytes | None, timestamp_ms: int) -> Record | None:
        """A record from the log."""
        return None if value is None else records.decode(key, value)


def _said(reply: Reply, record: Record) -> Decision[Reply, Record, Effect]:
    return Decision(reply=reply, records=(record,), effects=(record,))
