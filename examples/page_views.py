"""Count page views by the minute: a query with state, whose results are written exactly once.

    python examples/page_views.py

It reads `views`, one page in each value, and writes `views-per-minute`. Spark keeps the open
minutes in its checkpoint; the sink knows which results are committed.
"""

import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, struct, to_json, window
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncelog.spark import Sink

SERVERS = os.environ.get("ONCELOG_BOOTSTRAP", "localhost:9092")
CHECKPOINT = os.environ.get("CHECKPOINT", "checkpoints/page-views")


def counting(spark: SparkSession) -> DataStreamWriter:
    """The query, ready to be triggered and started."""
    views = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", "views")
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = (
        views.select("timestamp", col("value").cast("string").alias("page"))
        .withWatermark("timestamp", "2 minutes")
        .groupBy(window("timestamp", "1 minute"), "page")
        .count()
    )
    minutes = counts.select(
        col("page").alias("key"),
        to_json(struct(col("window.start").alias("minute"), "page", "count")).alias("value"),
    )
    return (
        minutes.writeStream.outputMode("append")
        .foreachBatch(Sink(SERVERS, topic="views-per-minute", transactional_id="page-views"))
        .option("checkpointLocation", CHECKPOINT)
    )


if __name__ == "__main__":
    session = SparkSession.builder.appName("page-views").getOrCreate()
    counting(session).trigger(processingTime="10 seconds").start().awaitTermination()
