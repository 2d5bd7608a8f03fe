"""The sender: in order, again when it must be, and never twice."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

import oncelog
from oncelog.client.admin import create_topic
from oncelog.client.cluster import Cluster
from oncelog.client.connection import Connection
from oncelog.client.errors import Disconnected, Refused
from oncelog.client.fetching import Range, fetch
from oncelog.client.sending import NotSent, Sender, Written, WrittenBefore
from oncelog.core.packing import encode_batch, unpack
from oncelog.core.records import Record
from oncelog.core.types import TopicPartition
from oncelog.spark.encode import stamped_by
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import ProduceRequest
from tests.spark.logs import fresh


@pytest.fixture(scope="module")
def broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as running:
        yield running


class Desk:
    """A topic with two partitions, a producer id, and what went over the wire."""

    def __init__(self, cluster: Cluster, topic: str, producer_id: int) -> None:
        self.cluster = cluster
        self.places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        self._producer_id = producer_id

    def sender(self, patience_s: float = 10.0) -> Sender:
        return Sender(self.cluster, stamped_by(self._producer_id, 0), patience_s=patience_s)

    async def values(self, place: TopicPartition, end: int) -> list[bytes | None]:
        found = []
        wanted = Range(topic=place.topic, partition=place.partition, start=0, end=end)
        async for batches in fetch(self.cluster, wanted):
            for header, batch in batches:
                found += [record.value for record in unpack(header, batch[61:])]
        return found


def batch(*values: bytes) -> bytes:
    now_ms = int(time.time() * 1000)
    return encode_batch([Record(0, now_ms, None, value) for value in values])


def run(broker: oncelog.Broker, story: Callable[[Desk], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with await Cluster.open(broker.bootstrap_servers) as cluster:
            topic = fresh("topic")
            await create_topic(cluster, topic, partitions=2)
            reply = await cluster.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            )
            await story(Desk(cluster, topic, reply.producer_id))

    asyncio.run(tell())


def test_many_batches_arrive_in_order_and_are_accounted_for(broker: oncelog.Broker) -> None:
    async def story(desk: Desk) -> None:
        sender = desk.sender()
        for number in range(60):
            await sender.send(desk.places[number % 2], batch(b"%d" % number, b"%d." % number), 2)
        written = await sender.finish()
        await sender.close()
        assert written == {
            place: Written(records=60, first_offset=0, last_offset=59) for place in desk.places
        }
        for index, place in enumerate(desk.places):
            expected = [b"%d%s" % (n, s) for n in range(index, 60, 2) for s in (b"", b".")]
            assert await desk.values(place, 60) == expected

    run(broker, story)


class Trouble:
    """Lets chosen Produce requests go wrong, before or after the broker has seen them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *chosen: int, is_seen: bool) -> None:
        self.count = 0
        request = Connection.request

        async def troubled(connection: Connection, message: object, **rest: object) -> object:
            if not isinstance(message, ProduceRequest):
                return await request(connection, message, **rest)  # type: ignore[arg-type]
            number = self.count
            self.count += 1
            if number in chosen and not is_seen:
                raise Disconnected("it never left")
            reply = await request(connection, message, **rest)  # type: ignore[arg-type]
            if number in chosen:
                raise Disconnected("the answer is lost")
            return reply

        monkeypatch.setattr(Connection, "request", troubled)


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("chosen", [(0,), (3,), (2, 3, 4), (0, 1, 2, 9)])
def test_what_was_not_answered_is_sent_again_in_order_and_counts_once(
    broker: oncelog.Broker,
    monkeypatch: pytest.MonkeyPatch,
    chosen: tuple[int, ...],
    is_seen: bool,
) -> None:
    async def story(desk: Desk) -> None:
        trouble = Trouble(monkeypatch, *chosen, is_seen=is_seen)
        sender = desk.sender()
        for number in range(20):
            await sender.send(desk.places[0], batch(b"%d" % number), 1)
        written = await sender.finish()
        await sender.close()
        assert written[desk.places[0]] == Written(records=20, first_offset=0, last_offset=19)
        assert trouble.count > 20
        assert await desk.values(desk.places[0], 20) == [b"%d" % n for n in range(20)]

    run(broker, story)


def test_a_batch_that_nobody_takes_is_given_up_in_time(
    broker: oncelog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(desk: Desk) -> None:
        Trouble(monkeypatch, *range(1000), is_seen=False)
        sender = desk.sender(patience_s=0.3)
        await sender.send(desk.places[0], batch(b"x"), 1)
        with pytest.raises(NotSent, match=r"did not take a batch within 0\.3 s: it never left"):
            await sender.finish()
        with pytest.raises(NotSent):
            await sender.send(desk.places[1], batch(b"y"), 1)
        await sender.close()

    run(broker, story)


def test_what_another_has_written_under_the_same_identity_is_noticed(
    broker: oncelog.Broker,
) -> None:
    """A broker answers it as a repeat; only the offset tells."""

    async def story(desk: Desk) -> None:
        first, second = desk.sender(), desk.sender()
        await first.send(desk.places[0], batch(b"first"), 1)
        await first.finish()
        await second.send(desk.places[0], batch(b"second"), 1, not_before=1)
        with pytest.raises(WrittenBefore, match="this has been written before"):
            await second.finish()
        await first.close()
        await second.close()
        assert await desk.values(desk.places[0], 1) == [b"first"]

    run(broker, story)


def test_a_refusal_that_does_not_pass_is_told_at_once(broker: oncelog.Broker) -> None:
    async def story(desk: Desk) -> None:
        sender = desk.sender()
        await sender.send(desk.places[0], b"\0" * 100, 1)
        with pytest.raises(Refused) as refused:
            await sender.finish()
        assert refused.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        await sender.close()

    run(broker, story)
