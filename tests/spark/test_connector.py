"""Spark's own Kafka connector on our broker, and our source beside it on both brokers."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import oncelog
from oncelog.core.packing import Codec
from oncelog.spark import write
from tests.peers.kafka import Kafka
from tests.spark.topics import Topic

pytestmark = pytest.mark.peers

#: The same wish in the words of each.
COMMITTED = {"kafka": {"kafka.isolation.level": "read_committed"}, "oncelog": {}}
UNCOMMITTED = {"kafka": {}, "oncelog": {"isolation": "read_uncommitted"}}


@pytest.fixture(params=["oncelog", "kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    running: oncelog.Broker | Kafka = request.getfixturevalue(
        "broker" if request.param == "oncelog" else "kafka_broker"
    )
    return running.bootstrap_servers


@pytest.fixture
def ours(broker: oncelog.Broker) -> str:
    return broker.bootstrap_servers


def given(topic: Topic, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name, **options}


def read(spark: SparkSession, format: str, options: dict[str, str]) -> list[Row]:
    return in_order(spark.read.format(format).options(**options).load())


def in_order(frame: DataFrame) -> list[Row]:
    return frame.orderBy("topic", "partition", "offset").collect()


def agreed(spark: SparkSession, options: dict[str, str]) -> list[Row]:
    """What both sources read, all columns of it."""
    theirs = read(spark, "kafka", {**options, **COMMITTED["kafka"]})
    assert read(spark, "oncelog", options) == theirs
    return theirs


def fill(topic: Topic) -> None:
    """Keys, tombstones, headers, and transactions that end this way and that."""
    topic.write(["a", "b"], key=b"k", headers=[("h", b"1"), ("h", b""), ("none", None)])
    for number in range(4):
        topic.transact([f"{number}-{n}" for n in range(10)], ends=bool(number % 2), partition=1)
    topic.write(["", "c"], partition=1)
    topic.write([None], key=b"k")


# --- reading ----------------------------------------------------------------------------------------


def test_both_sources_read_the_same_rows(spark: SparkSession, servers: str) -> None:
    topic = Topic(servers, partitions=3)
    fill(topic)
    options = given(topic, includeHeaders="true")

    committed = agreed(spark, options)
    everything = read(spark, "kafka", {**options, **UNCOMMITTED["kafka"]})

    assert len(committed) == 25
    assert committed[0].headers == [
        Row(key="h", value=b"1"), Row(key="h", value=b""), Row(key="none", value=None),
    ]  # fmt: skip
    assert committed[2].value is None
    assert next(row.value for row in committed if row.partition == 1) == b"1-0"
    assert len(everything) == 45
    assert read(spark, "oncelog", {**options, **UNCOMMITTED["oncelog"]}) == everything


def test_an_open_transaction_is_the_end_for_both(spark: SparkSession, servers: str) -> None:
    topic = Topic(servers)
    topic.transact("ab")
    is_open = topic.transact("cd", ends=None)
    topic.write("e")

    found = agreed(spark, given(topic))
    is_open.abort_transaction(10)

    assert [bytes(row.value) for row in found] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": "2000"}, "cdef"),
        ({"startingTimestamp": "1500", "endingTimestamp": "3000"}, "cd"),
        ({"startingOffsetsByTimestamp": '{{"{topic}":{{"0":3000}}}}'}, "ef"),
        ({"startingOffsets": '{{"{topic}":{{"0":1}}}}', "endingOffsets": "latest"}, "bcdef"),
        ({"endingOffsets": '{{"{topic}":{{"0":2}}}}', "minPartitions": "3"}, "ab"),
    ],
)
def test_ranges_mean_the_same_to_both(
    spark: SparkSession, ours: str, options: dict[str, str], expected: str
) -> None:
    topic = Topic(ours)
    for time_ms, values in ((1000, "ab"), (2000, "cd"), (3000, "ef")):
        topic.write(values, timestamp=time_ms)
    named = {name: value.format(topic=topic.name) for name, value in options.items()}

    found = agreed(spark, given(topic, **named))

    assert [row.value.decode() for row in found] == list(expected)


def test_topics_are_chosen_alike(spark: SparkSession, ours: str) -> None:
    topics = [Topic(ours, name=f"chosen-{name}", partitions=2) for name in ("a", "b")]
    for topic in topics:
        topic.write(["0"])
        topic.write(["1"], partition=1)
    at = {"kafka.bootstrap.servers": ours}

    by_pattern = agreed(spark, {**at, "subscribePattern": "chosen-.*"})
    assigned = agreed(spark, {**at, "assign": '{"chosen-a":[1],"chosen-b":[0]}'})

    assert len(by_pattern) == 4
    assert [(row.topic, row.partition) for row in assigned] == [("chosen-a", 1), ("chosen-b", 0)]


def test_java_reads_every_compression_of_ours(spark: SparkSession, ours: str) -> None:
    topic = Topic(ours, partitions=2)
    rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "repeat('ab', 20) AS value")

    for codec in Codec:
        name = codec.name.lower()
        write(rows, ours, key=f"{topic.name}-{name}", topic=topic.name, compression=name)

    found = agreed(spark, given(topic))
    assert sorted(int(row.key) for row in found) == sorted(list(range(1000)) * len(Codec))
    assert {bytes(row.value) for row in found} == {b"ab" * 20}


# --- streams ----------------------------------------------------------------------------------------


def micro_batches(
    spark: SparkSession, format: str, options: dict[str, str], checkpoint: Path
) -> list[list[Row]]:
    batches: list[list[Row]] = []
    query = (
        spark.readStream.format(format)
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda rows, _: batches.append(in_order(rows)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return batches


def test_a_stream_goes_on_where_it_was(spark: SparkSession, ours: str, tmp_path: Path) -> None:
    topic = Topic(ours, partitions=2)
    fill(topic)
    found: dict[str, list[Row]] = {"kafka": [], "oncelog": []}
    sizes: dict[str, list[int]] = {"kafka": [], "oncelog": []}

    for _ in range(2):
        for format, rows in found.items():
            options = given(
                topic,
                startingOffsets="earliest",
                maxOffsetsPerTrigger="30",
                includeHeaders="true",
                **COMMITTED[format],
            )
            batches = micro_batches(spark, format, options, tmp_path / format)
            rows += [row for batch in batches for row in batch]
            sizes[format] += map(len, batches)
        topic.write(["later"], partition=1)

    # The write behind the last run is read by nobody.
    everything = read(spark, "kafka", given(topic, includeHeaders="true", **COMMITTED["kafka"]))
    for rows in found.values():
        rows.sort(key=lambda row: (row.partition, row.offset))
        assert rows == everything[:-1]
    assert all(len(each) >= 3 and max(each) <= 30 for each in sizes.values())


# --- writing ----------------------------------------------------------------------------------------


def test_a_batch_is_written_as_it_was(spark: SparkSession, ours: str) -> None:
    source, target = Topic(ours, partitions=3), Topic(ours, partitions=3)
    fill(source)
    options = given(source, includeHeaders="true", **COMMITTED["kafka"])
    rows = spark.read.format("kafka").options(**options).load()

    (
        rows.select("key", "value", "headers", "partition")
        .write.format("kafka")
        .options(
            **{"kafka.bootstrap.servers": ours, "topic": target.name, "includeHeaders": "true"}
        )
        .save()
    )

    def content(topic: Topic) -> list[tuple[Any, ...]]:
        return [(m.partition(), m.key(), m.value(), m.headers()) for m in topic.consumed(3)]

    assert content(target) == content(source)
    assert len(content(target)) == 25


def test_a_stream_is_written_to_the_partitions_of_its_keys(
    spark: SparkSession, ours: str, tmp_path: Path
) -> None:
    source, target = Topic(ours, partitions=2), Topic(ours, partitions=4)
    for key in range(20):
        values = [f"{key}-{n}" for n in range(10)]
        source.write(values, key=b"%d" % key, partition=key % 2)

    query = (
        spark.readStream.format("kafka")
        .options(**given(source, startingOffsets="earliest", maxOffsetsPerTrigger="60"))
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": ours, "topic": target.name})
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)

    found = target.consumed(4)

    assert sorted((m.key(), m.value()) for m in found) == sorted(
        (b"%d" % key, b"%d-%d" % (key, n)) for key in range(20) for n in range(10)
    )
    assert len({(m.key(), m.partition()) for m in found}) == 20
    assert len({m.partition() for m in found}) > 1
    assert len(query.recentProgress) >= 4
