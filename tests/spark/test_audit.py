"""The audit finds what it is for, and nothing where there is nothing."""

import json
from collections.abc import Iterable

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, get_json_object

import oncelog
from oncelog.spark import AuditReport, BadConfiguration, Topics, audit
from oncelog.spark.audit_report import Example, Finding, Place
from tests.peers.kafka import Kafka
from tests.spark.topics import Topic

NUMBERS = [f"{number:03}" for number in range(20)]


@pytest.fixture
def source(broker: oncelog.Broker) -> Topic:
    return Topic(broker.bootstrap_servers)


@pytest.fixture
def target(broker: oncelog.Broker) -> Topic:
    return Topic(broker.bootstrap_servers, partitions=2)


def side(*topics: Topic, **options: object) -> Topics:
    return Topics(topics[0].servers, *(topic.name for topic in topics), **options)


def write(topic: Topic, values: Iterable[str], *, partition: int = 0) -> None:
    """Each record has its value as its key."""
    for value in values:
        topic.write([value], partition=partition, key=value)


def test_a_faithful_copy_is_found_to_be_one(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    write(source, NUMBERS)
    write(target, NUMBERS[::2], partition=0)
    write(target, NUMBERS[1::2], partition=1)

    report = audit(spark, input=side(source), output=side(target), order="partition")

    assert report == AuditReport(
        expected=20,
        output=20,
        lost=Finding(),
        duplicated=Finding(),
        unexpected=Finding(),
        reordered=Finding(),
        seen_early=None,
        uncommitted=Finding(),
    )
    assert report.ok
    assert str(report).startswith("20 expected, 20 found: as it should be\n")


def test_lost_doubled_and_unknown_records_are_told_apart_and_shown(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    write(source, NUMBERS)
    write(target, [*NUMBERS[:17], NUMBERS[3], NUMBERS[3], "stranger"])

    report = audit(spark, input=side(source), output=side(target), order=None, examples=2)

    def at(topic: Topic, offset: int) -> Place:
        return Place(topic=topic.name, partition=0, offset=offset)

    assert (report.expected, report.output, report.ok) == (20, 20, False)
    assert report.lost == Finding(
        count=3,
        examples=(
            Example(record="017", input=at(source, 17)),
            Example(record="018", input=at(source, 18)),
        ),
    )
    twice = Example(record="003", input=at(source, 3), output=(at(target, 3), at(target, 18)))
    assert report.duplicated == Finding(count=2, examples=(twice,))
    stranger = Example(record="stranger", output=(at(target, 19),))
    assert report.unexpected == Finding(count=1, examples=(stranger,))
    assert report.reordered is None
    assert f"003 (from {source.name}-0 at 3, {target.name}-0 at 3 and" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["lost"]["count"] == 3


def test_records_without_a_key_are_counted_too(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    source.write(["a", "a", "b", "c"])
    target.write(["a", "b", "b", "c"])

    report = audit(spark, input=side(source), output=side(target), by=["key", "value"])

    assert (report.lost.count, report.duplicated.count) == (1, 1)
    assert report.lost.examples[0].record == "None, a"


def test_order_is_judged_within_a_key_or_within_a_partition(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    def keyed(topic: Topic, *records: str) -> None:
        for record in records:
            topic.write([record], key=record[0])

    keyed(source, "a1", "a2", "b1", "a3", "b2")
    keyed(target, "b1", "a1", "a3", "b2", "a2")

    by_key = audit(spark, input=side(source), output=side(target), by="value")
    by_partition = audit(
        spark, input=side(source), output=side(target), by="value", order="partition"
    )

    assert by_key.reordered is not None
    assert [each.record for each in by_key.reordered.examples] == ["a2"]
    assert not by_key.ok
    assert by_partition.reordered is not None
    assert [each.record for each in by_partition.reordered.examples] == ["a1", "a2"]


def test_aborted_and_open_records_count_neither_as_there_nor_as_a_fault(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    write(source, NUMBERS)
    source.transact(["aborted"], ends=False)
    write(target, NUMBERS)
    target.transact(NUMBERS[:5], ends=False)
    unfinished = target.transact(["open"], ends=None)
    write(target, ["behind"])

    report = audit(spark, input=side(source), output=side(target))

    assert report.ok
    assert report.output == 20
    assert report.uncommitted.count == 7
    offsets = [place.offset for each in report.uncommitted.examples for place in each.output]
    assert offsets == [20, 21, 22, 23, 24]
    unfinished.abort_transaction(10)


def test_what_a_reader_saw_has_to_be_committed_in_the_end(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    write(source, NUMBERS)
    write(target, NUMBERS)
    target.transact(["early"], ends=False, key=b"early")

    def audited(seen: DataFrame | list[str]) -> AuditReport:
        return audit(spark, input=side(source), output=side(target), seen=seen)

    early = audited([*NUMBERS[:7], "early"])
    from_rows = audited(spark.createDataFrame([(b"early",)], "key binary"))

    assert early.seen_early == Finding(count=1, examples=(Example(record="early"),))
    assert from_rows.seen_early == early.seen_early
    assert not early.ok


def test_empty_topics_agree(spark: SparkSession, source: Topic, target: Topic) -> None:
    report = audit(spark, input=side(source), output=side(target), seen=[])

    assert report.ok
    assert (report.expected, report.output) == (0, 0)
    assert report.reordered == report.seen_early == Finding()


def test_a_filter_is_audited_by_what_it_should_give(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    source.write(['{"id": 1, "ok": true}', '{"id": 2, "ok": false}', '{"id": 3, "ok": true}'])
    target.write(["3", "1"])

    def good(rows: DataFrame) -> DataFrame:
        return rows.where(get_json_object(col("value").cast("string"), "$.ok") == "true")

    def order_id(rows: DataFrame) -> Column:
        return get_json_object(rows.value.cast("string"), "$.id")

    report = audit(
        spark,
        input=side(source),
        output=side(target),
        by=order_id,
        output_by="value",
        expected=good,
    )

    assert (report.expected, report.lost.count, report.unexpected.count) == (2, 0, 0)
    assert report.reordered is not None
    assert [each.record for each in report.reordered.examples] == ["1"]


def test_a_split_has_to_put_every_record_into_its_own_topic(
    spark: SparkSession, broker: oncelog.Broker, source: Topic
) -> None:
    low, high = Topic(broker.bootstrap_servers), Topic(broker.bootstrap_servers)
    write(source, NUMBERS)
    write(low, NUMBERS[:10])
    write(high, [*NUMBERS[11:], NUMBERS[0]])

    def split(rows: DataFrame) -> dict[str, DataFrame]:
        number = rows.value.cast("string").cast("int")
        rows = rows.select("key", "value")
        return {low.name: rows.where(number < 10), high.name: rows.where(number >= 10)}

    report = audit(spark, input=side(source), output=side(low, high), expected=split)

    assert [each.record for each in report.lost.examples] == [f"{high.name}, 010"]
    assert [each.record for each in report.unexpected.examples] == [f"{high.name}, 000"]
    assert report.reordered is None


def test_a_part_of_the_input_is_chosen_by_the_options_of_the_source(
    spark: SparkSession, broker: oncelog.Broker, source: Topic, target: Topic
) -> None:
    second = Topic(broker.bootstrap_servers)
    write(source, NUMBERS[:10])
    write(second, NUMBERS[10:])
    write(target, NUMBERS[5:])
    start = json.dumps({source.name: {"0": 5}, second.name: {"0": -2}})

    report = audit(
        spark,
        input=side(source, second, startingOffsets=start, minPartitions=4),
        output=side(target),
    )

    assert report.ok
    assert report.expected == 15


def test_sides_that_cannot_be_compared_are_refused(
    spark: SparkSession, source: Topic, target: Topic
) -> None:
    with pytest.raises(BadConfiguration, match=r"by=\.\.\. and output_by=\.\.\."):
        audit(spark, input=side(source), output=side(target), by="offset", output_by="key")
    with pytest.raises(BadConfiguration, match="leave the isolation out"):
        side(source, isolation="read_uncommitted")


@pytest.mark.peers
def test_it_audits_apache_kafka(spark: SparkSession, kafka_broker: Kafka) -> None:
    servers = kafka_broker.bootstrap_servers
    source, target = Topic(servers, name="audited"), Topic(servers, name="audited-copy")
    write(source, NUMBERS)
    target.transact(NUMBERS[:12])
    target.transact(["aborted"], ends=False)
    target.transact(NUMBERS[11:19])

    report = audit(
        spark, input=side(source), output=side(target), by="value", seen=["003", "aborted"]
    )

    assert [each.record for each in report.lost.examples] == ["019"]
    assert [each.record for each in report.duplicated.examples] == ["011"]
    assert (report.unexpected.count, report.uncommitted.count) == (0, 1)
    assert report.seen_early == Finding(count=1, examples=(Example(record="aborted"),))
