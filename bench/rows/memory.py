"""Resident memory: of a server that has nothing to do, and after a load in and out."""

import time
from collections.abc import Sequence
from typing import Final

from bench.load import bulk_producer, consume, produce, producer, send_one
from bench.rows import Kind, Repeat, Scale
from bench.servers import Contender, resident_mb
from bench.table import Row, Target

IDLE = Row(name="resident memory, idle", unit="MB", target=Target(ours_at_most=60))
LOADED = Row(name="resident memory, after the load", unit="MB", target=Target(ours_at_most=120))

#: A server that has just started may still be at work.
SETTLE_S: Final = 1.0


def measure(contender: Contender, scale: Scale) -> Sequence[float]:
    """Look at a new server, put it under load, and look again."""
    server = contender.server
    send_one(producer(server, {"acks": "all"}), "first", b"hello")
    time.sleep(SETTLE_S)
    idle = resident_mb(server)
    client = bulk_producer(server)
    send_one(client, "load", b"hello")
    produce(client, "load", scale.bulk_records)
    consume(server, "load", scale.bulk_records)
    return [idle, resident_mb(server)]


KIND = Kind(rows=[IDLE, LOADED], measure=measure, repeat=Repeat.ONCE)
