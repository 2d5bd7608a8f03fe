"""What the metadata log holds: one JSON object for each change.

The key names the kind and the thing, so that a later compaction keeps the newest record of each;
the value is the thing as it is from now on. A null value removes it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias
from uuid import UUID

from oncelog.core.records import KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as it is from now on."""

    stored: ClassVar[bool] = True
    name: str
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """The topic and all of its records are gone."""

    stored: ClassVar[bool] = True
    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigs:
    """Settings that were changed while brokers ran: those of one broker, or of all (`None`)."""

    stored: ClassVar[bool] = True
    node_id: int | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIds:
    """No producer id at or above `next_id` has been handed out."""

    stored: ClassVar[bool] = True
    next_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStarted:
    """The broker started once more, and leads every partition in this epoch."""

    stored: ClassVar[bool] = True
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """A feature was set to a level."""

    stored: ClassVar[bool] = True
    name: str
    level: int


Record: TypeAlias = (
    Topic | TopicDeleted | BrokerConfigs | ProducerIds | BrokerStarted | FeatureLevel
)


def encode(record: Record) -> KeyValue:
    """A record as the log holds it."""
    key: dict[str, Any]
    value: dict[str, Any]
    match record:
        case Topic():
            key, value = {"topic": record.name}, {
                "id": record.topic_id.hex,
                "partitions": record.partition_count,
                "configs": dict(sorted(record.configs.items())),
            }  # fmt: skip
        case TopicDeleted():
            key, value = {"topic": record.name}, {"deleted": record.topic_id.hex}
        case BrokerConfigs():
            key, value = {"broker_configs": record.node_id}, dict(sorted(record.configs.items()))
        case ProducerIds():
            key, value = {"producer_ids": "next"}, {"next": record.next_id}
        case BrokerStarted():
            key, value = {"broker": "epoch"}, {"epoch": record.leader_epoch}
        case FeatureLevel():
            key, value = {"feature": record.name}, {"level": record.level}
    return KeyValue(_dump(key), _dump(value))


def decode(key: bytes, value: bytes) -> Record:
    """A record from the log."""
    (kind, name), fields = next(iter(json.loads(key).items())), json.loads(value)
    if kind == "topic":
        return _decode_topic(name, fields)
    if kind == "feature":
        return FeatureLevel(name=name, level=fields["level"])
    if kind == "producer_ids":
        return ProducerIds(next_id=fields["next"])
    if kind == "broker_configs":
        return BrokerConfigs(node_id=name, configs=fields)
    return BrokerStarted(leader_epoch=fields["epoch"])


def _decode_topic(name: str, fields: dict[str, Any]) -> Topic | TopicDeleted:
    if "deleted" in fields:
        return TopicDeleted(name=name, topic_id=UUID(hex=fields["deleted"]))
    return Topic(
        name=name,
        topic_id=UUID(hex=fields["id"]),
        partition_count=fields["partitions"],
        configs=fields["configs"],
    )


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
