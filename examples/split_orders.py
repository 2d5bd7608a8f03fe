"""Split one topic into several: what belongs to an order appears in all of them at once, or nowhere.

    oncelog run examples/split_orders.py

It reads `orders`, JSON such as {"id": "7", "customer": "ada", "total": 12.5, "paid": true}. What is
paid becomes an invoice and a shipment, what is not becomes a reminder.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json, round, struct, to_json

from oncelog.spark import Pipeline, Sink, Source

SERVERS = os.environ.get("ONCELOG_BOOTSTRAP", "localhost:9092")


def split(records: DataFrame) -> dict[str, DataFrame]:
    """Rows for each topic; all of them are one transaction."""
    fields = "id string, customer string, total double, paid boolean"
    orders = records.select(from_json(col("value").cast("string"), fields).alias("o")).select("o.*")
    paid = orders.where("paid")
    tax = round(col("total") * 0.2, 2).alias("tax")
    return {
        "invoices": paid.select(
            col("customer").alias("key"), to_json(struct("id", "total", tax)).alias("value")
        ),
        "shipments": paid.select(
            col("id").alias("key"), to_json(struct("id", "customer")).alias("value")
        ),
        "reminders": orders.where("NOT paid").select(
            col("customer").alias("key"), to_json(struct("id", "total")).alias("value")
        ),
    }


pipeline = Pipeline(
    source=Source(SERVERS, subscribe="orders"),
    sink=Sink(
        SERVERS, topics=["invoices", "shipments", "reminders"], transactional_id="split-orders"
    ),
    transform=split,
)

if __name__ == "__main__":
    print(pipeline.run())
