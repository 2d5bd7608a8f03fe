"""confluent-kafka (librdkafka), with its own defaults, against our broker."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.peers.oncelog import Oncelog

WAIT_S = 20.0
FIRST_TIME_MS = 1_700_000_000_000


def a_producer(oncelog: Oncelog, **settings: object) -> Producer:
    return Producer(
        {"bootstrap.servers": oncelog.bootstrap_servers, "log_level": 0, **_dotted(settings)}
    )


@contextmanager
def a_consumer(oncelog: Oncelog, group: str, **settings: object) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": oncelog.bootstrap_servers,
            "log_level": 0,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **_dotted(settings),
        }
    )
    with closing(consumer):
        yield consumer


def _dotted(settings: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def send(
    producer: Producer, topic: str, values: Sequence[str], *, partitions: int = 3
) -> list[tuple[int, int]]:
    """Produce round robin; answers where each record went."""
    places: dict[str, tuple[int, int]] = {}

    def told(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        places[value.decode()] = (partition, offset)

    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions, on_delivery=told)
    assert producer.flush(WAIT_S) == 0
    return [places[value] for value in values]


def take(consumer: Consumer, count: int) -> list[Message]:
    """Exactly `count` records, and then none for a moment."""
    taken: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count and time.monotonic() < deadline:
        taken += consumer.consume(count, timeout=0.2)
    taken += consumer.consume(1, timeout=0.05)
    assert [message.error() for message in taken] == [None] * count
    return taken


def values_of(messages: Sequence[Message]) -> list[str]:
    return [str(message.value(), "utf-8") for message in messages]  # type: ignore[arg-type] # bytes


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    oncelog: Oncelog, topic: str
) -> None:
    values = [f"{number}" for number in range(3000)]

    places = send(a_producer(oncelog, enable_idempotence=True), topic, values)

    with a_consumer(oncelog, topic) as consumer:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(3)])
        messages = take(consumer, len(values))
    found = {(m.partition(), m.offset()): str(m.value(), "utf-8") for m in messages}  # type: ignore[arg-type] # bytes
    assert found == dict(zip(places, values, strict=True))
    assert places == [(number % 3, number // 3) for number in range(3000)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_comes_back_as_it_was_sent_with_every_codec(
    oncelog: Oncelog, topic: str, codec: str
) -> None:
    producer = a_producer(oncelog, compression_type=codec, linger_ms=20)
    headers: list[tuple[str, str | bytes | None]] = [
        ("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("trace", b"again"),
    ]  # fmt: skip

    for number in range(100):
        producer.produce(
            topic, f"value {number}" * 20, f"key {number}", partition=0,
            timestamp=FIRST_TIME_MS + number, headers=headers,
        )  # fmt: skip
    producer.produce(topic, None, "tombstone", partition=0)
    assert producer.flush(WAIT_S) == 0

    with a_consumer(oncelog, topic) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        messages = take(consumer, 101)
    assert [m.key() for m in messages[:100]] == [f"key {n}".encode() for n in range(100)]
    assert [m.value() for m in messages[:100]] == [(f"value {n}" * 20).encode() for n in range(100)]
    assert {m.timestamp() for m in messages[:100]} == {
        (TIMESTAMP_CREATE_TIME, FIRST_TIME_MS + n) for n in range(100)
    }
    assert messages[0].headers() == headers
    assert (messages[100].key(), messages[100].value()) == (b"tombstone", None)


def test_offsets_are_found_by_time(oncelog: Oncelog, topic: str) -> None:
    producer = a_producer(oncelog)
    for number in range(100):
        producer.produce(topic, b"x", partition=1, timestamp=FIRST_TIME_MS + 10 * number)
    assert producer.flush(WAIT_S) == 0

    with a_consumer(oncelog, topic) as consumer:
        asked = [TopicPartition(topic, 1, FIRST_TIME_MS + at) for at in (0, 505, 10_000)]
        found = [consumer.offsets_for_times([one], timeout=WAIT_S)[0].offset for one in asked]
        edges = consumer.get_watermark_offsets(TopicPartition(topic, 1), timeout=WAIT_S)

    # librdkafka answers -1, the end of the log, where no record is that young.
    assert found == [0, 51, -1]
    assert edges == (0, 100)


def test_a_consumer_goes_where_it_is_sent(oncelog: Oncelog, topic: str) -> None:
    send(a_producer(oncelog), topic, [f"{number}" for number in range(50)], partitions=1)

    with a_consumer(oncelog, topic) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        take(consumer, 50)
        consumer.seek(TopicPartition(topic, 0, 40))
        again = take(consumer, 10)
        position = consumer.position([TopicPartition(topic, 0)])[0].offset

    assert values_of(again) == [f"{number}" for number in range(40, 50)]
    assert position == 50


def test_a_group_resumes_at_what_it_committed(oncelog: Oncelog, topic: str) -> None:
    send(a_producer(oncelog), topic, [f"{number}" for number in range(100)], partitions=1)

    with a_consumer(oncelog, topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        first = [consumer.poll(WAIT_S) for _ in range(30)]
        assert first[-1] is not None
        consumer.commit(message=first[-1], asynchronous=False)
        committed = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    with a_consumer(oncelog, topic) as consumer:
        consumer.subscribe([topic])
        rest = take(consumer, 70)

    assert committed[0].offset == 30
    assert values_of(rest) == [f"{number}" for number in range(30, 100)]


@pytest.mark.parametrize("assignor", ["range,roundrobin", "cooperative-sticky"])
def test_two_members_share_the_work_and_nothing_is_read_twice(
    oncelog: Oncelog, topic: str, assignor: str
) -> None:
    before = [f"before {number}" for number in range(300)]
    after = [f"after {number}" for number in range(300)]
    producer = a_producer(oncelog, enable_idempotence=True)
    settings = {"partition_assignment_strategy": assignor}
    seen: list[Message] = []

    with (
        a_consumer(oncelog, topic, **settings) as one,
        a_consumer(oncelog, topic, **settings) as two,
    ):

        def poll_both() -> None:
            for consumer in (one, two):
                seen.extend(consumer.consume(50, timeout=0.05))

        def is_shared() -> bool:
            poll_both()
            return {len(one.assignment()), len(two.assignment())} == {1, 2}

        def is_read() -> bool:
            poll_both()
            return len(seen) >= len(before + after)

        send(producer, topic, before)
        one.subscribe([topic])
        seen += take(one, 300)
        two.subscribe([topic])
        until(is_shared)
        send(producer, topic, after)
        until(is_read)
        poll_both()
        two.close()
        # The one that stays takes over what the other one had.
        until(lambda: one.poll(0.1) is None and len(one.assignment()) == 3)

    assert sorted(values_of(seen)) == sorted(before + after)


def test_what_was_read_is_committed_by_itself_when_a_consumer_leaves(
    oncelog: Oncelog, topic: str
) -> None:
    send(a_producer(oncelog), topic, [f"{number}" for number in range(30)])

    with a_consumer(oncelog, topic) as consumer:
        consumer.subscribe([topic])
        take(consumer, 30)
    with a_consumer(oncelog, topic) as consumer:
        asked = [TopicPartition(topic, partition) for partition in range(3)]
        committed = consumer.committed(asked, timeout=WAIT_S)

    assert [each.offset for each in committed] == [10, 10, 10]
