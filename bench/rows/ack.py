"""How long one record takes from the call to its acknowledgement, when nothing else is under way."""

import os
import statistics
import time
from collections.abc import Sequence
from typing import Final

from bench.load import LIMIT_S, RECORD_BYTES, producer, send_one
from bench.rows import Kind, Scale
from bench.servers import Contender
from bench.table import Row, Target

P50 = Row(name="ack of one record, p50", unit="ms", target=Target(ratio_at_most=1.0))
P99 = Row(name="ack of one record, p99", unit="ms", target=Target(ratio_at_most=1.0))
TOPIC: Final = "ack"


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Send records one after the other."""
    client = producer(contender.server, {"acks": "all", "enable.idempotence": True, "linger.ms": 0})
    value = os.urandom(RECORD_BYTES)
    send_one(client, TOPIC, value)
    times = []
    deadline = time.monotonic() + LIMIT_S
    for _ in range(scale.ack_records):
        began = time.perf_counter()
        send_one(client, TOPIC, value)
        times.append((time.perf_counter() - began) * 1000)
        if time.monotonic() > deadline:
            break
    percentiles = statistics.quantiles(times, n=100)
    return [percentiles[49], percentiles[98]]


KIND = Kind(rows=[P50, P99], measure=measure)
