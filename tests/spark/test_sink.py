"""The sink as Structured Streaming uses it: every micro-batch is one transaction."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import oncelog
from oncelog.spark import BadConfiguration, Event, Refused, Sink, Step
from tests.spark.logs import fill, fresh, make_topics, read_all, values_of


def stream(spark: SparkSession, broker: oncelog.Broker, topic: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("oncelog").option(
        "kafka.bootstrap.servers", broker.bootstrap_servers
    )
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def run(rows: DataFrame, sink: Sink, checkpoint: Path) -> StreamingQuery:
    query = (
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()
        sink.close()
    return query


@pytest.fixture
def topics(broker: oncelog.Broker) -> tuple[str, str]:
    names = fresh("in"), fresh("out")
    make_topics(broker.bootstrap_servers, *names)
    return names


VALUES = [b"%04d" % number for number in range(1000)]


def test_a_stream_is_copied_once_batch_by_batch(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES)
    events: list[Event] = []
    sink = Sink(
        broker.bootstrap_servers, topic=target, transactional_id=fresh("job"), watch=events.append
    )
    rows = stream(spark, broker, source, maxOffsetsPerTrigger=300).select("key", "value")
    run(rows, sink, tmp_path)
    assert values_of(broker.bootstrap_servers, target) == VALUES
    steps = [event.step for event in events]
    assert steps[:2] == [Step.LOOKED, Step.FENCED]
    one = [Step.PLANNED, Step.WRITTEN, Step.RECORDED, Step.COMMITTED]
    assert steps[2:] == one * (len(steps[2:]) // 4)
    committed = [event for event in events if event.step is Step.COMMITTED]
    assert len(committed) >= 4
    assert sum(event.rows for event in committed) == 1000


def test_keys_go_where_every_kafka_client_puts_them(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    """librdkafka is told to place as Java does."""
    from confluent_kafka import Producer

    source, target = topics
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for value in VALUES[:200]:
        producer.produce(source, key=value, value=value)
    assert producer.flush(30) == 0
    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=fresh("job"))
    run(stream(spark, broker, source).select("key", "value"), sink, tmp_path)
    placed = {(p, k) for _, p, k, _ in read_all(broker.bootstrap_servers, target)}
    assert placed == {(p, k) for _, p, k, _ in read_all(broker.bootstrap_servers, source)}


def test_rows_choose_topic_partition_and_headers(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, first = topics
    second = fresh("second")
    make_topics(broker.bootstrap_servers, second, partitions=3)
    fill(broker.bootstrap_servers, source, VALUES[:90])
    number = F.col("value").cast("string").cast("int")
    rows = stream(spark, broker, source).select(
        F.when(number % 2 == 0, F.lit(second)).alias("topic"),
        (number % 3).alias("partition"),
        F.when(number % 5 != 0, F.col("value")).alias("value"),
        F.array(F.struct(F.lit("n").alias("key"), F.col("value").alias("value"))).alias("headers"),
    )
    sink = Sink(
        broker.bootstrap_servers, topic=first, topics=[second], transactional_id=fresh("job")
    )
    run(rows, sink, tmp_path)
    back = (
        spark.read.format("oncelog")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", f"{first},{second}")
        .option("includeHeaders", "true")
        .load()
        .collect()
    )
    assert len(back) == 90
    for row in back:
        n = int(row.headers[0].value)
        assert row.headers[0].key == "n"
        assert row.topic == (second if n % 2 == 0 else first)
        assert row.partition == n % 3
        assert row.value == (None if n % 5 == 0 else b"%04d" % n)


def test_order_by_sorts_within_each_output_partition(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES)
    rows = stream(spark, broker, source).select(
        "key", "value", (-F.col("value").cast("string").cast("int")).alias("rank")
    )
    sink = Sink(
        broker.bootstrap_servers, topic=target, transactional_id=fresh("job"), order_by="rank"
    )
    run(rows, sink, tmp_path)
    by_partition: dict[int, list[bytes | None]] = {}
    for _, partition, _, value in read_all(broker.bootstrap_servers, target):
        by_partition.setdefault(partition, []).append(value)
    assert len(by_partition) == 4
    for found in by_partition.values():
        assert found == sorted(found, key=lambda value: value or b"", reverse=True)


def test_a_bad_row_fails_the_batch_by_name_and_nothing_is_visible(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES[:50])
    number = F.col("value").cast("string").cast("int")
    rows = stream(spark, broker, source).select(
        "key", "value", F.when(number == 17, 99).otherwise(number % 4).alias("partition")
    )
    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=fresh("job"))
    with pytest.raises(Exception, match=r"(?s)partition.*99"):
        run(rows, sink, tmp_path)
    assert values_of(broker.bootstrap_servers, target) == []
    assert values_of(broker.bootstrap_servers, target, isolation="read_uncommitted") == []


def test_k166_a_bad_row_goes_to_the_dead_letters_inside_the_transaction(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    letters = fresh("letters")
    make_topics(broker.bootstrap_servers, letters, partitions=1)
    fill(broker.bootstrap_servers, source, VALUES[:50])
    number = F.col("value").cast("string").cast("int")
    rows = stream(spark, broker, source).select(
        "key", "value", F.when(number == 17, 99).otherwise(number % 4).alias("partition")
    )
    sink = Sink(
        broker.bootstrap_servers,
        topic=target,
        dead_letters=letters,
        transactional_id=fresh("job"),
    )
    run(rows, sink, tmp_path)
    expected = [value for value in VALUES[:50] if value != b"0017"]
    assert values_of(broker.bootstrap_servers, target) == expected
    assert values_of(broker.bootstrap_servers, letters) == [b"0017"]
    assert sink.last is not None
    assert (sink.last.rows, sink.last.rejected) == (50, 1)


def test_the_group_mirrors_where_the_source_is(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    import asyncio

    from oncelog.client.admin import committed_offsets
    from oncelog.client.cluster import Cluster

    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES[:100])
    group = fresh("group")
    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=fresh("job"), group=group)
    run(stream(spark, broker, source).select("key", "value"), sink, tmp_path)

    async def committed() -> int:
        async with await Cluster.open(broker.bootstrap_servers) as cluster:
            return sum((await committed_offsets(cluster, group)).values())

    assert asyncio.run(committed()) == 100


# --- which batch may run, in earnest ----------------------------------------------------------------


def test_a_new_checkpoint_is_refused_and_explained(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Scenario 151: the checkpoint is gone, and the query would write everything again."""
    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES[:100])
    name = fresh("job")
    rows = stream(spark, broker, source).select("key", "value")
    run(rows, Sink(broker.bootstrap_servers, topic=target, transactional_id=name), tmp_path / "a")
    again = Sink(broker.bootstrap_servers, topic=target, transactional_id=name)
    with pytest.raises(Exception, match="checkpoint is new, or was deleted"):
        run(rows, again, tmp_path / "b")
    assert values_of(broker.bootstrap_servers, target) == VALUES[:100]


def test_adopting_a_new_query_is_the_users_to_say(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES[:100])
    name = fresh("job")
    rows = stream(spark, broker, source).select("key", "value")
    run(rows, Sink(broker.bootstrap_servers, topic=target, transactional_id=name), tmp_path / "a")
    fill(broker.bootstrap_servers, source, VALUES[100:150])
    ends = "{" + f'"{source}":' + "{" + ",".join(f'"{p}":-1' for p in range(4)) + "}}"
    later = stream(spark, broker, source, startingOffsets=ends).select("key", "value")
    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=name, adopt=True)
    run(later, sink, tmp_path / "b")
    fill(broker.bootstrap_servers, source, VALUES[150:200])
    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=name)
    run(later, sink, tmp_path / "b")
    found = values_of(broker.bootstrap_servers, target)
    assert found == VALUES[:100] + VALUES[150:200]


def test_j143_speculation_is_refused_with_what_to_set(
    spark: SparkSession,
    broker: oncelog.Broker,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oncelog.spark import job

    class Conf:
        def get(self, name: str, default: str) -> str:
            return "true" if name == "spark.speculation" else default

    class Session:
        conf = Conf()

    with pytest.raises(BadConfiguration, match=r"Set spark\.speculation=false"):
        job.refuse_speculation(Session())  # type: ignore[arg-type]
    job.refuse_speculation(spark)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"topic": None}, "No topic is named"),
        ({"compression": "rar"}, "compression='rar' is not one of none, gzip"),
        ({"delivery": "twice"}, "delivery='twice' is not known"),
        ({"transactional_id": ""}, "give the job a name"),
        ({"writers": 0}, "at least one task"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_asked(
    arguments: dict[str, object], sentence: str
) -> None:
    wanted: dict[str, object] = {"topic": "t", "transactional_id": "x", **arguments}
    with pytest.raises(BadConfiguration, match=sentence):
        Sink("127.0.0.1:1", **wanted)  # type: ignore[arg-type]


def test_a_missing_topic_says_how_to_make_it(
    spark: SparkSession, topics: tuple[str, str], tmp_path: Path
) -> None:
    with oncelog.Broker(settings={"auto.create.topics.enable": "false"}) as strict:
        make_topics(strict.bootstrap_servers, "in", partitions=1)
        fill(strict.bootstrap_servers, "in", VALUES[:5])
        sink = Sink(strict.bootstrap_servers, topic="nowhere", transactional_id=fresh("job"))
        with pytest.raises(Exception, match="oncelog topic create nowhere"):
            run(stream(spark, strict, "in").select("value"), sink, tmp_path)


def test_a_batch_outside_of_a_query_is_told_what_to_use(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str]
) -> None:
    sink = Sink(broker.bootstrap_servers, topic=topics[1], transactional_id=fresh("job"))
    with pytest.raises(BadConfiguration, match=r"oncelog\.spark\.write"):
        sink(spark.range(3).select(F.col("id").cast("string").alias("value")), 0)


def test_refusals_leave_the_owner_of_the_name_unharmed(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Look once before the first fence: a wrong id is refused without fencing whoever has it."""
    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES[:20])
    name = fresh("job")
    rows = stream(spark, broker, source).select("key", "value")
    owner = Sink(broker.bootstrap_servers, topic=target, transactional_id=name)
    query = (
        rows.writeStream.foreachBatch(owner)
        .option("checkpointLocation", str(tmp_path / "a"))
        .start()
    )
    try:
        query.processAllAvailable()
        intruder = Sink(broker.bootstrap_servers, topic=target, transactional_id=name)
        with pytest.raises(Exception, match="belongs to query") as refused:
            run(rows, intruder, tmp_path / "b")
        assert Refused.__name__ in str(refused.value)
        fill(broker.bootstrap_servers, source, VALUES[20:40])
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
        owner.close()
    assert values_of(broker.bootstrap_servers, target) == VALUES[:40]


def test_a_micro_batch_is_one_job(
    spark: SparkSession, broker: oncelog.Broker, topics: tuple[str, str], tmp_path: Path
) -> None:
    """And the query's session is left as it was: what else is done in it may be adapted."""
    source, target = topics
    fill(broker.bootstrap_servers, source, VALUES)
    sink = Sink(broker.bootstrap_servers, topic=target, transactional_id=fresh("job"))
    adaptive = []

    def write(rows: DataFrame, batch_id: int) -> None:
        sink(rows, batch_id)
        adaptive.append(rows.sparkSession.conf.get("spark.sql.adaptive.enabled"))

    query = (
        stream(spark, broker, source, maxOffsetsPerTrigger=300)
        .select("key", "value")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()
        sink.close()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
    assert len(jobs) == len(adaptive) >= 4
    assert set(adaptive) == {"true"}
