"""What people see of a sink: its numbers in a listener, and silence when a query is stopped."""

import logging
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import oncelog
from oncelog.spark import BatchMetrics, Event, Sink, SinkMetrics, Step
from tests.spark.logs import fill, fresh, make_topics, values_of
from tests.spark.test_sink import run, stream

VALUES = [b"%03d" % number for number in range(300)]


@pytest.fixture
def topics(broker: oncelog.Broker) -> tuple[str, str]:
    names = fresh("in"), fresh("out")
    make_topics(broker.bootstrap_servers, *names)
    fill(broker.bootstrap_servers, names[0], VALUES)
    return names


def test_a_listener_is_told_what_each_batch_wrote(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    name, told = fresh("job"), list[BatchMetrics]()
    enough = threading.Event()

    def report(metrics: BatchMetrics) -> None:
        told.append(metrics)
        if metrics.lag == 0:
            enough.set()

    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=name)
    listener = SinkMetrics(sink, report)
    spark.streams.addListener(listener)
    try:
        rows = stream(spark, broker, source, maxOffsetsPerTrigger=150).select("key", "value")
        query = run(rows, sink, tmp_path)
        assert enough.wait(30), told
    finally:
        spark.streams.removeListener(listener)

    assert [metrics.batch for metrics in told] == list(range(len(told)))
    assert {(m.name, m.query_id, m.attempts, m.was_done) for m in told} == {
        (name, str(query.id), 1, False)
    }
    assert [m.rows for m in told] == [m.input_rows for m in told]
    assert sum(m.rows for m in told) == len(VALUES)
    assert all(m.seconds > 0 for m in told)
    assert told[0].lag is not None
    assert told[0].lag > 0


def test_a_query_that_is_stopped_in_a_batch_ends_in_silence(
    spark: SparkSession,
    broker: oncelog.Broker,
    topics: tuple[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, target = topics
    is_writing = threading.Event()

    def watch(event: Event) -> None:
        if event.step is Step.PLANNED:
            is_writing.set()

    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=fresh("job"), watch=watch)
    # Nobody waits for it: the query is stopped while it sleeps.
    slow = F.udf(lambda value: threading.Event().wait(60) and value, "binary")("value").alias(
        "value"
    )
    query = (
        stream(spark, broker, source)
        .select("key", slow)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )

    with caplog.at_level(logging.WARNING):
        assert is_writing.wait(60)
        query.stop()

    assert query.exception() is None
    assert "py4j" not in caplog.text
    assert "Traceback" not in caplog.text
    sink.close()
    assert values_of(broker.bootstrap_servers, target) == []


def test_the_users_error_reaches_the_user_in_a_few_lines(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=fresh("job"))
    broken = F.raise_error(F.lit("this order is not an order")).cast("binary").alias("value")

    with pytest.raises(Exception, match="this order is not an order") as caught:
        run(stream(spark, broker, source).select("key", broken), sink, tmp_path)

    before_sparks_part = str(caught.value).partition("=== Streaming Query ===")[0]
    assert len(before_sparks_part.splitlines()) < 25
    assert "\tat " not in before_sparks_part
