"""The metadata shard: names, settings and features, decided without a file or a socket."""

from uuid import UUID

import pytest

from oncelog.core.errors import (
    InvalidTopic,
    InvalidUpdateVersion,
    TopicAlreadyExists,
    UnknownTopicId,
)
from oncelog.core.metadata.records import Record
from oncelog.core.metadata.shard import (
    AddPartitions,
    Command,
    CreateTopic,
    DeleteTopic,
    MetadataShard,
    SetBrokerConfigs,
    SetFeatures,
    SetTopicConfigs,
    StartBroker,
)
from oncelog.core.topic_config import TopicConfig
from oncelog.core.types import Now

NOW = Now(wall_ms=0, monotonic_ms=0)


def a_shard() -> MetadataShard:
    return MetadataShard(topic_defaults=TopicConfig(), max_partitions=100)


def a_topic(name: str, number: int = 1) -> CreateTopic:
    return CreateTopic(name=name, partition_count=1, fresh_id=UUID(int=number))


def carry_out(shard: MetadataShard, *commands: Command) -> list[Record]:
    written: list[Record] = []
    for command in commands:
        decision = shard.decide(command, NOW)
        for record in decision.records:
            shard.apply(record)
        written += decision.records
    return written


def test_a_replay_of_what_was_written_gives_the_same_shard() -> None:
    live = a_shard()
    written = carry_out(
        live,
        StartBroker(),
        a_topic("a", 1),
        a_topic("b", 2),
        AddPartitions(name="a", partition_count=5),
        SetTopicConfigs(name="a", configs={"retention.ms": "5"}),
        DeleteTopic(topic_id=UUID(int=2)),
        SetBrokerConfigs(node_id=None, configs={"message.max.bytes": "1"}),
        SetBrokerConfigs(node_id=1, configs={"message.max.bytes": "2"}),
    )

    replayed = a_shard()
    for record in written:
        key, value = live.encode(record)
        decoded = replayed.decode(key, value, 0)
        assert decoded is not None
        replayed.apply(decoded)

    assert replayed.topics == live.topics
    assert replayed.topics_by_id == live.topics_by_id
    assert replayed.leader_epoch == live.leader_epoch
    assert replayed.broker_configs == live.broker_configs
    assert live.broker_configs == {None: {"message.max.bytes": "1"}, 1: {"message.max.bytes": "2"}}


def test_two_topics_may_not_differ_in_dots_and_underscores_alone() -> None:
    shard = a_shard()
    carry_out(shard, a_topic("a.b_c"))

    with pytest.raises(InvalidTopic):
        shard.decide(a_topic("a_b.c", 2), NOW)
    with pytest.raises(TopicAlreadyExists):
        shard.decide(a_topic("a.b_c", 2), NOW)

    carry_out(shard, DeleteTopic(topic_id=UUID(int=1)), a_topic("a_b.c", 2))
    assert set(shard.topics) == {"a_b.c"}


def test_a_topic_that_grew_still_keeps_its_name_to_itself() -> None:
    shard = a_shard()
    carry_out(shard, a_topic("a.b"), AddPartitions(name="a.b", partition_count=2))

    with pytest.raises(InvalidTopic):
        shard.decide(a_topic("a_b", 2), NOW)


def test_a_deletion_names_the_topic_and_not_its_successor() -> None:
    shard = a_shard()
    carry_out(shard, a_topic("a", 1), DeleteTopic(topic_id=UUID(int=1)), a_topic("a", 2))

    with pytest.raises(UnknownTopicId):
        shard.decide(DeleteTopic(topic_id=UUID(int=1)), NOW)


def test_features_are_set_all_or_none() -> None:
    shard = a_shard()

    with pytest.raises(InvalidUpdateVersion):
        shard.decide(SetFeatures(levels={"nowhere": 1}), NOW)
    assert shard.decide(SetFeatures(levels={}), NOW).records == ()
