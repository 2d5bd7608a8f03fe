"""Who owns a transactional id, in both generations of the protocol, here and on Apache Kafka."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

import oncelog
from oncelog.client import transactions
from oncelog.client.admin import committed_offsets, create_topic
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Disconnected, Refused
from oncelog.client.fetching import Range, fetch
from oncelog.client.identity import (
    Identity,
    OutcomeUnknown,
    Replaced,
    Transactional,
    TransactionLost,
)
from oncelog.client.sending import Sender
from oncelog.core.packing import encode_batch, unpack
from oncelog.core.records import Record
from oncelog.core.types import TopicPartition
from oncelog.spark.encode import stamped_by
from oncelog.wire.errors import ErrorCode
from tests.peers.kafka import Kafka, running_kafka
from tests.spark.logs import fresh

MINUTE_MS = 60_000
#: Kafka would soon delete a record that says it is old.
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def kafka_before_v2() -> Iterator[Kafka]:
    with running_kafka(format_arguments=("--feature", "transaction.version=1")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def own_broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as broker:
        yield broker


@pytest.fixture(
    params=[
        "oncelog",
        pytest.param("kafka", marks=pytest.mark.peers),
        pytest.param("kafka before V2", marks=pytest.mark.peers),
    ]
)
def servers(request: pytest.FixtureRequest) -> str:
    names = {"oncelog": "own_broker", "kafka": "kafka_broker", "kafka before V2": "kafka_before_v2"}
    found: str = request.getfixturevalue(names[request.param]).bootstrap_servers
    return found


class Writer:
    """One owner of an id, with a topic of one partition."""

    def __init__(self, cluster: Cluster, name: str, place: TopicPartition) -> None:
        self.cluster = cluster
        self.name = name
        self.place = place
        self.transactional = Transactional(cluster, name, wait_s=30)

    async def send(self, identity: Identity, value: bytes) -> None:
        await self.transactional.add_partitions(identity, [self.place])

        put = stamped_by(identity.producer_id, identity.epoch)
        sender = Sender(
            self.cluster, put, transactional_id=self.name, is_v2=identity.is_v2, patience_s=10
        )
        try:
            batch = encode_batch([Record(0, NOW_MS, None, value)], is_transactional=True)
            await sender.send(self.place, batch, 1)
            await sender.finish()
        finally:
            await sender.close()

    async def committed(self) -> list[bytes | None]:
        from oncelog.client.admin import LATEST, list_offsets

        found = []
        for _ in range(100):  # markers are written a moment after the commit is answered
            ends = [
                (await list_offsets(self.cluster, {self.place: LATEST}, committed_only=stable))[
                    self.place
                ]
                for stable in (True, False)
            ]
            if ends[0] == ends[1]:
                break
            await asyncio.sleep(0.05)
        wanted = Range(topic=self.place.topic, partition=0, start=0, end=ends[0] or 0)
        async for batches in fetch(self.cluster, wanted):
            for header, batch in batches:
                found += [record.value for record in unpack(header, batch[61:])]
        return found


@asynccontextmanager
async def a_writer(servers: str, timeout: float = 30.0) -> AsyncIterator[Writer]:
    async with await Cluster.open(servers, timeout=timeout) as cluster:
        place = TopicPartition(fresh("topic"), 0)
        await create_topic(cluster, place.topic, partitions=1)
        yield Writer(cluster, fresh("owner"), place)


def run(servers: str, story: Callable[[Writer], Awaitable[None]], timeout: float = 30.0) -> None:
    async def tell() -> None:
        async with a_writer(servers, timeout) as writer:
            await story(writer)

    asyncio.run(tell())


def test_every_commit_is_followed_by_a_new_epoch(servers: str) -> None:
    async def story(writer: Writer) -> None:
        identity = await writer.transactional.fence(MINUTE_MS)
        epochs = [identity.epoch]
        for value in (b"a", b"b", b"c"):
            await writer.send(identity, value)
            following = await writer.transactional.commit(identity)
            assert (following is not None) == identity.is_v2
            identity = following or await writer.transactional.renew(identity, MINUTE_MS)
            epochs.append(identity.epoch)
        assert epochs == sorted(set(epochs))
        assert await writer.committed() == [b"a", b"b", b"c"]

    run(servers, story)


def test_renewing_aborts_what_is_open_and_fences_what_is_left_over(servers: str) -> None:
    async def story(writer: Writer) -> None:
        old = await writer.transactional.fence(MINUTE_MS)
        await writer.send(old, b"half")
        new = await writer.transactional.renew(old, MINUTE_MS)
        assert new.epoch > old.epoch
        with pytest.raises((Refused, TransactionLost)):
            await writer.send(old, b"left over")
        await writer.send(new, b"whole")
        await writer.transactional.commit(new)
        assert await writer.committed() == [b"whole"]

    run(servers, story)


def test_renewing_twice_in_a_row_is_as_good_as_once(servers: str) -> None:
    async def story(writer: Writer) -> None:
        identity = await writer.transactional.fence(MINUTE_MS)
        for _ in range(3):
            identity = await writer.transactional.renew(identity, MINUTE_MS)
        await writer.send(identity, b"x")
        await writer.transactional.commit(identity)
        assert await writer.committed() == [b"x"]

    run(servers, story)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_replaced_owner_is_told_and_does_its_successor_no_harm(
    servers: str, is_open: bool
) -> None:
    """Whether its successor has a transaction open or not."""

    async def story(writer: Writer) -> None:
        first = await writer.transactional.fence(MINUTE_MS)
        await writer.send(first, b"first")
        second = await writer.transactional.fence(MINUTE_MS)
        if is_open:
            await writer.send(second, b"second")
        with pytest.raises(Replaced, match="Another producer has taken over"):
            await writer.transactional.renew(first, MINUTE_MS)
        with pytest.raises((TransactionLost, Replaced)):
            await writer.transactional.commit(first)
        if not is_open:
            await writer.send(second, b"second")
        await writer.transactional.commit(second)
        assert await writer.committed() == [b"second"]

    run(servers, story)


def test_after_its_timeout_an_owner_goes_on_under_a_new_epoch(servers: str) -> None:
    """The coordinator has aborted; nobody else has the id."""

    async def story(writer: Writer) -> None:
        identity = await writer.transactional.fence(500)
        await writer.send(identity, b"late")
        for _ in range(300):
            state = await transactions.describe(writer.cluster, writer.name)
            if state.transaction_state == "CompleteAbort":
                break
            await asyncio.sleep(0.1)
        assert state.transaction_state == "CompleteAbort"
        with pytest.raises(TransactionLost):
            await writer.transactional.commit(identity)
        again = await writer.transactional.renew(identity, MINUTE_MS)
        await writer.send(again, b"in time")
        await writer.transactional.commit(again)
        assert await writer.committed() == [b"in time"]

    run(servers, story)


def test_offsets_of_a_group_are_part_of_the_transaction(servers: str) -> None:
    async def story(writer: Writer) -> None:
        group = fresh("group")
        identity = await writer.transactional.fence(MINUTE_MS)
        await writer.send(identity, b"x")
        await writer.transactional.send_offsets(identity, group, {writer.place: 5})
        assert await committed_offsets(writer.cluster, group) == {}
        identity = await writer.transactional.renew(identity, MINUTE_MS)
        assert await committed_offsets(writer.cluster, group) == {}
        await writer.transactional.send_offsets(identity, group, {writer.place: 7})
        await writer.transactional.commit(identity)
        for _ in range(100):
            if await committed_offsets(writer.cluster, group):
                break
            await asyncio.sleep(0.05)
        assert await committed_offsets(writer.cluster, group) == {writer.place: 7}

    run(servers, story)


def test_an_offset_that_one_partition_refuses_is_noticed_whatever_its_code(
    own_broker: oncelog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNKNOWN_SERVER_ERROR is below zero, where a partition that took its offset says 0."""
    from oncelog.client.connection import Connection
    from oncelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

    request = Connection.request

    async def spoilt(self: Connection, message: object, **rest: object) -> object:
        reply = await request(self, message, **rest)  # type: ignore[arg-type]
        if isinstance(message, TxnOffsetCommitRequest):
            reply.topics[0].partitions[0].error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return reply

    async def story(writer: Writer) -> None:
        other = TopicPartition(fresh("topic"), 0)
        await create_topic(writer.cluster, other.topic, partitions=1)
        identity = await writer.transactional.fence(MINUTE_MS)
        monkeypatch.setattr(Connection, "request", spoilt)
        with pytest.raises(Refused) as refused:
            await writer.transactional.send_offsets(
                identity, fresh("group"), {writer.place: 5, other: 7}
            )
        assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(own_broker.bootstrap_servers, story)


def test_a_commit_without_an_answer_is_of_unknown_outcome(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oncelog.client.connection import Connection
    from oncelog.wire.messages.end_txn import EndTxnRequest

    request = Connection.request

    async def losing(self: Connection, message: object, **rest: object) -> object:
        reply = await request(self, message, **rest)  # type: ignore[arg-type]
        if isinstance(message, EndTxnRequest):
            self.abort()
            raise Disconnected("the answer is lost")
        return reply

    async def story(writer: Writer) -> None:
        identity = await writer.transactional.fence(MINUTE_MS)
        await writer.send(identity, b"x")
        monkeypatch.setattr(Connection, "request", losing)
        with pytest.raises(OutcomeUnknown):
            await writer.transactional.commit(identity)
        monkeypatch.setattr(Connection, "request", request)
        again = await writer.transactional.renew(identity, MINUTE_MS)
        assert again.epoch > identity.epoch
        assert await writer.committed() == [b"x"]

    run(servers, story, timeout=3.0)


def test_a_timeout_that_the_brokers_do_not_allow_is_refused(servers: str) -> None:
    async def story(writer: Writer) -> None:
        with pytest.raises(Refused) as refused:
            await writer.transactional.fence(2**31 - 1)
        assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT

    run(servers, story)
