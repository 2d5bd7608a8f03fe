"""Routing and patience."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import oncelog
from oncelog.client.admin import topics
from oncelog.client.cluster import (
    Cluster,
    CoordinatorKind,
    error_codes,
)
from oncelog.client.errors import Disconnected, Refused, Unreachable
from oncelog.client.settings import ClientSettings
from oncelog.core.types import TopicPartition
from oncelog.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.client.fake_broker import FakeBroker, running

FIND_COORDINATOR = 10
LIST_GROUPS = 16
CREATE_TOPICS = 19


def in_turn(*answers: Any) -> Any:
    left: Iterator[Any] = iter(answers)
    return lambda *_: next(left)


@running
async def test_the_first_address_that_answers_is_used() -> None:
    async with FakeBroker() as broker:
        cluster = await Cluster.open(f"127.0.0.1:1,{broker.bootstrap}")

        reply = await cluster.metadata(None)
        await cluster.close()

    assert reply.cluster_id == "fake"


@running
async def test_no_broker_at_all_is_a_sentence() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 cannot be reached"):
        await Cluster.open("127.0.0.1:1", timeout=1)


@running
async def test_what_passes_by_itself_is_waited_out() -> None:
    async with FakeBroker() as broker, await Cluster.open(broker.bootstrap) as cluster:
        broker.answers[LIST_GROUPS] = in_turn(
            ListGroupsResponse(error_code=14),
            ConnectionError(),
            ListGroupsResponse(error_code=0),
        )

        reply = await cluster.ask(ListGroupsRequest())

    assert reply.error_code == 0


@running
async def test_patience_ends() -> None:
    async with FakeBroker() as broker, await Cluster.open(broker.bootstrap, timeout=0.2) as cluster:
        broker.answers[LIST_GROUPS] = lambda *_: ListGroupsResponse(error_code=14)

        reply = await cluster.ask(ListGroupsRequest())

    assert reply.error_code == 14


@running
async def test_what_must_not_be_done_twice_is_not_sent_again_after_a_lost_connection() -> None:
    async with FakeBroker() as broker, await Cluster.open(broker.bootstrap) as cluster:
        broker.answers[CREATE_TOPICS] = lambda *_: ConnectionError()

        with pytest.raises(Disconnected):
            await cluster.ask(CreateTopicsRequest(), cluster.controller, is_repeatable=False)

    sent = [message for message, _ in broker.seen if isinstance(message, CreateTopicsRequest)]
    assert len(sent) == 1


@running
async def test_a_coordinator_is_looked_up_once_and_again_when_it_moved() -> None:
    async with FakeBroker() as broker, await Cluster.open(broker.bootstrap) as cluster:
        here = Coordinator(key="g", node_id=1, host="127.0.0.1", port=broker.port)
        broker.answers[FIND_COORDINATOR] = lambda *_: FindCoordinatorResponse(coordinators=[here])
        broker.answers[LIST_GROUPS] = in_turn(
            ListGroupsResponse(), ListGroupsResponse(error_code=16), ListGroupsResponse()
        )

        async def coordinator() -> Any:
            return await cluster.coordinator(CoordinatorKind.GROUP, "g")

        for _ in range(2):
            await cluster.ask(ListGroupsRequest(), coordinator)

    names = [type(message).__name__ for message, _ in broker.seen]
    assert names.count("FindCoordinatorRequest") == 2


@running
async def test_an_old_broker_is_asked_for_one_coordinator_at_a_time() -> None:
    async with FakeBroker() as broker:
        broker.versions[FIND_COORDINATOR] = range(0, 4)
        broker.answers[FIND_COORDINATOR] = lambda *_: FindCoordinatorResponse(
            node_id=1, host="127.0.0.1", port=broker.port
        )
        async with await Cluster.open(broker.bootstrap) as cluster:
            connection = await cluster.coordinator(CoordinatorKind.TRANSACTION, "t")

            assert connection.is_open

    request, version = broker.seen[-1]
    assert (request.key, request.key_type, version) == ("t", 1, 3)


@running
async def test_partitions_are_sorted_by_their_leaders() -> None:
    async with FakeBroker() as broker, await Cluster.open(broker.bootstrap) as cluster:
        led = [MetadataResponsePartition(partition_index=p, leader_id=1) for p in (0, 1)]
        broker.topics = [MetadataResponseTopic(name="t", partitions=led)]

        by_leader = await cluster.leaders([TopicPartition("t", 1), TopicPartition("t", 0)])
        with pytest.raises(Refused, match="Partition t-2: UNKNOWN_TOPIC_OR_PARTITION"):
            await cluster.leaders([TopicPartition("t", 2)])

    assert by_leader == {1: [TopicPartition("t", 0), TopicPartition("t", 1)]}


def test_errors_are_found_at_any_depth() -> None:
    reply = CreateTopicsResponse(
        topics=[CreatableTopicResult(error_code=36), CreatableTopicResult(error_code=0)]
    )

    assert list(error_codes(reply)) == [36]


@running
async def test_a_job_waits_for_brokers_that_are_started_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = ClientSettings(bootstrap_servers=f"127.0.0.1:{port}")
    with pytest.raises(Unreachable):
        await Cluster.connect(settings)
    waiting = asyncio.create_task(Cluster.connect(settings, wait_s=30))
    await asyncio.sleep(0.3)
    async with oncelog.Broker(port=port), await waiting as cluster:
        assert await topics(cluster) == []
