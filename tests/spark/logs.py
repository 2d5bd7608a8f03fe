"""Topics for tests: made, filled and read with other people's clients."""

import asyncio
import itertools
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

from oncelog.client.admin import create_topic
from oncelog.client.cluster import Cluster

_numbers = itertools.count()


def fresh(name: str) -> str:
    """A name that no other test has."""
    return f"{name}-{next(_numbers)}-{time.monotonic_ns() % 1_000_000}"


def make_topics(servers: str, *names: str, partitions: int = 4, **configs: str) -> None:
    """Create topics; settings are written with underscores."""

    async def make() -> None:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        async with await Cluster.open(servers) as cluster:
            for name in names:
                await create_topic(cluster, name, partitions=partitions, configs=settings)

    asyncio.run(make())


def fill(servers: str, topic: str, values: Sequence[bytes], *, keys: bool = True) -> None:
    """Write values with librdkafka, each under itself as its key."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value=value, key=value if keys else None)
        producer.poll(0)
    assert producer.flush(30) == 0


def read_all(
    servers: str, *topics: str, isolation: str = "read_committed"
) -> list[tuple[str, int, bytes | None, bytes | None]]:
    """Every record that a reader sees now: topic, partition, key, value, in order by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": fresh("reader"),
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        places = [
            TopicPartition(topic, partition, 0)
            for topic in topics
            for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ]
        consumer.assign(places)
        open_ones = {(place.topic, place.partition) for place in places}
        found = []
        deadline = time.monotonic() + 60
        while open_ones:
            assert time.monotonic() < deadline, f"no end of {open_ones}"
            for message in consumer.consume(10_000, timeout=0.2):
                place = (str(message.topic()), int(message.partition() or 0))
                if message.error():
                    open_ones.discard(place)
                else:
                    found.append((*place, message.key(), message.value()))
        return found
    finally:
        consumer.close()


def values_of(servers: str, *topics: str, isolation: str = "read_committed") -> list[bytes | None]:
    """The values of every record that a reader sees, sorted."""
    found = [value for *_, value in read_all(servers, *topics, isolation=isolation)]
    return sorted(found, key=lambda value: value or b"")
