"""How long it takes to commit a transaction that has written to ten partitions."""

import os
import statistics
import time
from collections.abc import Sequence
from typing import Final

from bench.load import LIMIT_S, LoadFailed
from bench.rows import Kind, Scale
from bench.servers import Contender, Server
from bench.table import Row, Target
from bench.transactions import create_topic, transactional_producer

P50 = Row(name="commit of 10 partitions, p50", unit="ms", target=Target(ratio_at_most=1.0))
P99 = Row(name="commit of 10 partitions, p99", unit="ms", target=Target(ratio_at_most=1.0))
TOPIC: Final = "commit"
PARTITIONS: Final = 10
RECORD_BYTES: Final = 100


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Write, wait for the acknowledgements, and measure the commit alone."""

    def create(server: Server) -> None:
        create_topic(server, TOPIC, PARTITIONS)

    contender.once("create the topic to commit to", create)
    client = transactional_producer(contender.server, TOPIC)
    value = os.urandom(RECORD_BYTES)
    times: list[float] = []
    deadline = time.monotonic() + LIMIT_S
    # The first one is not part of the time: the client still finds its way.
    for _ in range(1 + scale.commits):
        client.begin_transaction()
        for partition in range(PARTITIONS):
            client.produce(TOPIC, value, partition=partition)
        if client.flush(LIMIT_S):
            raise LoadFailed(f"{TOPIC}: no acknowledgement within {LIMIT_S} s")
        began = time.perf_counter()
        client.commit_transaction(LIMIT_S)
        times.append((time.perf_counter() - began) * 1000)
        if time.monotonic() > deadline:
            break
    percentiles = statistics.quantiles(times[1:], n=100)
    return [percentiles[49], percentiles[98]]


KIND = Kind(rows=[P50, P99], measure=measure)
