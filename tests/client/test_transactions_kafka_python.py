"""kafka-python copies in transactions: consume, produce, commit offsets, all or nothing.

kafka-python speaks the first generation of transactions. Since version 3 its offsets say which
generation of the group they belong to.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.client import aftermath
from tests.client.test_kafka_python import (
    WAIT_S,
    a_consumer,
    a_producer,
    numbered,
    send,
    take,
    until,
)
from tests.peers.oncelog import Oncelog

with warnings.catch_warnings():
    # It reads its schemas with a function that Python 3.11 has deprecated and 3.13 has taken back.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import CommitFailedError, KafkaError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

COUNT = 300
Batch = Mapping[TopicPartition, Sequence[Any]]


class Copier:
    """One member of the group, with a producer of its own."""

    def __init__(
        self, consumer: KafkaConsumer, producer: KafkaProducer, source: str, target: str
    ) -> None:
        self.consumer = consumer
        self.producer = producer
        self._target = target
        producer.init_transactions()
        consumer.subscribe([source])

    def read(self) -> Batch:
        found: Batch = self.consumer.poll(timeout_ms=200, max_records=20)
        return found

    def begin(self, batch: Batch) -> None:
        """Open a transaction and send what was read."""
        self.producer.begin_transaction()
        futures = [
            self.producer.send(self._target, record.value, partition=record.partition)
            for records in batch.values()
            for record in records
        ]
        for future in futures:
            future.get(timeout=WAIT_S)

    def send_offsets(self, batch: Batch, metadata: Any = None) -> None:
        offsets = {
            place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for place, records in batch.items()
        }
        metadata = metadata or self.consumer.group_metadata()
        self.producer.send_offsets_to_transaction(offsets, metadata)

    def abort(self) -> None:
        """Give the transaction up, and go back to where it began."""
        self.producer.abort_transaction()
        self.rewind()

    def rewind(self) -> None:
        for place in self.consumer.assignment():
            self.consumer.seek(place, self.consumer.committed(place) or 0)

    def copy(self, *, commits: bool = True) -> int:
        """One transaction, if there is something to copy; answers how many records it moved."""
        batch = self.read()
        if not batch:
            return 0
        self.begin(batch)
        self.send_offsets(batch)
        if commits:
            self.producer.commit_transaction()
        else:
            self.abort()
        return sum(map(len, batch.values()))


@contextmanager
def a_copier(oncelog: Oncelog, source: str, target: str, name: str) -> Iterator[Copier]:
    """Its group has the name of the input."""
    settings: dict[str, Any] = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    with (
        a_producer(oncelog, transactional_id=f"{source}-{name}") as producer,
        a_consumer(oncelog, group_id=source, **settings) as consumer,
    ):
        assert consumer.partitions_for_topic(source)  # Before it joins: see `a_consumer`.
        yield Copier(consumer, producer, source, target)


@pytest.fixture
def target(oncelog: Oncelog, topic: str) -> str:
    return oncelog.create_topic(f"{topic}-copy", partitions=3)


@pytest.fixture
def values(oncelog: Oncelog, topic: str) -> list[bytes]:
    """The input."""
    values = numbered(COUNT)
    with a_producer(oncelog) as producer:
        send(producer, topic, values)
    return values


def check(oncelog: Oncelog, topic: str, target: str, values: Sequence[bytes]) -> None:
    """Every record once, the group at the end of its input, and nothing left open."""
    left = aftermath.settled(oncelog.bootstrap_servers, (topic, target), prefix=topic)
    assert left.is_settled, left
    with a_consumer(oncelog, target, isolation_level="read_committed") as consumer:
        records = take(consumer, len(values))
    assert sorted(record.value for record in records) == sorted(values)
    offsets = aftermath.committed(oncelog.bootstrap_servers, topic, topic)
    assert offsets == dict.fromkeys(range(3), len(values) // 3)


def is_at_end(oncelog: Oncelog, topic: str) -> bool:
    return sum(aftermath.committed(oncelog.bootstrap_servers, topic, topic).values()) == COUNT


def read_something(copier: Copier) -> Batch:
    batch: Batch = {}

    def has_read() -> bool:
        nonlocal batch
        batch = copier.read()
        return bool(batch)

    until(has_read)
    return batch


def test_a_copy_with_aborts_in_between_is_exact(
    oncelog: Oncelog, topic: str, target: str, values: list[bytes]
) -> None:
    with a_copier(oncelog, topic, target, "one") as copier:
        for _ in range(4):
            until(lambda: copier.copy(commits=False) > 0)
            until(lambda: copier.copy() > 0)
        until(lambda: copier.copy() == 0 and is_at_end(oncelog, topic))

    check(oncelog, topic, target, values)
    state = aftermath.describe(oncelog.bootstrap_servers, f"{topic}-one")
    assert (state.transaction_state, state.producer_epoch) == ("CompleteCommit", 0)


def test_a_second_instance_fences_the_first(
    oncelog: Oncelog, topic: str, target: str, values: list[bytes]
) -> None:
    with a_copier(oncelog, topic, target, "same") as first:
        batch = read_something(first)
        first.begin(batch)
        first.send_offsets(batch)
        with a_producer(oncelog, transactional_id=f"{topic}-same") as second:
            second.init_transactions()
            with pytest.raises(ProducerFencedError):
                first.producer.commit_transaction()
            with pytest.raises(KafkaError):
                first.producer.begin_transaction()
    with a_copier(oncelog, topic, target, "same") as third:
        until(lambda: third.copy() == 0 and is_at_end(oncelog, topic))

    check(oncelog, topic, target, values)
    state = aftermath.describe(oncelog.bootstrap_servers, f"{topic}-same")
    # The first had epoch 0, its transaction was aborted with 1, the second got 2 and the third 3.
    assert state.producer_epoch == 3


def test_a_rebalance_in_the_middle_of_a_transaction_aborts_it(
    oncelog: Oncelog, topic: str, target: str, values: list[bytes]
) -> None:
    with a_copier(oncelog, topic, target, "one") as one:
        until(lambda: one.copy() > 0)
        batch = read_something(one)
        one.begin(batch)
        before = one.consumer.group_metadata()
        with a_copier(oncelog, topic, target, "two") as two:

            def is_shared() -> bool:
                # At once and with patience: a poll that times out while it joins forgets the join.
                with ThreadPoolExecutor() as pool:
                    polls = [pool.submit(c.consumer.poll, timeout_ms=5000) for c in (one, two)]
                for poll in polls:
                    poll.result()
                sizes = {len(one.consumer.assignment()), len(two.consumer.assignment())}
                return sizes == {1, 2}

            until(is_shared)
            # What it read belongs to a generation that is over.
            with pytest.raises(CommitFailedError):
                one.send_offsets(batch, before)
            one.abort()
            two.rewind()
            until(lambda: one.copy() + two.copy() == 0 and is_at_end(oncelog, topic))

    check(oncelog, topic, target, values)
