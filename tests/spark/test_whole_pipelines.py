"""Whole pipelines: run again from nothing, through a full disk, and three of them in a row."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import oncelog
from oncelog.spark import Event, Pipeline, Sink, Source, Step, Summary
from oncelog.testing import disk_full, restart
from tests.spark.logs import fill, fresh, make_topics, read_all, values_of

VALUES = [b"%04d" % number for number in range(240)]


class Died(BaseException):
    """The driver is gone at this point: nothing after it happens."""


@pytest.fixture(scope="module")
def broker() -> Iterator[oncelog.Broker]:
    """One whose disk can be full, and that can be restarted."""
    with oncelog.Broker(faults=True) as running:
        yield running


def tagged(tag: str, rows: DataFrame) -> DataFrame:
    return rows.select("key", F.concat(F.col("value"), F.lit(tag).cast("binary")).alias("value"))


def run(
    spark: SparkSession,
    broker: oncelog.Broker,
    source: str,
    target: str,
    *,
    tag: str = "",
    batch: int = 90,
    watch: Callable[[Event, Sink], None] = lambda event, sink: None,
) -> Summary:
    """Copy a topic under the name of the target, with something added to each value."""
    servers = broker.bootstrap_servers

    def watching(event: Event) -> None:
        watch(event, sink)

    sink = Sink(servers, topic=target, transactional_id=f"to-{target}", watch=watching)
    return Pipeline(
        source=Source(servers, subscribe=source, maxOffsetsPerTrigger=batch),
        sink=sink,
        transform=partial(tagged, tag),
        trigger="available_now",
    ).run(spark)


def test_k164_the_same_input_gives_the_same_output_again(
    spark: SparkSession, broker: oncelog.Broker
) -> None:
    """In batches of another size too; what differs is only the order between keys."""
    source, first, second = fresh("in"), fresh("first"), fresh("second")
    make_topics(broker.bootstrap_servers, source, first, second, partitions=2)
    for number in range(3):
        # Each key comes back, so that there is an order to keep.
        keys = VALUES[:: number + 1]
        fill(broker.bootstrap_servers, source, keys)
    run(spark, broker, source, first)
    run(spark, broker, source, second, batch=1000)

    def by_key(topic: str) -> dict[tuple[int, bytes | None], list[bytes | None]]:
        found = defaultdict(list)
        for _, partition, key, value in read_all(broker.bootstrap_servers, topic):
            found[partition, key].append(value)
        return found

    again = by_key(second)
    assert again == by_key(first)
    assert sum(map(len, again.values())) == 240 + 120 + 80


def test_k167_a_full_disk_is_waited_out_and_the_output_is_exact(
    spark: SparkSession, broker: oncelog.Broker
) -> None:
    source, target = fresh("in"), fresh("out")
    make_topics(broker.bootstrap_servers, source, target, partitions=2)
    fill(broker.bootstrap_servers, source, VALUES)
    full = broker.fault(disk_full(f"{target}-*"))

    def make_room() -> None:
        full.wait(3)
        full.end()

    somebody = threading.Thread(target=make_room)
    somebody.start()
    try:
        assert run(spark, broker, source, target).rows == len(VALUES)
    finally:
        somebody.join()
    assert full.hits >= 3
    assert values_of(broker.bootstrap_servers, target) == VALUES


def test_k163_a_chain_of_three_pipelines_whose_drivers_die_and_whose_broker_restarts(
    spark: SparkSession, broker: oncelog.Broker
) -> None:
    """In one JVM, with injected deaths; tests/kill does it with SIGKILL."""
    topics = [fresh(name) for name in ("in", "once", "twice", "out")]
    make_topics(broker.bootstrap_servers, *topics, partitions=2)
    fill(broker.bootstrap_servers, topics[0], VALUES)
    chosen = random.Random(163)
    steps = [Step.FENCED, Step.PLANNED, Step.WRITTEN, Step.RECORDED, Step.COMMITTED]

    def dying(step: Step, event: Event, sink: Sink) -> None:
        if event.step is step:
            sink.writer._abort = lambda: None  # type: ignore[union-attr,method-assign]
            raise Died

    deaths = 0
    for life in range(9):
        stage = life % 3
        try:
            run(
                spark,
                broker,
                topics[stage],
                topics[stage + 1],
                tag="abc"[stage],
                watch=partial(dying, chosen.choice(steps)),
            )
        except Died:
            deaths += 1
        if life % 3 == 2:
            broker.fault(restart())
    assert deaths >= 3
    for stage in range(3):
        run(spark, broker, topics[stage], topics[stage + 1], tag="abc"[stage])
    assert values_of(broker.bootstrap_servers, topics[3]) == [value + b"abc" for value in VALUES]
