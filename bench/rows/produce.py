"""How fast records go in: idempotent, acks=all, 1 KiB each, 4 partitions, batches of 256 KiB."""

import time
from collections.abc import Sequence

from bench.load import bulk_producer, delete_topic, produce, send_one
from bench.rows import Kind, Scale
from bench.servers import Contender
from bench.table import Row, Target

ROW = Row(
    name="produce, idempotent, acks=all",
    unit="MB/s",
    target=Target(ratio_at_least=1.5),
    more_is_better=True,
)


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Fill a topic, and delete it again."""
    topic = f"produce-{time.monotonic_ns()}"
    client = bulk_producer(contender.server)
    send_one(client, topic, b"hello")
    rate = produce(client, topic, scale.bulk_records) / 1e6
    delete_topic(contender.server, topic)
    return [rate]


KIND = Kind(rows=[ROW], measure=measure)
