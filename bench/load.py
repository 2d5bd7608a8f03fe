"""The client's side: the same librdkafka, with the same settings, against either server."""

import os
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.servers import PARTITIONS, Server

RECORD_BYTES: Final = 1024
BATCH_BYTES: Final = 256 << 10
#: As many records as make one batch go to a partition before it is the next one's turn.
BURST: Final = BATCH_BYTES // RECORD_BYTES
#: No load may last longer, whatever its count.
LIMIT_S: Final = 60.0


class LoadFailed(Exception):
    """The server did not take or give what it should have."""


def producer(server: Server, settings: Mapping[str, object]) -> Producer:
    """A producer that keeps quiet: a server that is gone is no news here."""
    return Producer({"bootstrap.servers": server.bootstrap_servers, "log_level": 0, **settings})


def send_one(client: Producer, topic: str, value: bytes, *, partition: int = 0) -> None:
    """Send one record and wait for its acknowledgement."""
    answers: list[KafkaError | None] = []

    def told(error: KafkaError | None, message: Message) -> None:
        answers.append(error)

    client.produce(topic, value, partition=partition, on_delivery=told)
    deadline = time.monotonic() + LIMIT_S
    while not answers:
        client.poll(1.0)
        if time.monotonic() > deadline:
            raise LoadFailed(f"{topic}: no acknowledgement within {LIMIT_S} s")
    if answers[0] is not None:
        raise LoadFailed(f"{topic}: {answers[0]}")


def bulk_producer(server: Server) -> Producer:
    """Idempotent, acks=all, batches of 256 KiB."""
    return producer(
        server,
        {
            "enable.idempotence": True,
            "acks": "all",
            "batch.size": BATCH_BYTES + 1024,  # and room for the records' own overhead
            "batch.num.messages": BURST,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 64 << 10,
            "queue.buffering.max.messages": 100_000,
        },
    )


def produce(client: Producer, topic: str, count: int) -> float:
    """Send at least `count` records of 1 KiB to all partitions; returns bytes per second.

    The producer has been used before, so neither its connection nor its topic is part of the time.
    """
    burst = [{"value": os.urandom(RECORD_BYTES)}] * BURST
    began = time.monotonic()
    sent = partition = 0
    while sent < count and time.monotonic() - began < LIMIT_S:
        taken = client.produce_batch(topic, burst, partition=partition)
        sent += taken
        partition = (partition + 1) % PARTITIONS
        if taken < BURST:
            client.poll(0.001)
    left = client.flush(LIMIT_S)
    if left:
        raise LoadFailed(f"{topic}: {left} of {sent} records are not acknowledged")
    return sent * RECORD_BYTES / (time.monotonic() - began)


def delete_topic(server: Server, topic: str) -> None:
    """Remove what a round has written: the next one should find the page cache as this one did."""
    client = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    client.delete_topics([topic])[topic].result(LIMIT_S)


def consume(server: Server, topic: str, count: int) -> float:
    """Read the first `count` records of all partitions, read_committed; returns bytes per second."""
    client = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "log_level": 0,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    try:
        client.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        # The first record is not part of the time: before it the client still finds its way.
        received = len(_some(client, 1))
        began = time.monotonic()
        while received < count:
            # No more than there are: the client would wait for the rest.
            messages = _some(client, min(10_000, count - received))
            if not messages or time.monotonic() - began > LIMIT_S:
                raise LoadFailed(f"{topic}: {received} of {count} records came")
            received += len(messages)
        return (received - 1) * RECORD_BYTES / (time.monotonic() - began)
    finally:
        client.close()


def _some(client: Consumer, count: int) -> list[Message]:
    messages = client.consume(count, timeout=10.0)
    for message in messages:
        error = message.error()
        if error is not None:
            raise LoadFailed(str(error))
    return messages
