"""The source in a real Spark: found by its name, batch and stream, beside a stock consumer."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import oncelog
from oncelog.client.fetching import Range
from oncelog.client.settings import parse_settings
from oncelog.spark.reading import read_ranges
from oncelog.spark.source import OncelogSource
from tests.peers.kafka import Kafka, running_kafka
from tests.spark.topics import Topic


def read(spark: SparkSession, topic: Topic, **options: Any) -> DataFrame:
    given = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, **options}
    return spark.read.format("oncelog").options(**given).load()


def values(frame: DataFrame) -> list[str]:
    rows = frame.orderBy("partition", "offset").collect()
    return [row.value.decode() for row in rows]


class Stream:
    """A streaming query that is run again and again, with one checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark = spark
        self._checkpoint = str(checkpoint)
        #: What the last run said of its source, once for each micro-batch.
        self.progress: list[Any] = []

    def run(self, topic: Topic, **options: Any) -> list[list[str]]:
        """Read until nothing is left; the values of each micro-batch."""
        given = {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, **options}
        batches: list[list[str]] = []
        query = (
            self._spark.readStream.format("oncelog")
            .options(**given)
            .load()
            .writeStream.foreachBatch(lambda frame, _: batches.append(values(frame)))
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        self.progress = [each.sources[0] for each in query.recentProgress]
        return batches


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path / "checkpoint")


def rows_like_a_consumers(topic: Topic, partitions: int) -> list[Row]:
    return [
        Row(
            key=message.key(),
            value=message.value(),
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            time_ms=message.timestamp()[1],
            timestampType=message.timestamp()[0] - 1,
            headers=message.headers(),
        )
        for message in topic.consumed(partitions)
    ]


def as_seen(frame: DataFrame) -> list[Row]:
    found = frame.selectExpr(
        "key", "value", "topic", "partition", "offset", "unix_millis(timestamp) AS time_ms",
        "timestampType", "headers",
    )  # fmt: skip
    return [
        Row(
            **{
                **row.asDict(),
                "key": None if row.key is None else bytes(row.key),
                "value": None if row.value is None else bytes(row.value),
                "headers": row.headers and [(h.key, bytes(h.value)) for h in row.headers],
            }
        )
        for row in found.orderBy("partition", "offset").collect()
    ]


def fill(topic: Topic) -> None:
    """Transactions that end this way and that, keys, tombstones, headers."""
    for number in range(6):
        topic.transact([f"{number}-{n}" for n in range(20)], ends=bool(number % 3))
    topic.write(["x", "y"], partition=1, key=b"k", headers=[("h", b"1"), ("h", b"2")])
    topic.write(["z"], partition=1)


def test_rows_are_those_of_a_stock_consumer(spark: SparkSession, broker: oncelog.Broker) -> None:
    topic = Topic(broker.bootstrap_servers, partitions=2)
    fill(topic)

    found = as_seen(read(spark, topic, includeHeaders="true"))

    assert found == rows_like_a_consumers(topic, 2)
    assert len(found) == 83


def test_it_can_be_registered_by_hand(spark: SparkSession, broker: oncelog.Broker) -> None:
    topic = Topic(broker.bootstrap_servers)
    topic.write("ab")

    spark.dataSource.register(OncelogSource)

    assert values(read(spark, topic)) == ["a", "b"]


def test_partitions_are_tasks(spark: SparkSession, broker: oncelog.Broker) -> None:
    topic = Topic(broker.bootstrap_servers)
    topic.write("abcdefgh")

    frame = read(spark, topic, minPartitions="4")

    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == list("abcdefgh")


def test_nothing_to_read_is_no_rows(spark: SparkSession, broker: oncelog.Broker) -> None:
    assert values(read(spark, Topic(broker.bootstrap_servers))) == []


def test_mistakes_reach_the_user(spark: SparkSession, broker: oncelog.Broker) -> None:
    topic = Topic(broker.bootstrap_servers)

    with pytest.raises(PySparkException, match="maxOffsetsPerTrigger may be meant"):
        read(spark, topic, maxOffsetPerTrigger="5")
    with pytest.raises(PySparkException, match="Topic nowhere does not exist"):
        read(spark, topic, subscribe="nowhere").collect()


def test_a_stream_goes_on_where_it_was(stream: Stream, broker: oncelog.Broker) -> None:
    topic = Topic(broker.bootstrap_servers)
    topic.write("abcde")
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}

    assert stream.run(topic, **given) == [list("ab"), list("cd"), list("e")]
    assert f'"{topic.name}": {{"0": 5}}' in stream.progress[0].latestOffset

    # A transaction that is open is left for later, and what was aborted is progress without rows.
    producer = topic.transact("fg", ends=None)
    assert stream.run(topic, **given) == []
    producer.commit_transaction(10)
    topic.settle()
    topic.transact("hi", ends=False)
    topic.grow(2)
    topic.write("x", partition=1)
    assert sorted(value for batch in stream.run(topic, **given) for value in batch) == list("fgx")
    assert stream.run(topic, **given) == []


def test_k156_a_stream_stops_when_its_input_is_gone(stream: Stream, broker: oncelog.Broker) -> None:
    topic = Topic(broker.bootstrap_servers)
    topic.write("ab")
    assert stream.run(topic, startingOffsets="earliest") == [["a", "b"]]
    topic.write("cdef")
    topic.delete_before(0, 4)

    with pytest.raises(
        PySparkException, match="the offsets from 2 on and before 6 were to be read"
    ):
        stream.run(topic)
    assert stream.run(topic, failOnDataLoss="false") == [["e", "f"]]

    topic.delete()
    topic.create(1)
    topic.write("uvwxyz!")
    with pytest.raises(PySparkException, match="deleted and created again"):
        stream.run(topic)


# --- Apache Kafka -----------------------------------------------------------------------------------


@pytest.mark.peers
def test_rows_of_apache_kafka_are_those_of_a_stock_consumer(
    spark: SparkSession, kafka_broker: Kafka
) -> None:
    topic = Topic(kafka_broker.bootstrap_servers, partitions=2)
    fill(topic)

    found = as_seen(read(spark, topic, includeHeaders="true"))

    assert found == rows_like_a_consumers(topic, 2)
    assert len(found) == 83


@pytest.mark.peers
def test_a_stream_from_apache_kafka_goes_on_where_it_was(
    stream: Stream, kafka_broker: Kafka
) -> None:
    topic = Topic(kafka_broker.bootstrap_servers)
    topic.transact("abc")
    assert stream.run(topic, startingOffsets="earliest") == [list("abc")]

    topic.transact("de", ends=False)
    topic.transact("fg")
    assert stream.run(topic) == [list("fg")]


@pytest.mark.peers
def test_a_compacted_topic_has_gaps_and_no_losses() -> None:
    with running_kafka({"log.cleaner.backoff.ms": "100"}) as kafka:
        eager = {"cleanup.policy": "compact", "segment.ms": "100"}
        topic = Topic(
            kafka.bootstrap_servers, config={**eager, "min.cleanable.dirty.ratio": "0.01"}
        )
        for number in range(4):
            topic.transact([f"{number}-{n}" for n in range(5)], ends=number != 2, key=b"k")
            time.sleep(0.15)
        topic.write(["last"], key=b"other")
        written = 5 * 3 + 1
        deadline = time.monotonic() + 30
        while len(topic.consumed(1)) == written and time.monotonic() < deadline:
            time.sleep(0.1)

        expected = [(message.offset(), message.value()) for message in topic.consumed(1)]
        settings = parse_settings({"bootstrap.servers": topic.servers})
        end = max(offset or 0 for offset, _ in expected) + 1
        whole = Range(topic=topic.name, partition=0, start=0, end=end)
        found = [
            (row["offset"], row["value"])
            for rows in read_ranges(settings, [whole])
            for row in rows.to_pylist()
        ]

    assert len(expected) < written
    assert found == expected
