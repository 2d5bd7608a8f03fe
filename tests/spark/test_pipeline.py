"""Pipelines: no checkpoint, three deliveries, growing input, two clusters."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import oncelog
from oncelog.client.admin import committed_offsets
from oncelog.client.cluster import Cluster
from oncelog.spark import (
    BadConfiguration,
    Delivery,
    Event,
    GivenUp,
    Pipeline,
    Refused,
    Sink,
    Source,
    Step,
    write,
)
from oncelog.spark.job import WriterOf
from oncelog.spark.ledger import Progress
from oncelog.spark.target import Target
from oncelog.spark.task import writer
from tests.spark.faults import failing_once
from tests.spark.logs import fill, fresh, make_topics, read_all, values_of

VALUES = [b"%04d" % number for number in range(120)]


@pytest.fixture
def topics(broker: oncelog.Broker) -> tuple[str, str]:
    names = fresh("in"), fresh("out")
    make_topics(broker.bootstrap_servers, *names, partitions=2)
    return names


def a_pipeline(
    broker: oncelog.Broker,
    topics: tuple[str, str],
    *,
    name: str | None = None,
    delivery: str = "exactly_once",
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows.select("key", "value"),
    trigger: str | float = "available_now",
    watch: Callable[[Event], None] = lambda event: None,
    write: WriterOf = writer,
    timeout_s: float = 60.0,
    **options: object,
) -> Pipeline:
    source, target = topics
    return Pipeline(
        source=Source(broker.bootstrap_servers, subscribe=source, **options),
        sink=Sink(
            broker.bootstrap_servers,
            topic=target,
            transactional_id=name or fresh("job"),
            delivery=delivery,
            watch=watch,
            write=write,
            transaction_timeout_s=timeout_s,
        ),
        transform=transform,
        trigger=trigger,
    )


def progress_of(broker: oncelog.Broker, name: str) -> Progress | None:
    sink = Sink(broker.bootstrap_servers, topic="any", transactional_id=name)
    target = Target(sink.target.output)
    try:
        return target.run(target.look(name))
    finally:
        target.close()


def group_offsets(servers: str, group: str) -> dict[int, int]:
    async def ask() -> dict[int, int]:
        async with await Cluster.open(servers) as cluster:
            found = await committed_offsets(cluster, group)
            return {place.partition: offset for place, offset in found.items()}

    return asyncio.run(ask())


# --- going on where it was ------------------------------------------------------------------------------


def test_a_new_machine_goes_on_at_the_last_commit_and_lag_tools_see_it(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    name = fresh("job")
    fill(broker.bootstrap_servers, topics[0], VALUES[:50])
    first = a_pipeline(broker, topics, name=name).run(spark)
    assert (first.rows, first.lag) == (50, 0)
    fill(broker.bootstrap_servers, topics[0], VALUES[50:])
    second = a_pipeline(broker, topics, name=name).run(spark)
    assert second.rows == 70
    assert values_of(broker.bootstrap_servers, topics[1]) == VALUES
    progress = progress_of(broker, name)
    assert progress is not None
    assert (progress.batch, progress.total_rows) == (1, 120)
    mirrored = group_offsets(broker.bootstrap_servers, name)
    assert mirrored == {p.partition: offset for p, offset in progress.position.offsets.items()}
    assert sum(mirrored.values()) == 120


def test_k158_partitions_that_are_added_are_read_from_their_start(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    name = fresh("job")
    fill(broker.bootstrap_servers, topics[0], VALUES[:50])
    a_pipeline(broker, topics, name=name).run(spark)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(topics[0], 5)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, value in enumerate(VALUES[50:]):
        producer.produce(topics[0], value=value, partition=number % 5)
    assert producer.flush(30) == 0
    assert a_pipeline(broker, topics, name=name).run(spark).rows == 70
    assert values_of(broker.bootstrap_servers, topics[1]) == VALUES


def test_k160_input_with_only_markers_and_aborted_records_moves_the_position_on(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": fresh("aborter")}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topics[0], value=b"never", partition=0)
    producer.flush(30)
    producer.abort_transaction()
    name = fresh("job")
    summary = a_pipeline(broker, topics, name=name).run(spark)
    assert (summary.batches, summary.rows, summary.lag) == (1, 0, 0)
    assert read_all(broker.bootstrap_servers, topics[1]) == []
    progress = progress_of(broker, name)
    assert progress is not None
    assert sum(progress.position.offsets.values()) == 2
    assert a_pipeline(broker, topics, name=name).run(spark).batches == 0


def test_k157_a_topic_that_is_deleted_and_made_anew_is_not_read_with_old_offsets(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    name = fresh("job")
    fill(broker.bootstrap_servers, topics[0], VALUES[:50])
    a_pipeline(broker, topics, name=name).run(spark)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_topics([topics[0]]).values():
        future.result(30)
    make_topics(broker.bootstrap_servers, topics[0], partitions=2)
    fill(broker.bootstrap_servers, topics[0], VALUES[50:])
    with pytest.raises(Exception, match="deleted and created again"):
        a_pipeline(broker, topics, name=name).run(spark)
    assert values_of(broker.bootstrap_servers, topics[1]) == VALUES[:50]


def test_k165_code_that_changed_runs_an_undecided_batch_as_a_whole(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    name = fresh("job")
    fill(broker.bootstrap_servers, topics[0], VALUES)

    def mark(text: str) -> Callable[[DataFrame], DataFrame]:
        return lambda rows: rows.select(
            F.concat(F.lit(text), F.col("value").cast("string")).alias("value")
        )

    def die(event: Event) -> None:
        if event.step is Step.RECORDED and event.batch == 1:
            old.sink.writer._abort = lambda: None  # type: ignore[union-attr,method-assign]
            raise KeyboardInterrupt

    options: dict[str, Any] = {"maxOffsetsPerTrigger": 60}
    old = a_pipeline(broker, topics, name=name, transform=mark("old"), watch=die, **options)
    with pytest.raises(KeyboardInterrupt):
        old.run(spark)
    a_pipeline(broker, topics, name=name, transform=mark("new"), **options).run(spark)
    found = values_of(broker.bootstrap_servers, topics[1])
    assert sorted((value or b"")[3:] for value in found) == VALUES
    kinds = Counter((value or b"")[:3] for value in found)
    assert 50 <= kinds[b"old"] <= 70
    assert kinds[b"new"] == 120 - kinds[b"old"]


# --- triggers, and the end ------------------------------------------------------------------------------


def test_once_takes_everything_in_one_batch_whatever_the_limit(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    fill(broker.bootstrap_servers, topics[0], VALUES)
    summary = a_pipeline(broker, topics, trigger="once", maxOffsetsPerTrigger=10).run(spark)
    assert (summary.batches, summary.rows) == (1, 120)


@pytest.mark.parametrize(("options", "tasks"), [({}, 2), ({"minPartitions": 5}, 5)])
def test_small_partitions_share_the_tasks_that_there_are_cores_for(
    spark: SparkSession, broker: oncelog.Broker, options: dict[str, Any], tasks: int
) -> None:
    names = fresh("in"), fresh("out")
    make_topics(broker.bootstrap_servers, *names, partitions=5)
    fill(broker.bootstrap_servers, names[0], VALUES)
    seen: list[int] = []

    def counted(rows: DataFrame) -> DataFrame:
        seen.append(rows.rdd.getNumPartitions())
        return rows.select("key", "value")

    a_pipeline(broker, names, trigger="once", transform=counted, **options).run(spark)

    assert seen == [tasks]
    assert values_of(broker.bootstrap_servers, names[1]) == VALUES


def test_an_interval_goes_on_until_it_is_stopped_between_batches(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    pipeline = a_pipeline(broker, topics, trigger=0.1)
    found = []
    thread = threading.Thread(target=lambda: found.append(pipeline.run(spark)))
    thread.start()
    for start in (0, 60):
        fill(broker.bootstrap_servers, topics[0], VALUES[start : start + 60])
        deadline = time.monotonic() + 60
        while len(read_all(broker.bootstrap_servers, topics[1])) < start + 60:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    pipeline.stop()
    thread.join(60)
    assert found[0].rows == 120
    assert found[0].batches >= 2
    assert values_of(broker.bootstrap_servers, topics[1]) == VALUES


def test_a_trigger_that_means_nothing_is_refused(
    broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    with pytest.raises(BadConfiguration, match="'available_now' or 'once'"):
        a_pipeline(broker, topics, trigger="sometimes")


def test_a_name_that_belongs_to_something_else_is_refused(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    rows = spark.range(3).select(F.col("id").cast("string").alias("value"))
    key = fresh("load")
    write(rows, broker.bootstrap_servers, topic=topics[1], key=key)
    with pytest.raises(Refused, match=f"oncelog pipeline forget write:{key}"):
        a_pipeline(broker, topics, name=f"write:{key}").run(spark)


def test_rows_for_a_topic_that_the_sink_was_not_told_of_are_refused(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    fill(broker.bootstrap_servers, topics[0], VALUES[:3])
    pipeline = a_pipeline(
        broker,
        topics,
        transform=lambda rows: {"elsewhere": rows.select("value")},  # type: ignore[arg-type,return-value]
    )
    with pytest.raises(BadConfiguration, match=r"name it in topics=\["):
        pipeline.run(spark)


def test_source_and_sink_may_be_two_clusters(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    """The ledger is at the sink; the group's offsets, for lag tools, at the source."""
    name = fresh("job")
    fill(broker.bootstrap_servers, topics[0], VALUES)
    with oncelog.Broker() as other:
        make_topics(other.bootstrap_servers, "out", partitions=3)

        def pipeline() -> Pipeline:
            return Pipeline(
                source=Source(broker.bootstrap_servers, subscribe=topics[0]),
                sink=Sink(other.bootstrap_servers, topic="out", transactional_id=name),
                transform=lambda rows: rows.select("key", "value"),
                trigger="available_now",
            )

        assert pipeline().run(spark).rows == 120
        assert pipeline().run(spark).rows == 0
        assert values_of(other.bootstrap_servers, "out") == VALUES
        assert group_offsets(other.bootstrap_servers, name) == {}
    assert sum(group_offsets(broker.bootstrap_servers, name).values()) == 120


# --- delivery -------------------------------------------------------------------------------------------


def counts_after(
    spark: SparkSession,
    broker: oncelog.Broker,
    topics: tuple[str, str],
    delivery: str,
    write: WriterOf,
) -> Counter[bytes | None]:
    fill(broker.bootstrap_servers, topics[0], VALUES)
    a_pipeline(broker, topics, delivery=delivery, write=write).run(spark)
    return Counter(values_of(broker.bootstrap_servers, topics[1]))


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("fault", ["raise before", "raise after"])
def test_each_delivery_is_what_it_says_when_a_write_task_fails(
    spark: SparkSession,
    broker: oncelog.Broker,
    topics: tuple[str, str],
    tmp_path: Path,
    delivery: Delivery,
    fault: str,
) -> None:
    """The weaker ones really are weaker: one loses and the other doubles, each by its own fault."""
    faulty = failing_once(tmp_path / "flag", fault)
    found = counts_after(spark, broker, topics, delivery, faulty)
    assert (tmp_path / "flag").exists()
    lost = len(VALUES) - len(found)
    doubled = sum(count - 1 for count in found.values())
    match delivery, fault:
        case Delivery.EXACTLY_ONCE, _:
            assert (lost, doubled) == (0, 0)
        case Delivery.AT_LEAST_ONCE, "raise after":
            assert lost == 0
            assert doubled > 0
        case Delivery.AT_MOST_ONCE, "raise before":
            assert lost > 0
            assert doubled == 0
        case _:
            assert (lost, doubled) == (0, 0)


@pytest.mark.parametrize("delivery", list(Delivery))
def test_each_delivery_is_what_it_says_when_the_driver_dies(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], delivery: Delivery
) -> None:
    """It dies between the write and the note of it, in whichever order they come."""
    name = fresh("job")
    fill(broker.bootstrap_servers, topics[0], VALUES)
    step = Step.RECORDED if delivery is Delivery.AT_MOST_ONCE else Step.WRITTEN

    def die(event: Event) -> None:
        if event.step is step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        a_pipeline(broker, topics, name=name, delivery=delivery, watch=die).run(spark)
    a_pipeline(broker, topics, name=name, delivery=delivery).run(spark)
    found = Counter(values_of(broker.bootstrap_servers, topics[1]))
    expected = {Delivery.EXACTLY_ONCE: 1, Delivery.AT_LEAST_ONCE: 2, Delivery.AT_MOST_ONCE: 0}
    assert found == Counter({value: expected[delivery] for value in VALUES if expected[delivery]})


# --- time -----------------------------------------------------------------------------------------------


def slow_once(flag: Path, seconds: float) -> WriterOf:
    from functools import partial

    from tests.spark.faults import slow

    return partial(slow, str(flag), seconds)


def test_j149_a_transaction_that_outlives_its_timeout_is_tried_again_with_more(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    fill(broker.bootstrap_servers, topics[0], VALUES)
    events: list[Event] = []
    summary = a_pipeline(
        broker,
        topics,
        watch=events.append,
        write=slow_once(tmp_path / "flag", 4.0),
        timeout_s=1.0,
    ).run(spark)
    assert summary.retries >= 1
    assert values_of(broker.bootstrap_servers, topics[1]) == VALUES


def test_a_batch_that_can_never_be_in_time_says_what_to_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    with oncelog.Broker(settings={"transaction.max.timeout.ms": "1000"}) as hasty:
        topics = "in", "out"
        make_topics(hasty.bootstrap_servers, *topics, partitions=2)
        fill(hasty.bootstrap_servers, topics[0], VALUES)

        class AlwaysSlow:
            count = 0

            def __call__(self, plan):  # type: ignore[no-untyped-def]
                self.count += 1
                return slow_once(tmp_path / f"flag{self.count}", 4.0)(plan)

        with pytest.raises(GivenUp, match=r"maxOffsetsPerTrigger.*transaction\.max\.timeout\.ms"):
            a_pipeline(hasty, topics, write=AlwaysSlow()).run(spark)
        assert read_all(hasty.bootstrap_servers, topics[1]) == []


# --- batch writes ---------------------------------------------------------------------------------------


def test_a_write_is_made_once_under_its_key(
    spark: SparkSession,
    broker: oncelog.Broker,
    topics: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = spark.createDataFrame([(v.decode(),) for v in VALUES], "value string")
    key = fresh("day")
    first = write(rows, broker.bootstrap_servers, topic=topics[1], key=key)
    assert (first.rows, first.was_done) == (120, False)
    again = write(rows, broker.bootstrap_servers, topic=topics[1], key=key)
    assert (again.rows, again.was_done) == (0, True)
    assert "was written before: nothing is written now" in caplog.text
    assert values_of(broker.bootstrap_servers, topics[1]) == VALUES
    write(rows, broker.bootstrap_servers, topic=topics[1], key=fresh("day"))
    assert len(read_all(broker.bootstrap_servers, topics[1])) == 240


def test_a_write_that_failed_may_be_made_again(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    rows = spark.createDataFrame([(v.decode(),) for v in VALUES], "value string")
    key = fresh("day")
    bad = rows.select("value", F.when(F.col("value") == "0077", 9).alias("partition"))
    with pytest.raises(Exception, match="partition 9"):
        write(bad, broker.bootstrap_servers, topic=topics[1], key=key)
    assert read_all(broker.bootstrap_servers, topics[1]) == []
    assert not write(rows, broker.bootstrap_servers, topic=topics[1], key=key).was_done
    assert values_of(broker.bootstrap_servers, topics[1]) == VALUES
