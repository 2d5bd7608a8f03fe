"""How fast records go in: idempotent, acks=all, 1 KiB each, 4 partitions, batches of 256 KiB."""

from collections.abc import Sequence

from bench.load import bulk_producer, produce, send_one
from bench.rows import Kind, Scale
from bench.servers import Contender
from bench.table import Row, Target

ROW = Row(
    name="produce, idempotent, acks=all",
    unit="MB/s",
    target=Target(ratio_at_least=1.5),
    more_is_better=True,
)
TOPIC = "produce"


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Fill a topic."""
    client = bulk_producer(contender.server)
    send_one(client, TOPIC, b"hello")
    return [produce(client, TOPIC, scale.bulk_records) / 1e6]


KIND = Kind(rows=[ROW], measure=measure)
