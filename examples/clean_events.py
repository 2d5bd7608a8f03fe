"""Clean a stream of events: what is valid goes on, enriched; what is not is set aside with the reason.

    oncelog run examples/clean_events.py

It reads `events`, JSON such as {"user": "ada", "action": "login", "at": "2026-01-31T08:00:00Z"}, and
writes `events-clean` and `events-bad` in one transaction for each batch.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql.functions import array, col, from_json, lit, lower, struct, to_date, to_json, when

from oncelog.spark import Pipeline, Sink, Source

SERVERS = os.environ.get("ONCELOG_BOOTSTRAP", "localhost:9092")


def clean(records: DataFrame) -> DataFrame:
    """One row for each record, with the topic that it belongs to."""
    events = records.select(
        "value",
        from_json(col("value").cast("string"), "user string, action string, at timestamp").alias(
            "e"
        ),
    ).withColumn(
        "problem",
        when(col("e.user").isNull(), "there is no user").when(
            col("e.at").isNull(), "there is no time"
        ),
    )
    is_good = col("problem").isNull()
    enriched = struct(
        "e.user", lower("e.action").alias("action"), "e.at", to_date("e.at").alias("day")
    )
    problem = struct(lit("problem").alias("key"), col("problem").cast("binary").alias("value"))
    return events.select(
        when(is_good, "events-clean").otherwise("events-bad").alias("topic"),
        col("e.user").alias("key"),
        when(is_good, to_json(enriched).cast("binary")).otherwise(col("value")).alias("value"),
        when(~is_good, array(problem)).alias("headers"),
    )


pipeline = Pipeline(
    source=Source(SERVERS, subscribe="events", maxOffsetsPerTrigger=100_000),
    sink=Sink(SERVERS, topics=["events-clean", "events-bad"], transactional_id="clean-events"),
    transform=clean,
)

if __name__ == "__main__":
    print(pipeline.run())
