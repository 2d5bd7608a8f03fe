"""Spark's source, sink and streams: ours beside Spark's own connector, in one session on one server."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from bench.load import delete_topic
from bench.rows import Kind, Repeat, Scale
from bench.servers import PARTITIONS, Contender, Server
from bench.spark import (
    Copy,
    check_written,
    copy_stock,
    copy_with_pipeline,
    copy_with_sink,
    read,
    rows,
    write_ours,
    write_stock,
)
from bench.table import Row, Target
from bench.transactions import create_topic

#: Rows travel in so many micro-batches.
BATCHES: Final = 10


def kinds() -> Mapping[str, Kind]:
    """All of them on Oncelog, and again on Apache Kafka."""
    measures: Mapping[str, tuple[str, Callable[[Contender, Scale], Sequence[float]]]] = {
        "sink": ("Spark sink", measure_sink),
        "source": ("Spark source", measure_source),
        "copy": ("Spark stream copy, source and sink", partial(measure_copy, copy_with_sink)),
        "pipeline": ("Spark stream copy, pipeline", partial(measure_copy, copy_with_pipeline)),
    }
    hosts = {"oncelog": ("", "Oncelog"), "kafka": ("-kafka", "Kafka")}
    return {
        f"spark-{name}{suffix}": _kind(f"{title}, on {shown}", measure, host)
        for host, (suffix, shown) in hosts.items()
        for name, (title, measure) in measures.items()
    }


def _kind(title: str, measure: Callable[[Contender, Scale], Sequence[float]], host: str) -> Kind:
    row = Row(name=title, unit="1/s", target=Target(ratio_at_least=1.0), more_is_better=True)
    # How a server syncs is no matter of Spark's: one durability is enough.
    return Kind(rows=[row], measure=measure, repeat=Repeat.LONG, on=host, modes=("os",))


def measure_sink(contender: Contender, scale: Scale) -> Sequence[float]:
    """Write rows from memory."""
    put = write_ours if contender.is_ours else write_stock
    rows(scale.spark_rows)

    def fill(server: Server, topic: str) -> None:
        put(server, topic, scale.spark_rows)

    return [_rate(contender.server, scale.spark_rows, fill)]


def measure_source(contender: Contender, scale: Scale) -> Sequence[float]:
    """Read what one transaction has written."""
    source = _filled(contender, scale)
    began = time.monotonic()
    read(contender.server, source, "oncelog" if contender.is_ours else "kafka")
    return [scale.spark_rows / (time.monotonic() - began)]


def measure_copy(ours: Copy, contender: Contender, scale: Scale) -> Sequence[float]:
    """Read from one topic and write to another, a tenth at a time."""
    source = _filled(contender, scale)
    copy = ours if contender.is_ours else copy_stock

    def fill(server: Server, topic: str) -> None:
        copy(server, source, topic, scale.spark_rows // BATCHES)

    return [_rate(contender.server, scale.spark_rows, fill)]


def _filled(contender: Contender, scale: Scale) -> str:
    """A topic to read from."""
    topic = "spark-source"

    def fill(server: Server) -> None:
        create_topic(server, topic, PARTITIONS)
        write_ours(server, topic, scale.spark_rows)
        check_written(server, topic, scale.spark_rows)

    contender.once("fill the topic for Spark to read", fill)
    return topic


def _rate(server: Server, count: int, fill: Callable[[Server, str], None]) -> float:
    """How many rows in a second come into a topic, which is deleted again."""
    topic = f"spark-{time.monotonic_ns()}"
    create_topic(server, topic, PARTITIONS)
    began = time.monotonic()
    fill(server, topic)
    seconds = time.monotonic() - began
    check_written(server, topic, count)
    delete_topic(server, topic)
    return count / seconds
