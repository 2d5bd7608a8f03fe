"""What the Spark rows share: one warm session, and the same work done by us and by Spark's connector.

Both sides of a round run in the same session, on the same server, with their defaults; so what
differs is the client. Spark's own sink is at-least-once, ours is not.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.load import LIMIT_S, LoadFailed
from bench.servers import PARTITIONS, Server
from oncelog.spark import Pipeline, Sink, Source, write
from tests.peers.java import SPARK_CONNECTOR, jars

KEY_BYTES: Final = 16
VALUE_BYTES: Final = 100
#: Tasks that rows come from.
SPLITS: Final = 4


@cache
def session() -> SparkSession:
    """Two cores, and the JARs of Spark's own connector; it ends with the process."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("oncelog-bench")
        .config("spark.jars", ",".join(map(str, jars(SPARK_CONNECTOR))))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@cache
def rows(count: int) -> DataFrame:
    """Random keys and values, in memory, so that making them costs next to nothing."""
    frame = (
        session()
        .range(0, count, 1, SPLITS)
        .selectExpr(
            f"substr(unhex(md5(string(id))), 1, {KEY_BYTES}) AS key",
            "substr(unhex(concat(sha2(string(id), 512), sha2(string(-id), 512))), 1, "
            f"{VALUE_BYTES}) AS value",
        )
        .persist()
    )
    if frame.count() != count:
        raise LoadFailed(f"Spark has not made {count} rows")
    return frame


# --- writing ----------------------------------------------------------------------------------------


def write_ours(server: Server, topic: str, count: int) -> None:
    """One transaction."""
    write(rows(count), server.bootstrap_servers, key=topic, topic=topic)


def write_stock(server: Server, topic: str, count: int) -> None:
    """At least once."""
    given = {"kafka.bootstrap.servers": server.bootstrap_servers, "topic": topic}
    rows(count).write.format("kafka").options(**given).save()


# --- reading ----------------------------------------------------------------------------------------


def read(server: Server, topic: str, format: str) -> None:
    """Every record with all its columns, into nothing."""
    frame = session().read.format(format).options(**_source(server, topic)).load()
    frame.write.format("noop").mode("overwrite").save()


def _source(server: Server, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": server.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        # What our source does unless it is told otherwise.
        "kafka.isolation.level": "read_committed",
    }


# --- streams ----------------------------------------------------------------------------------------

#: From one topic to another, so many records at a time, until nothing is left.
Copy = Callable[[Server, str, str, int], None]


def copy_with_sink(server: Server, source: str, target: str, batch_rows: int) -> None:
    """Our source and our sink in a streaming query, exactly once."""
    sink = Sink(server.bootstrap_servers, topic=target, transactional_id=target)
    with closing(sink), tempfile.TemporaryDirectory(prefix="oncelog-bench-") as checkpoint:
        stream = _stream("oncelog", server, source, batch_rows)
        _finish(stream.writeStream.foreachBatch(sink), checkpoint)


def copy_with_pipeline(server: Server, source: str, target: str, batch_rows: int) -> None:
    """A pipeline, exactly once and without a checkpoint."""
    servers = server.bootstrap_servers
    Pipeline(
        source=Source(servers, subscribe=source, maxOffsetsPerTrigger=batch_rows),
        sink=Sink(servers, topic=target, transactional_id=target),
        transform=lambda rows: rows.select("key", "value"),
        trigger="available_now",
    ).run(session())


def copy_stock(server: Server, source: str, target: str, batch_rows: int) -> None:
    """Spark's source and Spark's sink, at least once."""
    given = {"kafka.bootstrap.servers": server.bootstrap_servers, "topic": target}
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as checkpoint:
        stream = _stream("kafka", server, source, batch_rows)
        _finish(stream.writeStream.format("kafka").options(**given), checkpoint)


def _stream(format: str, server: Server, topic: str, batch_rows: int) -> DataFrame:
    options = {**_source(server, topic), "maxOffsetsPerTrigger": str(batch_rows)}
    return session().readStream.format(format).options(**options).load().select("key", "value")


def _finish(writer: DataStreamWriter, checkpoint: str) -> None:
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(int(LIMIT_S)):
        query.stop()
        raise LoadFailed(f"the stream has not ended within {LIMIT_S:g} s")


# --- the account ------------------------------------------------------------------------------------


def check_written(server: Server, topic: str, count: int) -> None:
    """Raise unless all partitions together hold so many records; markers may come on top."""
    client = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "bench"})
    try:
        ends = [
            client.get_watermark_offsets(TopicPartition(topic, partition), timeout=LIMIT_S)[1]
            for partition in range(PARTITIONS)
        ]
    finally:
        client.close()
    if sum(ends) < count:
        raise LoadFailed(f"{topic}: {sum(ends)} of {count} records are there")
