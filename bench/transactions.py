"""The client's side of transactions: producers in a few processes, so that they are not what is slow.

Each producer is a thread with a client of its own, and writes one record in each transaction. All of
them are identified and warm before the first one counts.
"""

import multiprocessing
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.load import LIMIT_S, LoadFailed, producer
from bench.servers import PARTITIONS, Server

#: More threads than this in one process wait for each other.
PRODUCERS_IN_PROCESS: Final = 13


def transactional_producer(
    server: Server, transactional_id: str, settings: Mapping[str, object] | None = None
) -> Producer:
    """A producer that has its identity."""
    client = producer(
        server, {"transactional.id": transactional_id, "linger.ms": 0, **(settings or {})}
    )
    client.init_transactions(LIMIT_S)
    return client


def transact(client: Producer, topic: str, value: bytes, partition: int) -> None:
    """One record, one transaction."""
    client.begin_transaction()
    client.produce(topic, value, partition=partition)
    client.commit_transaction(LIMIT_S)


def create_topic(server: Server, topic: str, partitions: int) -> None:
    """A topic, unless it is there already."""
    client = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    try:
        client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(LIMIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise LoadFailed(str(error)) from error


def transactions_per_second(
    server: Server, topic: str, *, producers: int, for_s: float, value: bytes
) -> float:
    """Let so many producers commit one transaction after the other, for so long."""
    create_topic(server, topic, PARTITIONS)
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        ends: list[Connection] = []
        for first in range(0, producers, PRODUCERS_IN_PROCESS):
            numbers = range(first, min(first + PRODUCERS_IN_PROCESS, producers))
            ours, theirs = context.Pipe()
            arguments = (theirs, server, topic, numbers, value)
            process = context.Process(target=_run_producers, args=arguments, daemon=True)
            process.start()
            # A child that failed closes its end only if it holds the only one.
            theirs.close()
            stack.callback(process.join)
            stack.callback(process.terminate)
            ends.append(ours)
        _hear(ends)
        for end in ends:
            end.send(for_s)
        return sum(rate for rates in _hear(ends) for rate in rates)


def _hear(ends: Sequence[Connection]) -> list[list[float]]:
    """What each process has to say; all wait for the slowest."""
    heard = []
    for end in ends:
        try:
            if not end.poll(2 * LIMIT_S):
                raise LoadFailed("producers of transactions did not answer")
            answer = end.recv()
        except EOFError:
            raise LoadFailed("a process of producers ended before its time") from None
        if isinstance(answer, str):
            raise LoadFailed(answer)
        heard.append(answer)
    return heard


def _run_producers(
    end: Connection, server: Server, topic: str, numbers: Sequence[int], value: bytes
) -> None:
    """The main function of a process: say that all are ready, wait for the word, count."""
    try:
        clients = [transactional_producer(server, f"{topic}-{number}") for number in numbers]
        for number, client in zip(numbers, clients, strict=True):
            transact(client, topic, value, number % PARTITIONS)
        end.send([])
        for_s: float = end.recv()
        end.send(_count(clients, topic, value, numbers, for_s))
    except KafkaException as error:
        end.send(f"{topic}: {error}")


def _count(
    clients: Sequence[Producer], topic: str, value: bytes, numbers: Sequence[int], for_s: float
) -> list[float]:
    """How many transactions each client commits in a second."""
    rates: list[float] = []
    failures: list[KafkaException] = []
    began = time.monotonic()

    def run(number: int, client: Producer) -> None:
        count = 0
        try:
            while time.monotonic() - began < for_s:
                transact(client, topic, value, number % PARTITIONS)
                count += 1
        except KafkaException as error:
            failures.append(error)
        rates.append(count / (time.monotonic() - began))

    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(numbers, clients, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return rates
