"""From the start of the process to the first record that is acknowledged."""

import time
from collections.abc import Sequence

from bench.load import producer, send_one
from bench.rows import Kind, Repeat, Scale
from bench.servers import Contender
from bench.table import Row, Target

ROW = Row(
    name="start to first acknowledged record",
    unit="s",
    target=Target(ours_at_most=0.4, ratio_at_most=1 / 15),
)


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Start a server on a new directory and send it a record; it stays up for the other rows."""
    server = contender.restart()
    # Not idempotent: librdkafka waits 500 ms before it asks for a producer id a second time, and
    # that would be all one sees.
    client = producer(server, {"acks": "all", "linger.ms": 0})
    send_one(client, "first", b"hello")
    return [time.monotonic() - server.started_at_s]


KIND = Kind(rows=[ROW], measure=measure, repeat=Repeat.COLD)
