"""confluent-kafka (librdkafka) copies in transactions: consume, produce, commit offsets, all or nothing.

librdkafka speaks the first generation of transactions: it adds partitions, and keeps its epoch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.client import aftermath
from tests.client.test_confluent import WAIT_S, a_consumer, a_producer, send, take, until, values_of
from tests.peers.oncelog import Oncelog

COUNT = 300


class Copier:
    """One member of the group, with a producer of its own."""

    def __init__(self, consumer: Consumer, producer: Producer, source: str, target: str) -> None:
        self.consumer = consumer
        self.producer = producer
        self._source = source
        self._target = target
        producer.init_transactions(WAIT_S)
        consumer.subscribe([source])

    def read(self) -> list[Message]:
        return [
            message for message in self.consumer.consume(20, timeout=0.2) if not message.error()
        ]

    def begin(self, messages: Sequence[Message]) -> None:
        """Open a transaction and send what was read."""
        self.producer.begin_transaction()
        for message in messages:
            self.producer.produce(self._target, message.value(), partition=message.partition() or 0)

    def send_offsets(self, messages: Sequence[Message], metadata: object = None) -> None:
        ends = {message.partition(): (message.offset() or 0) + 1 for message in messages}
        offsets = [TopicPartition(self._source, part or 0, end) for part, end in ends.items()]
        metadata = metadata or self.consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction(offsets, metadata, WAIT_S)

    def abort(self) -> None:
        """Give the transaction up, and go back to where it began."""
        self.producer.abort_transaction(WAIT_S)
        self.rewind()

    def rewind(self) -> None:
        for place in self.consumer.committed(self.consumer.assignment(), WAIT_S):
            self.consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))

    def copy(self) -> int:
        """One transaction, if there is something to copy; answers how many records it moved."""
        messages = self.read()
        if not messages:
            return 0
        self.begin(messages)
        self.send_offsets(messages)
        self.producer.commit_transaction(WAIT_S)
        return len(messages)


@contextmanager
def a_copier(oncelog: Oncelog, source: str, target: str, name: str) -> Iterator[Copier]:
    """Its group has the name of the input."""
    producer = a_producer(oncelog, transactional_id=f"{source}-{name}")
    with a_consumer(oncelog, source, enable_auto_commit=False) as consumer:
        yield Copier(consumer, producer, source, target)


@pytest.fixture
def target(oncelog: Oncelog, topic: str) -> str:
    return oncelog.create_topic(f"{topic}-copy", partitions=3)


@pytest.fixture
def values(oncelog: Oncelog, topic: str) -> list[str]:
    """The input."""
    values = [f"{number}" for number in range(COUNT)]
    send(a_producer(oncelog), topic, values)
    return values


def copied(oncelog: Oncelog, target: str, count: int) -> list[str]:
    """What a reader of committed records finds, which is exactly so many."""
    with a_consumer(oncelog, f"{target}-reader", isolation_level="read_committed") as consumer:
        consumer.subscribe([target])
        return values_of(take(consumer, count))


def check(oncelog: Oncelog, topic: str, target: str, values: Sequence[str]) -> None:
    """Every record once, the group at the end of its input, and nothing left open."""
    assert aftermath.settled(oncelog.bootstrap_servers, (topic, target), prefix=topic).is_settled
    assert sorted(copied(oncelog, target, len(values))) == sorted(values)
    offsets = aftermath.committed(oncelog.bootstrap_servers, topic, topic)
    assert offsets == dict.fromkeys(range(3), len(values) // 3)


def until_copied(count: int, *copiers: Copier) -> None:
    done = 0

    def is_done() -> bool:
        nonlocal done
        done += sum(copier.copy() for copier in copiers)
        return done >= count

    until(is_done)


def test_a_copy_with_aborts_in_between_is_exact(
    oncelog: Oncelog, topic: str, target: str, values: list[str]
) -> None:
    with a_copier(oncelog, topic, target, "one") as copier:

        def copy_and_abort() -> bool:
            messages = copier.read()
            if messages:
                copier.begin(messages)
                copier.send_offsets(messages)
                assert copier.producer.flush(WAIT_S) == 0
                copier.abort()
            return bool(messages)

        for _ in range(4):
            until(copy_and_abort)
            until(lambda: copier.copy() > 0)
        until(lambda: copier.copy() == 0)

    check(oncelog, topic, target, values)
    state = aftermath.describe(oncelog.bootstrap_servers, f"{topic}-one")
    assert (state.transaction_state, state.producer_epoch) == ("CompleteCommit", 0)


def test_a_second_instance_fences_the_first(
    oncelog: Oncelog, topic: str, target: str, values: list[str]
) -> None:
    first_messages: list[Message] = []
    with a_copier(oncelog, topic, target, "same") as first:

        def has_read() -> bool:
            first_messages.extend(first.read())
            return bool(first_messages)

        until(has_read)
        first.begin(first_messages)
        first.send_offsets(first_messages)
        assert first.producer.flush(WAIT_S) == 0

        second = a_producer(oncelog, transactional_id=f"{topic}-same")
        second.init_transactions(WAIT_S)
        with pytest.raises(KafkaException) as caught:
            first.producer.commit_transaction(WAIT_S)
        error: KafkaError = caught.value.args[0]
        assert error.fatal()
        assert error.code() == KafkaError._FENCED
        with pytest.raises(KafkaException):
            first.producer.begin_transaction()
    with a_copier(oncelog, topic, target, "same") as third:
        until_copied(COUNT, third)

    check(oncelog, topic, target, values)
    state = aftermath.describe(oncelog.bootstrap_servers, f"{topic}-same")
    # The first had epoch 0, its transaction was aborted with 1, the second got 2 and the third 3.
    assert state.producer_epoch == 3


def test_g97_a_rebalance_in_the_middle_of_a_transaction_aborts_it(
    oncelog: Oncelog, topic: str, target: str, values: list[str]
) -> None:
    with a_copier(oncelog, topic, target, "one") as one:
        until(lambda: one.copy() > 0)
        messages: list[Message] = []

        def has_read() -> bool:
            messages.extend(one.read())
            return bool(messages)

        until(has_read)
        one.begin(messages)
        before = one.consumer.consumer_group_metadata()
        with a_copier(oncelog, topic, target, "two") as two:

            def is_shared() -> bool:
                one.consumer.poll(0.05)
                two.consumer.poll(0.05)
                sizes = {len(one.consumer.assignment()), len(two.consumer.assignment())}
                return sizes == {1, 2}

            until(is_shared)
            # What it read belongs to a generation that is over.
            with pytest.raises(KafkaException) as caught:
                one.send_offsets(messages, before)
            assert caught.value.args[0].txn_requires_abort()
            assert caught.value.args[0].code() == KafkaError.ILLEGAL_GENERATION
            one.abort()
            two.rewind()
            until(lambda: one.copy() + two.copy() == 0 and is_at_end(oncelog, topic))

    check(oncelog, topic, target, values)


def is_at_end(oncelog: Oncelog, topic: str) -> bool:
    return sum(aftermath.committed(oncelog.bootstrap_servers, topic, topic).values()) == COUNT
