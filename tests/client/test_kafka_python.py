"""kafka-python, with its own defaults, against our broker. (Its producer is idempotent by default.)

It compresses with libraries that one installs beside it; the codecs that are here are tried, and
those of the others are tried by the two clients that bring their own.
"""

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.peers.oncelog import Oncelog

with warnings.catch_warnings():
    # It reads its schemas with a function that Python 3.11 has deprecated and 3.13 has taken back.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.codec import has_lz4, has_snappy, has_zstd
    from kafka.structs import OffsetAndMetadata

WAIT_S = 20.0
FIRST_TIME_MS = 1_700_000_000_000
OPTIONAL = {"snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}
CODECS = [None, "gzip", *(name for name, is_here in OPTIONAL.items() if is_here())]


@contextmanager
def a_producer(oncelog: Oncelog, **settings: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=oncelog.bootstrap_servers, **settings)
    try:
        yield producer
    finally:
        producer.close(timeout=WAIT_S)


@contextmanager
def a_consumer(oncelog: Oncelog, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=oncelog.bootstrap_servers,
        auto_offset_reset="earliest",
        **settings,
    )
    try:
        # A member that joins before it knows its topics joins again when it does; and should a poll
        # time out in the middle of that, kafka-python 3.0.12 forgets the join: it has noted what it
        # assigned, so it sees no need, waits for nothing and sends no heartbeat ever after.
        for topic in topics:
            assert consumer.partitions_for_topic(topic)
        yield consumer
    finally:
        consumer.close()


def send(
    producer: KafkaProducer, topic: str, values: Sequence[bytes], *, partitions: int = 3
) -> list[tuple[int, int]]:
    """Produce round robin; answers where each record went."""
    futures = [
        producer.send(topic, value, partition=number % partitions)
        for number, value in enumerate(values)
    ]
    told = [future.get(timeout=WAIT_S) for future in futures]
    return [(one.partition, one.offset) for one in told]


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    """Exactly `count` records, and then none for a moment."""
    taken: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            taken += records
    for records in consumer.poll(timeout_ms=50).values():
        taken += records
    assert len(taken) == count
    return taken


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def numbered(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    oncelog: Oncelog, topic: str
) -> None:
    values = numbered(1500)

    with a_producer(oncelog) as producer:
        places = send(producer, topic, values)

    with a_consumer(oncelog) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        records = take(consumer, len(values))
    found = {(record.partition, record.offset): record.value for record in records}
    assert found == dict(zip(places, values, strict=True))
    assert places == [(number % 3, number // 3) for number in range(1500)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_comes_back_as_it_was_sent_with_every_codec(
    oncelog: Oncelog, topic: str, codec: str | None
) -> None:
    headers = [("trace", b"\x00\xff"), ("empty", b""), ("trace", b"again")]

    with a_producer(oncelog, compression_type=codec, linger_ms=20) as producer:
        for number in range(100):
            producer.send(
                topic, b"value" * 20, key=b"%d" % number, partition=0,
                timestamp_ms=FIRST_TIME_MS + number, headers=headers,
            )  # fmt: skip
        producer.send(topic, None, key=b"tombstone", partition=0).get(timeout=WAIT_S)

    with a_consumer(oncelog) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = take(consumer, 101)
    assert [record.key for record in records[:100]] == numbered(100)
    assert {record.value for record in records[:100]} == {b"value" * 20}
    assert [record.timestamp - FIRST_TIME_MS for record in records[:100]] == list(range(100))
    assert list(records[0].headers) == headers
    assert (records[100].key, records[100].value) == (b"tombstone", None)


def test_offsets_are_found_by_time(oncelog: Oncelog, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    with a_producer(oncelog) as producer:
        for number in range(100):
            at_ms = FIRST_TIME_MS + 10 * number
            producer.send(topic, b"x", partition=1, timestamp_ms=at_ms)
        producer.flush(timeout=WAIT_S)

    with a_consumer(oncelog) as consumer:
        asked = [FIRST_TIME_MS, FIRST_TIME_MS + 505, FIRST_TIME_MS + 10_000]
        found = [consumer.offsets_for_times({partition: at})[partition] for at in asked]
        first = consumer.beginning_offsets([partition])
        end = consumer.end_offsets([partition])

    assert [each and (each.offset, each.timestamp - FIRST_TIME_MS) for each in found] == [
        (0, 0), (51, 510), None,
    ]  # fmt: skip
    assert (first[partition], end[partition]) == (0, 100)


def test_a_consumer_goes_where_it_is_sent(oncelog: Oncelog, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with a_producer(oncelog) as producer:
        send(producer, topic, numbered(50), partitions=1)

    with a_consumer(oncelog) as consumer:
        consumer.assign([partition])
        take(consumer, 50)
        consumer.seek(partition, 40)
        again = take(consumer, 10)
        position = consumer.position(partition)

    assert [record.value for record in again] == numbered(50)[40:]
    assert position == 50


def test_a_group_resumes_at_what_it_committed(oncelog: Oncelog, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with a_producer(oncelog) as producer:
        send(producer, topic, numbered(100), partitions=1)

    with a_consumer(oncelog, topic, group_id=topic, enable_auto_commit=False) as consumer:
        take(consumer, 100)
        consumer.commit({partition: OffsetAndMetadata(30, "why", -1)})
        committed = consumer.committed(partition)
    with a_consumer(oncelog, topic, group_id=topic) as consumer:
        rest = take(consumer, 70)

    assert committed == 30
    assert [record.value for record in rest] == numbered(100)[30:]


class Member(threading.Thread):
    """A member of a group that reads in a thread of its own, for a consumer belongs to one."""

    def __init__(self, oncelog: Oncelog, topic: str, seen: list[bytes]) -> None:
        super().__init__()
        self._oncelog = oncelog
        self._topic = topic
        self._seen = seen
        self._is_done = threading.Event()
        self.partitions = 0

    def run(self) -> None:
        with a_consumer(self._oncelog, self._topic, group_id=self._topic) as consumer:
            while not self._is_done.is_set():
                for records in consumer.poll(timeout_ms=50).values():
                    self._seen.extend(record.value for record in records)
                self.partitions = len(consumer.assignment())

    def leave(self) -> None:
        self._is_done.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "the consumer does not close"


def test_two_members_share_the_work_and_nothing_is_read_twice(oncelog: Oncelog, topic: str) -> None:
    before, after = numbered(300, "before "), numbered(300, "after ")
    seen: list[bytes] = []
    one, two = Member(oncelog, topic, seen), Member(oncelog, topic, seen)

    with a_producer(oncelog) as producer:
        send(producer, topic, before)
        one.start()
        until(lambda: len(seen) == 300)
        two.start()
        until(lambda: {one.partitions, two.partitions} == {1, 2})
        send(producer, topic, after)
        until(lambda: len(seen) >= 600)
        two.leave()
        # The one that stays takes over what the other one had.
        until(lambda: one.partitions == 3)
        one.leave()

    assert sorted(seen) == sorted(before + after)
