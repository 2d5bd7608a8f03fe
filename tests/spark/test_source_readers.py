"""The readers of the source against a broker, without a JVM: what they plan and what they read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

import oncelog
from oncelog.client.errors import ClientError
from oncelog.client.fetching import NotReadable, OffsetsGone, TopicGone
from oncelog.spark.decode import SCHEMA, SCHEMA_WITH_HEADERS
from oncelog.spark.source import BatchReader, OncelogSource, StreamReader, row_schema
from tests.spark.topics import Topic

ALL = ReadAllAvailable()


def options(topic: Topic, **given: Any) -> dict[str, str]:
    chosen = {} if "subscribePattern" in given or "assign" in given else {"subscribe": topic.name}
    return {"kafka.bootstrap.servers": topic.servers, **chosen, **given}


def batch(topic: Topic, **given: Any) -> list[str]:
    """The values that a batch query reads."""
    reader = batch_reader(topic, **given)
    return values(reader, reader.partitions())


def batch_reader(topic: Topic, **given: Any) -> BatchReader:
    source = OncelogSource(options(topic, **given))
    reader = source.reader(source.schema())
    assert isinstance(reader, BatchReader)
    return reader


def values(reader: BatchReader | StreamReader, partitions: Any) -> list[str]:
    return [
        value.decode()
        for partition in partitions
        for rows in reader.read(partition)
        for value in rows.column("value").to_pylist()
    ]


@contextmanager
def stream(topic: Topic, **given: Any) -> Iterator[StreamReader]:
    source = OncelogSource(options(topic, **given))
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    try:
        yield reader
    finally:
        reader.stop()


def step(reader: StreamReader, start: dict[str, Any], limit: ReadLimit = ALL) -> Any:
    """One micro-batch: where it ends, and what is in it."""
    end = reader.latestOffset(start, limit)
    return end, values(reader, reader.partitions(start, end))


@pytest.fixture
def topic(broker: oncelog.Broker) -> Topic:
    return Topic(broker.bootstrap_servers)


def test_the_schema_is_what_spark_makes_of_it() -> None:
    plain, full = (row_schema(include_headers=each) for each in (False, True))

    assert to_arrow_schema(plain, timezone="UTC").equals(SCHEMA)
    assert to_arrow_schema(full, timezone="UTC").equals(SCHEMA_WITH_HEADERS)


def test_other_columns_are_refused(topic: Topic) -> None:
    with pytest.raises(ClientError, match="leave schema"):
        OncelogSource(options(topic)).reader(row_schema(include_headers=True))


# --- batches --------------------------------------------------------------------------------------


def test_a_batch_reads_everything_unless_told_otherwise(topic: Topic) -> None:
    topic.write("abcdef")

    assert batch(topic) == list("abcdef")
    here = {topic.name: {"0": 2}}
    assert batch(topic, startingOffsets=str(here).replace("'", '"')) == list("cdef")
    assert batch(topic, endingOffsets=str(here).replace("'", '"')) == list("ab")
    for name, latest in (("startingOffsets", -2), ("endingOffsets", -1)):
        everything = f'{{"{topic.name}": {{"0": {latest}}}}}'
        assert batch(topic, **{name: everything}) == list("abcdef")


def test_a_batch_reads_what_is_assigned_or_matches(broker: oncelog.Broker) -> None:
    topic = Topic(broker.bootstrap_servers, partitions=2)
    other = Topic(broker.bootstrap_servers, name=f"{topic.name}-more")
    topic.write("ab")
    topic.write("cd", partition=1)
    other.write("xy")

    assert batch(topic, assign=f'{{"{topic.name}": [1]}}') == list("cd")
    assert batch(topic, subscribe=f"{topic.name},{other.name}") == list("abcdxy")
    assert batch(topic, subscribePattern=f"{topic.name}-.*") == list("xy")
    # The whole name has to match, and a pattern may well match nothing.
    assert batch(topic, subscribePattern="source") == []


def test_times_become_offsets(topic: Topic) -> None:
    for number, value in enumerate("abcd"):
        topic.write(value, timestamp=1000 + number)
    late = f'{{"{topic.name}": {{"0": 5000}}}}'

    assert batch(topic, startingTimestamp="1002") == list("cd")
    assert batch(topic, endingTimestamp="1002") == list("ab")
    assert batch(topic, endingOffsetsByTimestamp=late) == list("abcd")
    with pytest.raises(
        ClientError, match=f"{topic.name}-0 has no record at or after the time 5000"
    ):
        batch(topic, startingOffsetsByTimestamp=late)
    wish = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch(topic, startingOffsetsByTimestamp=late, **wish) == []


def test_ranges_are_split(topic: Topic) -> None:
    topic.write("abcdefghij")

    shares = batch_reader(topic, minPartitions="3").partitions()
    small = batch_reader(topic, maxRecordsPerPartition="4").partitions()

    assert [share.value.size for share in shares] == [3, 3, 4]
    assert [share.value.size for share in small] == [3, 3, 4]
    assert values(batch_reader(topic), shares) == list("abcdefghij")


def test_only_committed_records_are_read_unless_told_otherwise(topic: Topic) -> None:
    topic.transact("ab")
    topic.transact("cd", ends=False)
    topic.transact("ef")

    assert batch(topic) == list("abef")
    assert batch(topic, isolation="read_uncommitted") == list("abcdef")


def test_a_batch_stops_before_an_open_transaction(topic: Topic) -> None:
    topic.write("ab")
    producer = topic.transact("cd", ends=None)
    topic.write("ef")

    assert batch(topic) == list("ab")
    beyond = f'{{"{topic.name}": {{"0": 5}}}}'
    with pytest.raises(NotReadable, match="can be read up to 2"):
        batch(topic, endingOffsets=beyond)
    producer.commit_transaction(10)
    topic.settle()
    assert batch(topic) == list("abcdef")


def test_unread_input_that_is_gone_is_named(topic: Topic) -> None:
    topic.write("abcdef")
    topic.delete_before(0, 4)
    given = {"startingOffsets": f'{{"{topic.name}": {{"0": 1}}}}'}

    with pytest.raises(OffsetsGone, match=f"{topic.name}-0: the offsets from 1 on and before 6"):
        batch(topic, **given)
    assert batch(topic, **given, failOnDataLoss="false") == list("ef")
    assert batch(topic) == list("ef")


def test_input_that_goes_between_plan_and_read_is_named(topic: Topic) -> None:
    topic.write("abcdef")
    reader = batch_reader(topic)
    shares = reader.partitions()
    topic.delete_before(0, 4)

    with pytest.raises(OffsetsGone, match="the offsets from 0 on and before 6"):
        values(reader, shares)
    assert values(batch_reader(topic, failOnDataLoss="false"), shares) == list("ef")


def test_what_does_not_exist_is_named(topic: Topic) -> None:
    with pytest.raises(TopicGone, match="Topic nowhere does not exist"):
        batch(topic, subscribe=f"{topic.name},nowhere")
    with pytest.raises(TopicGone, match=f"Partition {topic.name}-7 does not exist"):
        batch(topic, assign=f'{{"{topic.name}": [7]}}')
    with pytest.raises(ClientError, match=f"{topic.name}-1 is given"):
        batch(topic, startingOffsets=f'{{"{topic.name}": {{"0": 0, "1": 0}}}}')


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_begins_at_the_end_unless_told_otherwise(topic: Topic) -> None:
    topic.write("ab")

    with stream(topic) as reader, stream(topic, startingOffsets="earliest") as whole:
        start = reader.initialOffset()
        topic.write("cd")

        assert step(reader, start)[1] == list("cd")
        assert step(whole, whole.initialOffset())[1] == list("abcd")


def test_limits_cut_micro_batches(topic: Topic) -> None:
    topic.write("abcdefg")

    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    with stream(topic, **given) as reader:
        limit = reader.getDefaultReadLimit()
        first, found = step(reader, reader.initialOffset(), limit)
        _, more = step(reader, first, limit)
        _, rest = step(reader, first, ALL)

        assert limit == ReadMaxRows(3)
        assert (found, more, rest) == (list("abc"), list("def"), list("defg"))
        latest = reader.reportLatestOffset()
        assert latest is not None
        assert latest[topic.name] == {"0": 7}


def test_few_records_are_held_back_for_a_while(topic: Topic) -> None:
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "3"}
    with stream(topic, **given, maxTriggerDelay="1h") as reader:
        limit = reader.getDefaultReadLimit()
        topic.write("a")
        start, found = step(reader, reader.initialOffset(), limit)
        topic.write("bc")

        assert limit == ReadMinRows(3)
        assert found == ["a"]
        assert step(reader, start, limit) == (start, [])
        assert step(reader, start, ALL)[1] == list("bc")
        topic.write("d")
        assert step(reader, start, limit)[1] == list("bcd")

    with stream(topic, **given, maxTriggerDelay="0ms") as reader:
        step(reader, start, reader.getDefaultReadLimit())
        assert step(reader, start, reader.getDefaultReadLimit())[1] == list("bcd")


def test_available_now_ends_where_everything_ended_when_it_began(topic: Topic) -> None:
    topic.write("abc")
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    with stream(topic, **given, minOffsetsPerTrigger="2") as reader:
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        topic.write("def")
        topic.grow(2)
        topic.write("x", partition=1)
        limit = reader.getDefaultReadLimit()

        first, found = step(reader, start, limit)
        second, more = step(reader, first, limit)

        assert (found, more) == (list("ab"), list("c"))
        assert step(reader, second, limit) == (second, [])


def test_new_partitions_are_read_from_their_start(topic: Topic) -> None:
    topic.write("ab")
    with stream(topic) as reader:
        start = reader.initialOffset()
        topic.grow(2)
        topic.write("xy", partition=1)
        topic.write("c")

        end, found = step(reader, start)

        assert found == list("cxy")
        assert end[topic.name] == {"0": 3, "1": 2}


def test_a_topic_made_anew_is_not_read_with_the_offsets_of_the_old(topic: Topic) -> None:
    topic.write("abc")
    with stream(topic) as reader, stream(topic, failOnDataLoss="false") as bold:
        start = reader.initialOffset()
        topic.delete()
        topic.create(1)
        topic.write("vwxyz")

        with pytest.raises(TopicGone, match="deleted and created again"):
            reader.latestOffset(start, ALL)
        assert step(bold, start)[1] == list("vwxyz")


def test_a_topic_that_is_gone_is_named(topic: Topic) -> None:
    topic.write("abc")
    with stream(topic) as reader, stream(topic, failOnDataLoss="false") as bold:
        start = reader.initialOffset()
        topic.delete()

        with pytest.raises(TopicGone, match=f"{topic.name}-0 does not exist any more"):
            reader.latestOffset(start, ALL)
        assert step(bold, start) == ({}, [])


def test_k156_retention_before_a_restart_is_named(topic: Topic) -> None:
    with stream(topic) as reader, stream(topic, failOnDataLoss="false") as bold:
        start = reader.initialOffset()
        topic.write("abcdef")
        topic.delete_before(0, 4)
        end = reader.latestOffset(start, ALL)

        with pytest.raises(OffsetsGone, match="from 0 on and before 6") as caught:
            reader.partitions(start, end)
        assert "failOnDataLoss" in caught.value.__notes__[0]
        assert step(bold, start, ReadMaxRows(1))[1] == ["e"]


def test_k159_an_open_transaction_is_read_once_it_is_committed(topic: Topic) -> None:
    with stream(topic) as reader:
        start = reader.initialOffset()
        producer = topic.transact("ab", ends=None)
        assert step(reader, start) == (start, [])

        producer.commit_transaction(10)
        topic.settle()
        end, found = step(reader, start)

        assert found == list("ab")
        assert step(reader, end) == (end, [])


def test_a_reader_of_everything_may_become_one_of_committed_records(topic: Topic) -> None:
    topic.transact("ab", ends=None)
    with stream(topic, isolation="read_uncommitted") as all_seeing, stream(topic) as reader:
        start = all_seeing.initialOffset()

        assert start[topic.name] == {"0": 2}
        assert step(reader, start) == (start, [])


def test_offsets_beyond_the_log_are_gone(topic: Topic) -> None:
    topic.write("ab")
    with stream(topic, startingOffsets=f'{{"{topic.name}": {{"0": 9}}}}') as reader:
        start = reader.initialOffset()
        with pytest.raises(OffsetsGone, match="cut or made anew"):
            reader.latestOffset(start, ALL)


def test_aborted_records_and_markers_are_progress_without_rows(topic: Topic) -> None:
    with stream(topic) as reader:
        start = reader.initialOffset()
        topic.transact("ab", ends=False)

        end, found = step(reader, start)

        assert found == []
        assert end[topic.name] == {"0": 3}


def test_a_position_of_sparks_own_source_is_as_good(topic: Topic) -> None:
    topic.write("abcd")
    with stream(topic) as reader:
        assert step(reader, {topic.name: {"0": 1}})[1] == list("bcd")
