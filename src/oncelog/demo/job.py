"""The Spark job of the demo, a process of its own: it is killed, and started again.

It validates orders, adds what they cost and splits them over two topics, in one transaction and
without a checkpoint; and it sums up the valid ones by the minute, a stateful query with a checkpoint.
What it does is told on standard output, a JSON object a line.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from oncelog.demo.hold import hold_if_armed
from oncelog.demo.orders import CATALOGUE, INPUT, WINDOW_MS, Output
from oncelog.spark import Event, Pipeline, Sink, Source, Step, Summary
from oncelog.spark.launch import start_spark
from oncelog.spark.rows import Stage
from oncelog.spark.task import TaskPlan, writer

_ORDER: Final = "number long, customer string, item string, quantity int, placed_ms long"
_VALID: Final = "number long, placed_ms long, total_cents long"
_SPARK: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A JVM that lives for half a minute is better off without its second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main() -> int:
    """Run until SIGTERM, then finish what is there."""
    parser = argparse.ArgumentParser(description="The job of `oncelog demo`.")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--delivery", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--batch-offsets", type=int, required=True)
    args = parser.parse_args()
    spark = start_spark(
        "oncelog-demo", master="local[2,4]", conf=_SPARK, beside=args.directory, log=None
    )
    tell(kind="ready")
    query = start_aggregate(spark, args)
    a_pipeline(args).run(spark, on_batch=tell_batch)
    query.processAllAvailable()
    query.stop()
    spark.stop()
    return 0


def topic_of(output: Output, delivery: str) -> str:
    """Each delivery has topics of its own."""
    return f"{output}.{delivery}"


# --- the pipeline -----------------------------------------------------------------------------


def a_pipeline(args: argparse.Namespace) -> Pipeline:
    """Orders go to one of two topics."""
    valid, rejected = (topic_of(each, args.delivery) for each in (Output.VALID, Output.REJECTED))

    def watch(event: Event) -> None:
        tell_step(event)
        if event.step is Step.WRITTEN:
            hold_if_armed(args.directory, "driver")

    return Pipeline(
        source=Source(args.servers, subscribe=INPUT, maxOffsetsPerTrigger=args.batch_offsets),
        sink=Sink(
            args.servers,
            topics=[valid, rejected],
            transactional_id=f"orders.{args.delivery}",
            delivery=args.delivery,
            watch=watch,
            write=partial(_held_writer, args.directory),
        ),
        transform=lambda rows: split(rows, valid, rejected),
        trigger=0.1,
    )


def split(rows: DataFrame, valid: str, rejected: str) -> dict[str, DataFrame]:
    """Valid orders with what they cost, and the others with the reason."""
    order = F.from_json(F.col("value").cast("string"), _ORDER)
    prices = F.create_map(*[F.lit(part) for pair in CATALOGUE.items() for part in pair])
    judged = rows.select("key", order.alias("o")).select(
        "key", "o.*", prices[F.col("o.item")].alias("price")
    )
    reason = (
        F.when(F.col("price").isNull(), "unknown item")
        .when(F.col("quantity") < 1, "no quantity")
        .otherwise("")
    )
    judged = judged.withColumn("reason", reason)
    total = (F.col("quantity") * F.col("price")).cast("long").alias("total_cents")
    return {
        valid: judged.where("reason = ''").select("key", _as_json("number", "placed_ms", total)),
        rejected: judged.where("reason <> ''").select("key", _as_json("number", "reason")),
    }


def _as_json(*columns: str | Column) -> Column:
    return F.to_json(F.struct(*columns)).alias("value")


def _held_writer(directory: Path, plan: TaskPlan) -> Stage:
    return partial(_held_write, directory, writer(plan))


def _held_write(
    directory: Path, stage: Stage, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for report in stage(batches):
        # Everything is sent, and the driver has not been told.
        hold_if_armed(directory, "task")
        yield report


# --- the aggregate ----------------------------------------------------------------------------


def start_aggregate(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """What came in each minute, so far: one record for each change of a sum."""
    orders = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", args.servers)
        .option("subscribe", topic_of(Output.VALID, args.delivery))
        .option("startingOffsets", "earliest")
        .load()
        .select(F.from_json(F.col("value").cast("string"), _VALID).alias("o"))
        .select("o.*")
    )
    window = F.window(F.timestamp_millis("placed_ms"), f"{WINDOW_MS} milliseconds")
    sums = orders.groupBy(window.alias("window")).agg(
        F.count("*").alias("orders"), F.sum("total_cents").alias("cents")
    )
    start = F.unix_millis("window.start").alias("start")
    rows = sums.select(start.cast("string").alias("key"), _as_json(start, "orders", "cents"))
    sink = Sink(
        args.servers,
        topic=topic_of(Output.REVENUE, args.delivery),
        transactional_id=f"revenue.{args.delivery}",
        delivery=args.delivery,
    )
    return (
        rows.writeStream.outputMode("update")
        .option("checkpointLocation", str(args.directory / f"checkpoint.{args.delivery}"))
        .trigger(processingTime="2 seconds")
        .foreachBatch(sink)
        .start()
    )


# --- what it tells ----------------------------------------------------------------------------


def tell(**facts: Any) -> None:
    """One line for whoever started this."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def tell_step(event: Event) -> None:
    """A step of the pipeline."""
    tell(kind="step", step=event.step, batch=event.batch, rows=event.rows)


def tell_batch(summary: Summary) -> None:
    """How far the pipeline is."""
    tell(kind="batch", lag=summary.lag)


if __name__ == "__main__":
    sys.exit(main())
