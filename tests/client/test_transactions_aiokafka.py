"""aiokafka copies in transactions: consume, produce, commit offsets, all or nothing.

aiokafka speaks the first generation of transactions, in their oldest versions. It does not tell the
broker which generation of the group its offsets belong to (KIP-447), so the broker cannot refuse
those of a member that has lost its partitions. Its documentation has members end their transaction
before they give partitions up, and so do these.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalOperation, ProducerFenced
from aiokafka.structs import ConsumerRecord

from tests.client import aftermath
from tests.client.fake_broker import running
from tests.client.test_aiokafka import (
    WAIT_S,
    a_consumer,
    a_producer,
    numbered,
    send,
    take,
    until,
)
from tests.peers.oncelog import Oncelog

COUNT = 300
Batch = Mapping[TopicPartition, Sequence[ConsumerRecord]]


class Copier(ConsumerRebalanceListener):  # type: ignore[misc] # the library has no types
    """One member of the group, with a producer of its own."""

    def __init__(
        self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, source: str, target: str
    ) -> None:
        self.consumer = consumer
        self.producer = producer
        self.aborted_by_a_rebalance = 0
        self._source = source
        self._target = target
        self._is_open = False
        #: Held while a transaction is made: whoever takes partitions away waits for its end.
        self._busy = asyncio.Lock()
        consumer.subscribe([source], listener=self)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        async with self._busy:
            if self._is_open:
                self.aborted_by_a_rebalance += 1
                await self.abort()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass

    async def read(self) -> Batch:
        found: Batch = await self.consumer.getmany(timeout_ms=200, max_records=20)
        return found

    async def begin(self, batch: Batch) -> None:
        """Open a transaction and send what was read."""
        await self.producer.begin_transaction()
        self._is_open = True
        futures = [
            await self.producer.send(self._target, record.value, partition=record.partition)
            for records in batch.values()
            for record in records
        ]
        await asyncio.gather(*futures)

    async def send_offsets(self, batch: Batch) -> None:
        offsets = {place: records[-1].offset + 1 for place, records in batch.items()}
        await self.producer.send_offsets_to_transaction(offsets, self._source)

    async def commit(self) -> None:
        await self.producer.commit_transaction()
        self._is_open = False

    async def abort(self) -> None:
        await self.producer.abort_transaction()
        self._is_open = False

    async def rewind(self) -> None:
        """Go back to where the transaction began."""
        for place in self.consumer.assignment():
            self.consumer.seek(place, await self.consumer.committed(place) or 0)

    async def copy(self, *, commits: bool = True) -> int:
        """One transaction, if there is something to copy; answers how many records it moved."""
        # Without the lock: during a rebalance nothing can be read.
        batch = await self.read()
        if not batch or self._busy.locked():
            return 0  # what a rebalance takes away begins anew at the committed offset
        async with self._busy:
            await self.begin(batch)
            await self.send_offsets(batch)
            if commits:
                await self.commit()
            else:
                await self.abort()
                await self.rewind()
            return sum(map(len, batch.values()))


@asynccontextmanager
async def a_copier(oncelog: Oncelog, source: str, target: str, name: str) -> AsyncIterator[Copier]:
    """Its group has the name of the input."""
    settings: dict[str, Any] = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    async with (
        a_producer(oncelog, transactional_id=f"{source}-{name}") as producer,
        a_consumer(oncelog, group=source, **settings) as consumer,
    ):
        yield Copier(consumer, producer, source, target)


@pytest.fixture
def target(oncelog: Oncelog, topic: str) -> str:
    return oncelog.create_topic(f"{topic}-copy", partitions=3)


async def fill(oncelog: Oncelog, topic: str) -> list[bytes]:
    """The input."""
    values = numbered(COUNT)
    async with a_producer(oncelog) as producer:
        await send(producer, topic, values)
    return values


async def check(oncelog: Oncelog, topic: str, target: str, values: Sequence[bytes]) -> None:
    """Every record once, the group at the end of its input, and nothing left open."""
    bootstrap = oncelog.bootstrap_servers
    left = await asyncio.to_thread(aftermath.settled, bootstrap, (topic, target), prefix=topic)
    assert left.is_settled, left
    async with a_consumer(oncelog, target, isolation_level="read_committed") as consumer:
        records = await take(consumer, len(values))
    assert sorted(record.value for record in records) == sorted(values)
    offsets = await asyncio.to_thread(aftermath.committed, bootstrap, topic, topic)
    assert offsets == dict.fromkeys(range(3), len(values) // 3)


async def until_copied(count: int, *copiers: Copier) -> None:
    done = 0
    async with asyncio.timeout(WAIT_S):
        while done < count:
            done += sum(await asyncio.gather(*(copier.copy() for copier in copiers)))
    assert done == count


async def describe(oncelog: Oncelog, transactional_id: str) -> tuple[str, int]:
    state = await asyncio.to_thread(aftermath.describe, oncelog.bootstrap_servers, transactional_id)
    return state.transaction_state, state.producer_epoch


@running
async def test_a_copy_with_aborts_in_between_is_exact(
    oncelog: Oncelog, topic: str, target: str
) -> None:
    values = await fill(oncelog, topic)

    done = 0
    async with a_copier(oncelog, topic, target, "one") as copier, asyncio.timeout(WAIT_S):
        while done < COUNT:
            await copier.copy(commits=False)
            done += await copier.copy()

    await check(oncelog, topic, target, values)
    assert await describe(oncelog, f"{topic}-one") == ("CompleteCommit", 0)


@running
async def test_a_second_instance_fences_the_first(
    oncelog: Oncelog, topic: str, target: str
) -> None:
    values = await fill(oncelog, topic)

    async with a_copier(oncelog, topic, target, "same") as first:
        batch: Batch = {}
        async with asyncio.timeout(WAIT_S):
            while not batch:
                batch = await first.read()
        await first.begin(batch)
        await first.send_offsets(batch)
        async with a_producer(oncelog, transactional_id=f"{topic}-same"):
            with pytest.raises(ProducerFenced):
                await first.producer.commit_transaction()
            with pytest.raises(IllegalOperation):
                await first.producer.send(target, b"of a zombie", partition=0)
    async with a_copier(oncelog, topic, target, "same") as third:
        await until_copied(COUNT, third)

    await check(oncelog, topic, target, values)
    # The first had epoch 0, its transaction was aborted with 1, the second got 2 and the third 3.
    assert await describe(oncelog, f"{topic}-same") == ("CompleteCommit", 3)


@running
async def test_a_rebalance_in_the_middle_of_a_transaction_aborts_it(
    oncelog: Oncelog, topic: str, target: str
) -> None:
    values = await fill(oncelog, topic)

    async with a_copier(oncelog, topic, target, "one") as one:
        async with asyncio.timeout(WAIT_S):
            while not (done := await one.copy()):
                pass
        await one.begin(await one.read())
        async with a_copier(oncelog, topic, target, "two") as two:
            members = (one.consumer, two.consumer)
            await until(lambda: {len(member.assignment()) for member in members} == {1, 2})
            assert one.aborted_by_a_rebalance == 1
            await until_copied(COUNT - done, one, two)

    await check(oncelog, topic, target, values)
