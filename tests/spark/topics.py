"""Topics for the tests of the source: written with a stock client, and read with one to compare."""

import asyncio
import time
from collections.abc import Iterable
from itertools import count
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from oncelog.client.admin import LATEST, list_offsets
from oncelog.client.cluster import Cluster
from oncelog.core.types import TopicPartition as Place

_numbers = count(1)


class Topic:
    """One topic on one broker."""

    def __init__(
        self, servers: str, *, partitions: int = 1, name: str | None = None, config: Any = None
    ) -> None:
        self.servers = servers
        self.name = name or f"source-{next(_numbers)}"
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._producers: dict[str, Producer] = {}
        self._config = config or {}
        self.create(partitions)

    def create(self, partitions: int) -> None:
        topic = NewTopic(self.name, partitions, 1, config=self._config)
        self._admin.create_topics([topic])[self.name].result(10)

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(10)

    def grow(self, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(10)
        # They know the topic as it was.
        self._producers.clear()

    def delete_before(self, partition: int, offset: int) -> None:
        """As retention does."""
        place = TopicPartition(self.name, partition, offset)
        self._admin.delete_records([place])[place].result(10)

    def write(
        self, values: Iterable[str | None], *, partition: int = 0, timestamp: int = 0, **more: Any
    ) -> None:
        producer = self._producer("")
        for value in values:
            producer.produce(self.name, value, partition=partition, timestamp=timestamp, **more)
        assert producer.flush(10) == 0

    def transact(
        self,
        values: Iterable[str],
        *,
        partition: int = 0,
        ends: bool | None = True,
        key: bytes | None = None,
    ) -> Producer:
        """One transaction: committed, aborted, or (None) left open."""
        producer = self._producer(f"{self.name}-{next(_numbers) if ends is None else ''}")
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, partition=partition, key=key)
        producer.flush(10)
        if ends is True:
            producer.commit_transaction(10)
            self.settle(partition)
        elif ends is False:
            producer.abort_transaction(10)
            self.settle(partition)
        return producer

    def settle(self, partition: int = 0) -> None:
        """Wait for the markers: a transaction is told to have ended before they are written."""
        place = Place(self.name, partition)
        for _ in range(1000):
            ends = asyncio.run(self._ends(place))
            if len(set(ends)) == 1:
                return
            time.sleep(0.01)
        raise AssertionError("the transaction does not end")

    async def _ends(self, place: Place) -> list[int | None]:
        async with await Cluster.open(self.servers) as cluster:
            return [
                (await list_offsets(cluster, {place: LATEST}, committed_only=each))[place]
                for each in (True, False)
            ]

    def consumed(self, partitions: int) -> list[Message]:
        """What a stock read_committed consumer sees, in the order of partitions and offsets."""
        settings = {"bootstrap.servers": self.servers, "group.id": self.name, "log_level": 0}
        consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
        consumer.assign(
            [TopicPartition(self.name, each, OFFSET_BEGINNING) for each in range(partitions)]
        )
        found, ended = [], set[int | None]()
        while len(ended) < partitions:
            message = consumer.poll(10)
            assert message is not None, "the consumer waits in vain"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def _producer(self, transactional_id: str) -> Producer:
        if transactional_id not in self._producers:
            settings = {"bootstrap.servers": self.servers, "linger.ms": 0, "log_level": 0}
            if transactional_id:
                settings["transactional.id"] = transactional_id
            producer = self._producers[transactional_id] = Producer(settings)
            if transactional_id:
                producer.init_transactions(10)
        return self._producers[transactional_id]
