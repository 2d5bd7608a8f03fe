"""Our client and an Apache Kafka that wants TLS, users, or both."""

import asyncio
import uuid

import pytest

from oncelog.client import admin
from oncelog.client.cluster import Cluster
from oncelog.client.connection import Connection
from oncelog.client.errors import (
    AuthenticationFailed,
    BadReply,
    Disconnected,
    TlsFailed,
    Unreachable,
)
from oncelog.client.settings import parse_settings
from oncelog.core.packing import read_records
from oncelog.core.records import KeyValue, encode_batch
from oncelog.core.types import TopicPartition
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.client.fake_broker import running
from tests.peers.secured import LISTENERS, MECHANISMS, SESSION_MS, SecuredKafka

pytestmark = pytest.mark.peers

#: Later versions of Produce and Fetch name topics by id.
LAST_WITH_NAMES = 12

WAYS = [
    (listener, mechanism)
    for listener, protocol in LISTENERS.items()
    for mechanism in (MECHANISMS if protocol.startswith("SASL") else ("no user",))
]


async def written_and_read(options: dict[str, str]) -> list[bytes | None]:
    """Write a record of 600 kB to a new topic and read it back, through one listener."""
    topic = f"secured-{uuid.uuid4()}"
    async with await Cluster.connect(parse_settings(options)) as cluster:
        await admin.create_topic(cluster, topic, partitions=1)
        batch = encode_batch([KeyValue(key=b"k", value=b"v" * 600_000)], timestamp_ms=1)
        produce = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
                )
            ],
        )
        fetch = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
                    ],
                )
            ],
        )

        async def leader() -> Connection:
            (node_id,) = await cluster.leaders([TopicPartition(topic, 0)])
            return await cluster.node(node_id)

        wrote: ProduceResponse = await cluster.ask(produce, leader, at_most=LAST_WITH_NAMES)
        assert wrote.responses[0].partition_responses[0].error_code == 0
        read: FetchResponse = await cluster.ask(fetch, leader, at_most=LAST_WITH_NAMES)
        records = read_records(read.responses[0].partitions[0].records or b"")
        return [record.value for record in records]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
@running
async def test_records_go_through_every_listener_with_every_mechanism(
    secured_broker: SecuredKafka, listener: str, mechanism: str
) -> None:
    values = await written_and_read(secured_broker.options(listener, mechanism))

    assert values == [b"v" * 600_000]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
@running
async def test_javas_words_say_the_same(
    secured_broker: SecuredKafka, listener: str, mechanism: str
) -> None:
    options = secured_broker.java_options(listener, mechanism)

    async with await Cluster.connect(parse_settings(options)) as cluster:
        reply = await cluster.metadata(())

    # Each listener tells of itself, so that everything that follows is as secure as the first.
    (broker,) = reply.brokers
    assert broker.port == secured_broker.kafka.ports[listener]


@running
async def test_a_session_is_renewed_before_it_ends_and_after(secured_broker: SecuredKafka) -> None:
    settings = parse_settings(secured_broker.options("SHORT_SESSION"))
    async with await Cluster.connect(settings) as cluster:
        connection = await cluster.any()
        for pause_s in (SESSION_MS * 0.9 / 1000, SESSION_MS * 1.2 / 1000):
            await asyncio.sleep(pause_s)
            await asyncio.gather(*(admin.topics(cluster) for _ in range(5)))

        assert await cluster.any() is connection


@pytest.mark.parametrize("mechanism", MECHANISMS)
@running
async def test_a_wrong_password_is_refused_at_once(
    secured_broker: SecuredKafka, mechanism: str
) -> None:
    options = secured_broker.options("SASL_SSL", mechanism) | {"sasl.password": "hunter2"}

    with pytest.raises(
        AuthenticationFailed, match=rf"did not let in the user 'alice' with {mechanism}: .*\. Check"
    ) as caught:
        await Cluster.connect(parse_settings(options))

    assert "hunter2" not in str(caught.value)


@running
async def test_an_unknown_user_is_refused(secured_broker: SecuredKafka) -> None:
    options = secured_broker.options("SASL_PLAINTEXT") | {"sasl.username": "mallory"}

    with pytest.raises(AuthenticationFailed, match="did not let in the user 'mallory'"):
        await Cluster.connect(parse_settings(options))


@running
async def test_a_broker_whom_nobody_vouches_for_is_refused(secured_broker: SecuredKafka) -> None:
    stranger = {"ssl.ca.location": str(secured_broker.stranger.certificate)}
    unknown = secured_broker.options("SASL_SSL")
    del unknown["ssl.ca.location"]

    for options in (secured_broker.options("SASL_SSL") | stranger, unknown):
        with pytest.raises(TlsFailed, match=r"certificate is not trusted .*ssl\.ca\.location"):
            await Cluster.connect(parse_settings(options))


@running
async def test_a_broker_that_wants_a_certificate_says_so(secured_broker: SecuredKafka) -> None:
    options = secured_broker.options("MUTUAL_SSL")
    del options["ssl.certificate.location"], options["ssl.key.location"]

    with pytest.raises(TlsFailed, match="wants a certificate of ours"):
        await Cluster.connect(parse_settings(options))


@running
async def test_listeners_that_are_mixed_up_are_told_apart(secured_broker: SecuredKafka) -> None:
    kafka = secured_broker.kafka
    plain = {"bootstrap.servers": kafka.bootstrap_servers}

    with pytest.raises(Unreachable, match=r"instead of speaking TLS.* to PLAINTEXT"):
        await Cluster.connect(parse_settings(secured_broker.options("SSL") | plain))
    with pytest.raises(BadReply, match=r"speaks TLS on this port: .* SSL or SASL_SSL"):
        await Cluster.open(kafka.address("SSL"))
    with pytest.raises(AuthenticationFailed, match=r"wants no user: .* PLAINTEXT or SSL"):
        await Cluster.connect(parse_settings(secured_broker.options("SASL_PLAINTEXT") | plain))
    with pytest.raises(Disconnected, match=r"If it wants a user, .* SASL_PLAINTEXT"):
        await Cluster.open(kafka.address("SASL_PLAINTEXT"))
