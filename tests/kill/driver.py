"""A Spark driver that runs one of three pipelines and ends itself with SIGKILL where it is told.

    python -m tests.kill.driver '{"kind": "map", "die": ["written", 2], ...}'

With it die the JVM and all tasks: the whole process group. The harness starts it again.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oncelog.spark import Event, Pipeline, Sink, Source
from oncelog.spark.job import WriterOf
from oncelog.spark.pipeline import Rows, Transform
from oncelog.spark.task import writer
from tests.kill.recording import BATCH_HEADER
from tests.kill.tasks import killing

#: What the windows of the stateful pipeline are made of.
WINDOW_S = 60
LATENESS_S = 1200


SIGNALS = {False: signal.SIGKILL, True: signal.SIGSTOP}


def die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


class Fate:
    """Dies, or stands still, at the n-th time that a step is taken in this life."""

    def __init__(self, die_at: list[Any] | None, number: signal.Signals) -> None:
        self._number = number
        self._step: str = die_at[0] if die_at else ""
        self._count: int = die_at[1] if die_at else 0
        self._seen: Counter[str] = Counter()

    def watch(self, event: Event) -> None:
        self._seen[event.step] += 1
        if event.step == self._step and self._seen[event.step] == self._count:
            os.killpg(os.getpgid(0), self._number)


def die_when_there(path: Path) -> None:
    """End everything as soon as a file of the checkpoint is there."""

    def wait() -> None:
        while not path.exists():
            time.sleep(0.001)
        die()

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    order = json.loads(sys.argv[1])
    fate = Fate(order.get("die") or order.get("stop"), SIGNALS["stop" in order])
    if delay_s := order.get("die_after_s"):
        threading.Timer(delay_s, die).start()
    if path := order.get("die_when"):
        die_when_there(Path(path))
    write: WriterOf = writer
    if task := order.get("task"):
        write = partial(killing, task["how"], task["flag"], os.getpgid(0))
    spark = (
        SparkSession.builder.master(order.get("master", "local[2,4]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sink = Sink(
        order["servers"],
        topics=order["targets"],
        topic=order["targets"][0],
        transactional_id=order["name"],
        watch=fate.watch,
        delivery=order.get("delivery", "exactly_once"),
        transaction_timeout_s=order.get("timeout_s", 60),
        write=write,
    )
    if order["kind"] == "windows":
        run_windows(spark, sink, order)
    else:
        transform: Transform = (
            upper if order["kind"] == "map" else partial(fan_out, order["targets"])
        )
        source = Source(
            order["servers"],
            subscribe=order["source"],
            maxOffsetsPerTrigger=order["batch_rows"],
        )
        print(
            Pipeline(
                source=source,
                sink=sink,
                transform=partial(numbered, sink, transform),
                trigger="available_now",
            ).run(spark)
        )
    print("finished", flush=True)


def numbered(sink: Sink, transform: Transform, rows: DataFrame) -> Rows:
    """What a pipeline makes of its rows, each record with the batch that wrote it."""
    progress = sink.writer.progress
    batch = progress.batch + 1 if progress else 0
    made = transform(rows)
    if isinstance(made, DataFrame):
        return with_batch(made, batch)
    return {topic: with_batch(some, batch) for topic, some in made.items()}


def with_batch(rows: DataFrame, batch: int) -> DataFrame:
    value = F.lit(str(batch)).cast("binary")
    header = F.struct(F.lit(BATCH_HEADER).alias("key"), value.alias("value"))
    return rows.withColumn("headers", F.array(header))


def upper(rows: DataFrame) -> DataFrame:
    value = F.upper(F.col("value").cast("string"))
    return rows.select("key", value.alias("value"))


def fan_out(targets: list[str], rows: DataFrame) -> dict[str, DataFrame]:
    chosen = rows.select("key", "value")
    is_even = F.expr("cast(substring(cast(value as string), 2) as int) % 2 = 0")
    return {targets[0]: chosen.where(is_even), targets[1]: chosen.where(~is_even)}


def run_windows(spark: SparkSession, sink: Sink, order: dict[str, Any]) -> None:
    rows = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", order["servers"])
        .option("subscribe", order["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", order["batch_rows"])
        .load()
    )
    at = F.timestamp_seconds(F.expr("cast(substring(cast(value as string), 2) as int)"))
    counts = (
        rows.select(at.alias("at"))
        .withWatermark("at", f"{LATENESS_S} seconds")
        .groupBy(F.window("at", f"{WINDOW_S} seconds"))
        .count()
    )
    start = F.unix_timestamp("window.start").cast("string")
    output = counts.select(
        start.alias("key"), F.concat_ws("=", start, F.col("count").cast("string")).alias("value")
    )
    query = (
        output.writeStream.foreachBatch(
            lambda batch_rows, batch: sink(with_batch(batch_rows, batch), batch)
        )
        .outputMode("append")
        .option("checkpointLocation", order["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sink.close()


if __name__ == "__main__":
    main()
