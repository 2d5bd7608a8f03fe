"""How fast committed records come out again."""

from collections.abc import Sequence
from typing import Final

from bench.load import bulk_producer, consume, produce, send_one
from bench.rows import Kind, Scale
from bench.servers import Contender, Server
from bench.table import Row, Target

ROW = Row(
    name="consume, read_committed",
    unit="MB/s",
    target=Target(ratio_at_least=1.0),
    more_is_better=True,
)
TOPIC: Final = "consume"


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Read a topic from its beginning; reading does not use it up, so it is filled once."""

    def fill(server: Server) -> None:
        client = bulk_producer(server)
        send_one(client, TOPIC, b"hello")
        produce(client, TOPIC, scale.bulk_records)

    contender.once("fill the topic to consume", fill)
    return [consume(contender.server, TOPIC, scale.bulk_records) / 1e6]


KIND = Kind(rows=[ROW], measure=measure)
