"""How fast committed records come out of a topic where every other transaction was aborted."""

import os
from collections.abc import Sequence
from typing import Final

from bench.load import BATCH_BYTES, LIMIT_S, RECORD_BYTES, LoadFailed, consume
from bench.rows import Kind, Scale
from bench.servers import PARTITIONS, Contender, Server
from bench.table import Row, Target
from bench.transactions import create_topic, transactional_producer

ROW = Row(
    name="consume, read_committed, half aborted",
    unit="MB/s",
    target=Target(ratio_at_least=1.0),
    more_is_better=True,
)
TOPIC: Final = "aborted"
#: In each partition, of each transaction.
RECORDS: Final = 64


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Read a topic from its beginning; what counts is what the reader is given."""
    pairs = scale.bulk_records // (2 * RECORDS * PARTITIONS)

    def fill(server: Server) -> None:
        create_topic(server, TOPIC, PARTITIONS)
        _fill(server, pairs)

    contender.once("fill the topic with aborted transactions", fill)
    return [consume(contender.server, TOPIC, pairs * RECORDS * PARTITIONS) / 1e6]


def _fill(server: Server, pairs: int) -> None:
    client = transactional_producer(server, TOPIC, {"batch.size": BATCH_BYTES, "linger.ms": 5})
    burst = [{"value": os.urandom(RECORD_BYTES)}] * RECORDS
    for number in range(2 * pairs):
        client.begin_transaction()
        for partition in range(PARTITIONS):
            client.produce_batch(TOPIC, burst, partition=partition)
        # Without this, an abort would throw away what has not been sent yet.
        if client.flush(LIMIT_S):
            raise LoadFailed(f"{TOPIC}: no acknowledgement within {LIMIT_S} s")
        if number % 2:
            client.commit_transaction(LIMIT_S)
        else:
            client.abort_transaction(LIMIT_S)


KIND = Kind(rows=[ROW], measure=measure)
