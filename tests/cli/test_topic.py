"""`oncelog topic` against a broker that answers what a test tells it to."""

import json
from typing import Any
from uuid import UUID

import pytest

from oncelog.cli import topic
from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.main import parser_for
from oncelog.cli.verbs import Verb
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Refused
from oncelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from oncelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.client.fake_broker import FakeBroker, running

LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS = 2, 19, 20, 32
TOPIC_ID = UUID(int=7)


async def do(broker: FakeBroker, verb: Verb, *words: str) -> None:
    argv = ["topic", *words, "--bootstrap", broker.bootstrap]
    async with await Cluster.open(broker.bootstrap) as cluster:
        await verb(cluster, parser_for(argv).parse_args(argv))


def a_topic(name: str, *, is_internal: bool = False) -> MetadataResponseTopic:
    led = MetadataResponsePartition(
        partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1], isr_nodes=[1]
    )
    return MetadataResponseTopic(
        name=name, topic_id=TOPIC_ID, is_internal=is_internal, partitions=[led]
    )


def created(code: int = 0) -> Any:
    result = CreatableTopicResult(name="t", error_code=code, num_partitions=3, topic_id=TOPIC_ID)
    return lambda *_: CreateTopicsResponse(topics=[result])


@running
async def test_create_asks_for_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeBroker() as broker:
        broker.answers[CREATE_TOPICS] = created()

        words = ("--partitions", "3", "--config", "retention.ms=5", "--config", "a=b=c")
        await do(broker, topic.create, "create", "t", *words)

    (asked,) = broker.seen[-1][0].topics
    assert (asked.name, asked.num_partitions, asked.replication_factor) == ("t", 3, -1)
    assert {c.name: c.value for c in asked.configs} == {"retention.ms": "5", "a": "b=c"}
    assert capsys.readouterr().out == "Created topic t with 3 partitions.\n"


@running
async def test_an_existing_topic_is_fine_if_one_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with FakeBroker() as broker:
        broker.answers[CREATE_TOPICS] = created(36)

        with pytest.raises(Refused, match="Topic t: TOPIC_ALREADY_EXISTS"):
            await do(broker, topic.create, "create", "t")
        await do(broker, topic.create, "create", "t", "--if-not-exists", "--json")

    assert json.loads(capsys.readouterr().out) == {"topic": "t", "created": False}


@running
async def test_list_leaves_the_brokers_own_topics_out(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeBroker() as broker:
        broker.topics = [a_topic("b"), a_topic("__own", is_internal=True), a_topic("a")]

        await do(broker, topic.list_, "list")
        await do(broker, topic.list_, "list", "--internal", "--json")

    printed = capsys.readouterr().out
    assert printed.startswith("a\nb\n[")
    names = [found["topic"] for found in json.loads(printed[4:])]
    assert names == ["__own", "a", "b"]


def describing(broker: FakeBroker) -> None:
    broker.topics = [a_topic("t")]
    configs = [
        DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1),
        DescribeConfigsResourceResult(name="segment.ms", value="9", config_source=5),
    ]
    broker.answers[DESCRIBE_CONFIGS] = lambda *_: DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_type=2, resource_name="t", configs=configs)]
    )

    def offsets(request: Any, version: int) -> Any:
        is_first = request.topics[0].partitions[0].timestamp == -2
        found = ListOffsetsPartitionResponse(partition_index=0, offset=10 if is_first else 25)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    broker.answers[LIST_OFFSETS] = offsets


@running
async def test_describe_shows_partitions_and_own_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with FakeBroker() as broker:
        describing(broker)

        await do(broker, topic.describe, "describe", "t")

    assert capsys.readouterr().out.splitlines() == [
        f"Topic t, 1 partition, id {TOPIC_ID}",
        "Settings: retention.ms=5",
        "PARTITION  LEADER  EPOCH  REPLICAS  ISR  START  END",
        "        0       1      4         1    1     10   25",
    ]


@running
async def test_describe_in_json_can_show_all_settings(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeBroker() as broker:
        describing(broker)

        await do(broker, topic.describe, "describe", "--json", "--all-configs")

    (view,) = json.loads(capsys.readouterr().out)
    assert view["configs"] == {"retention.ms": "5", "segment.ms": "9"}
    assert (view["partitions"][0]["start_offset"], view["partitions"][0]["end_offset"]) == (10, 25)


@running
async def test_alter_wants_to_know_what() -> None:
    async with FakeBroker() as broker:
        with pytest.raises(Misused, match="Say what to change"):
            await do(broker, topic.alter, "alter", "t")


@running
async def test_delete_goes_on_after_a_topic_that_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(request: Any, version: int) -> Any:
        name = request.topics[0].name
        result = DeletableTopicResult(name=name, error_code=3 if name == "gone" else 0)
        return DeleteTopicsResponse(responses=[result])

    async with FakeBroker() as broker:
        broker.answers[DELETE_TOPICS] = answer

        with pytest.raises(CommandFailed, match="1 of 2 topics could not be deleted"):
            await do(broker, topic.delete, "delete", "gone", "t")
        await do(broker, topic.delete, "delete", "gone", "--if-exists")

    printed = capsys.readouterr()
    assert printed.out == "Deleted topic t.\n"
    assert printed.err == "oncelog: Topic gone: UNKNOWN_TOPIC_OR_PARTITION\n"
