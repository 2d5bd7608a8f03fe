"""The metadata shard: decides what topics, settings and producer ids there are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never
from uuid import UUID

from oncelog.core.decision import Decision
from oncelog.core.errors import (
    FeatureUpdateFailed,
    InvalidPartitions,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
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
from oncelog.core.types import INTERNAL_TOPICS, Now

#: Ids are handed out in blocks: one record for so many producers.
PRODUCER_ID_BLOCK: Final = 1000
MAX_TOPIC_NAME: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

#: The features that we know and the levels that they may have.
FEATURES: Final[Mapping[str, tuple[int, int]]] = {}


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
    """Replace the settings of the broker that may change while it runs."""

    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """Reserve a block of producer ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBroker:
    """Begin a new leader epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFeature:
    """Set a feature to a level."""

    name: str
    level: int


Command: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | AddPartitions
    | SetTopicConfigs
    | SetBrokerConfigs
    | AllocateProducerIds
    | StartBroker
    | SetFeature
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
    if _NAME.fullmatch(name) is None:
        raise InvalidTopic(
            f"the topic's name {name!r} may hold only letters, digits, '.', '_' and '-'"
        )


class MetadataShard:
    """All topics and settings of a broker."""

    def __init__(self, *, topic_defaults: TopicConfig, max_partitions: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.broker_configs: Mapping[str, str] = {}
        self.feature_levels: dict[str, int] = {}
        self.next_producer_id = 0
        self.leader_epoch = -1
        self._topic_defaults = topic_defaults
        self._max_partitions = max_partitions
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
        return TopicConfig.from_overrides(self._topic_defaults, topic.configs)

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
                return _said(None, BrokerConfigs(configs=command.configs))
            case AllocateProducerIds():
                first = self.next_producer_id
                return _said(first, ProducerIds(next_id=first + PRODUCER_ID_BLOCK))
            case StartBroker():
                epoch = self.leader_epoch + 1
                return _said(epoch, BrokerStarted(leader_epoch=epoch))
            case SetFeature():
                self._check_feature(command)
                return _said(None, FeatureLevel(name=command.name, level=command.level))
            case _:
                assert_never(command)

    def plan_topic(self, command: CreateTopic) -> Topic:
        """The topic as it would be: also the answer to a `validate_only` request."""
        check_topic_name(command.name)
        if command.name in INTERNAL_TOPICS and not command.internal:
            raise InvalidTopic(f"{command.name} is made by the broker itself")
        if command.name in self.topics:
            raise TopicAlreadyExists(f"the topic {command.name!r} exists")
        self._check_count(command.partition_count, already=0)
        TopicConfig.from_overrides(self._topic_defaults, command.configs)
        return Topic(
            name=command.name,
            topic_id=command.fresh_id,
            partition_count=command.partition_count,
            configs=dict(command.configs),
        )

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
        TopicConfig.from_overrides(self._topic_defaults, command.configs)
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

    def _check_feature(self, command: SetFeature) -> None:
        if command.name not in FEATURES:
            raise FeatureUpdateFailed(f"the feature {command.name!r} is not known here")
        lowest, highest = FEATURES[command.name]
        if not lowest <= command.level <= highest:
            raise FeatureUpdateFailed(
                f"{command.name} may have levels {lowest} to {highest}, not {command.level}"
            )

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
                self._partition_count += record.partition_count
            case TopicDeleted():
                self._forget(record.name)
            case BrokerConfigs():
                self.broker_configs = record.configs
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
            self._partition_count -= topic.partition_count

    # --- storing ----------------------------------------------------------------------------------

    def encode(self, record: Record) -> KeyValue:
        """A record as the log holds it."""
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None, timestamp_ms: int) -> Record | None:
        """A record from the log."""
        return None if value is None else records.decode(key, value)


def _said(reply: Reply, record: Record) -> Decision[Reply, Record, Effect]:
    return Decision(reply=reply, records=(record,), effects=(record,))
