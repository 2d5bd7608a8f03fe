"""aiokafka, with its own defaults, against our broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata

from tests.client.fake_broker import running
from tests.peers.oncelog import Oncelog

WAIT_S = 20.0
FIRST_TIME_MS = 1_700_000_000_000


@asynccontextmanager
async def a_producer(oncelog: Oncelog, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=oncelog.bootstrap_servers, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def a_consumer(
    oncelog: Oncelog, *topics: str, group: str | None = None, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=oncelog.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        **settings,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def send(
    producer: AIOKafkaProducer, topic: str, values: Sequence[bytes], *, partitions: int = 3
) -> list[tuple[int, int]]:
    """Produce round robin; answers where each record went."""
    futures = [
        await producer.send(topic, value, partition=number % partitions)
        for number, value in enumerate(values)
    ]
    return [(told.partition, told.offset) for told in await asyncio.gather(*futures)]


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    """Exactly `count` records, and then none for a moment."""
    taken: list[ConsumerRecord] = []
    async with asyncio.timeout(WAIT_S):
        while len(taken) < count:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                taken += records
    for records in (await consumer.getmany(timeout_ms=50)).values():
        taken += records
    assert len(taken) == count
    return taken


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(int(WAIT_S / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen in time")


def numbered(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


@running
async def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    oncelog: Oncelog, topic: str
) -> None:
    values = numbered(1500)

    async with a_producer(oncelog, enable_idempotence=True) as producer:
        places = await send(producer, topic, values)

    async with a_consumer(oncelog) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        records = await take(consumer, len(values))
    found = {(record.partition, record.offset): record.value for record in records}
    assert found == dict(zip(places, values, strict=True))
    assert places == [(number % 3, number // 3) for number in range(1500)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@running
async def test_a_record_comes_back_as_it_was_sent_with_every_codec(
    oncelog: Oncelog, topic: str, codec: str | None
) -> None:
    headers = [("trace", b"\x00\xff"), ("empty", b""), ("trace", b"again")]

    async with a_producer(oncelog, compression_type=codec) as producer:
        for number in range(100):
            await producer.send(
                topic, b"value" * 20, key=b"%d" % number, partition=0,
                timestamp_ms=FIRST_TIME_MS + number, headers=headers,
            )  # fmt: skip
        await producer.send_and_wait(topic, None, key=b"tombstone", partition=0)

    async with a_consumer(oncelog) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = await take(consumer, 101)
    assert [record.key for record in records[:100]] == numbered(100)
    assert {record.value for record in records[:100]} == {b"value" * 20}
    assert [record.timestamp - FIRST_TIME_MS for record in records[:100]] == list(range(100))
    assert records[0].headers == tuple(headers)
    assert (records[100].key, records[100].value) == (b"tombstone", None)


@running
async def test_offsets_are_found_by_time(oncelog: Oncelog, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    # Not its default of acks=1, which is answered before the records may be seen.
    async with a_producer(oncelog, acks="all") as producer:
        for number in range(100):
            at_ms = FIRST_TIME_MS + 10 * number
            await producer.send(topic, b"x", partition=1, timestamp_ms=at_ms)
        await producer.flush()

    async with a_consumer(oncelog) as consumer:
        asked = [FIRST_TIME_MS, FIRST_TIME_MS + 505, FIRST_TIME_MS + 10_000]
        found = [(await consumer.offsets_for_times({partition: at}))[partition] for at in asked]
        first = await consumer.beginning_offsets([partition])
        end = await consumer.end_offsets([partition])

    assert found == [(0, FIRST_TIME_MS), (51, FIRST_TIME_MS + 510), None]
    assert (first[partition], end[partition]) == (0, 100)


@running
async def test_a_consumer_goes_where_it_is_sent(oncelog: Oncelog, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with a_producer(oncelog) as producer:
        await send(producer, topic, numbered(50), partitions=1)

    async with a_consumer(oncelog) as consumer:
        consumer.assign([partition])
        await take(consumer, 50)
        consumer.seek(partition, 40)
        again = await take(consumer, 10)
        position = await consumer.position(partition)

    assert [record.value for record in again] == numbered(50)[40:]
    assert position == 50


@running
async def test_a_group_resumes_at_what_it_committed(oncelog: Oncelog, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with a_producer(oncelog) as producer:
        await send(producer, topic, numbered(100), partitions=1)

    async with a_consumer(oncelog, topic, group=topic, enable_auto_commit=False) as consumer:
        await take(consumer, 100)
        await consumer.commit({partition: OffsetAndMetadata(30, "why")})
        committed = await consumer.committed(partition)
    async with a_consumer(oncelog, topic, group=topic) as consumer:
        rest = await take(consumer, 70)

    assert committed == 30
    assert [record.value for record in rest] == numbered(100)[30:]


class CommitOnRevoke(ConsumerRebalanceListener):  # type: ignore[misc] # the library has no types
    """aiokafka does not commit by itself what it gives away, so its documentation says to."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            await self._consumer.commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


@running
async def test_two_members_share_the_work_and_nothing_is_read_twice(
    oncelog: Oncelog, topic: str
) -> None:
    before, after = numbered(300, "before "), numbered(300, "after ")
    seen: list[bytes] = []

    async def read(consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            seen.append(record.value)

    async with (
        a_producer(oncelog, enable_idempotence=True) as producer,
        a_consumer(oncelog, group=topic) as one,
        asyncio.TaskGroup() as tasks,
    ):
        one.subscribe([topic], listener=CommitOnRevoke(one))
        await send(producer, topic, before)
        reading = [tasks.create_task(read(one))]
        await until(lambda: len(seen) == 300)
        async with a_consumer(oncelog, group=topic) as two:
            two.subscribe([topic], listener=CommitOnRevoke(two))
            reading.append(tasks.create_task(read(two)))
            await until(lambda: {len(one.assignment()), len(two.assignment())} == {1, 2})
            await send(producer, topic, after)
            await until(lambda: len(seen) >= 600)
            reading[1].cancel()
        # The one that stays takes over what the other one had.
        await until(lambda: len(one.assignment()) == 3)
        reading[0].cancel()

    assert sorted(seen) == sorted(before + after)
