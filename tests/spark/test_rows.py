"""Rows of a DataFrame come out as the records they stand for, each in its slot, in order."""

import pickle
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from oncelog.core.packing import Codec, read_batches
from oncelog.core.records import Record
from oncelog.spark.encode import stamp
from oncelog.spark.placement import STRETCH_ROWS
from oncelog.spark.rows import (
    ENCODED_SCHEMA,
    BadRow,
    Stage,
    TopicPlan,
    WritePlan,
    WrongColumns,
    check_schema,
    encode_placed,
    encoder,
    placed_schema,
    placer,
)

ORDERS: Final = TopicPlan(name="orders", partitions=3, first_slot=0, max_message_bytes=1000)
EVENTS: Final = TopicPlan(name="events", partitions=2, first_slot=3, max_message_bytes=2000)
DEAD: Final = TopicPlan(name="dead", partitions=1, first_slot=5, max_message_bytes=600)
TOPICS: Final = {topic.name: topic for topic in (ORDERS, EVENTS, DEAD)}

HEADERS: Final = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
INPUT: Final = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS,
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.int64(),
    }
)


def a_plan(
    *, dead_letters: str | None = None, codec: Codec = Codec.NONE, turn: int = 0
) -> WritePlan:
    return WritePlan(
        topics=(ORDERS, EVENTS, DEAD),
        default_topic="orders",
        dead_letters=dead_letters,
        writers=4,
        codec=codec,
        batch_bytes=400,
        turn=turn,
    )


def a_batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=INPUT)


def records_of(encoded: Iterable[pa.RecordBatch]) -> dict[int, list[Record]]:
    """The records of each slot, all batches checked for what is said about them."""
    found: dict[int, list[Record]] = defaultdict(list)
    numbers: dict[int, int] = defaultdict(int)
    for row in (row for batch in encoded for row in batch.to_pylist()):
        batch = stamp(row["batch"], producer_id=1, producer_epoch=0, base_sequence=0)
        ((header, records),) = read_batches(batch)
        assert header.is_transactional
        assert row["records"] == len(records)
        assert row["rejected"] == sum("oncelog.error" in dict(r.headers) for r in records)
        assert row["writer"] == row["slot"] % 4
        assert row["number"] == numbers[row["slot"]]
        numbers[row["slot"]] += 1
        found[row["slot"]] += [record._replace(offset=0) for record in records]
    return found


def encoded(plan: WritePlan, *batches: pa.RecordBatch) -> dict[int, list[Record]]:
    return records_of(encoder(plan)(iter(batches)))


# --- what comes out is what went in -----------------------------------------------------------

contents = st.none() | st.binary(max_size=60)
good_rows = st.fixed_dictionaries(
    {
        "key": contents,
        "value": contents,
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=4), "value": contents})),
        "topic": st.sampled_from([None, "orders", "events"]),
        "partition": st.sampled_from([None, None, 0, 1]),
        "timestamp": st.integers(0, 2**50),
    }
)


class Model:
    """Where Kafka's rules and the sink's put each row, one at a time."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.keyless: dict[str, int] = defaultdict(int)
        self.slots: dict[int, list[Record]] = defaultdict(list)

    def write(self, row: dict[str, Any]) -> None:
        topic = TOPICS[row["topic"] or "orders"]
        partition = row["partition"]
        if partition is None and row["key"] is not None:
            partition = (murmur2(row["key"]) & 0x7FFFFFFF) % topic.partitions
        elif partition is None:
            partition = (self.turn + self.keyless[topic.name] // STRETCH_ROWS) % topic.partitions
            self.keyless[topic.name] += 1
        headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
        record = Record(0, row["timestamp"], row["key"], row["value"], headers)
        self.slots[topic.first_slot + partition].append(record)


@given(st.lists(st.lists(good_rows, max_size=15), max_size=4), st.sampled_from(Codec))
def test_rows_come_back_as_they_were_in_their_slots(
    parts: list[list[dict[str, Any]]], codec: Codec
) -> None:
    model = Model(turn=5)
    for row in (row for part in parts for row in part):
        model.write(row)

    found = encoded(a_plan(codec=codec, turn=5), *(a_batch(*part) for part in parts))

    assert found == model.slots


@given(st.lists(good_rows, max_size=15))
def test_placing_first_and_encoding_later_gives_the_same(rows: list[dict[str, Any]]) -> None:
    plan, batch = a_plan(), a_batch(*rows)

    placed = list(placer(plan, keep=["timestamp"])(iter([batch])))

    assert [part.column("timestamp").to_pylist() for part in placed] == [
        [row["timestamp"] for row in rows]
    ]
    assert records_of(encode_placed(plan)(iter(placed))) == encoded(plan, batch)


def test_rows_without_a_key_take_turns_over_all_batches_of_a_task() -> None:
    half = a_batch(*[{"value": b"v", "timestamp": 1}] * (STRETCH_ROWS // 2))

    found = encoded(a_plan(turn=2), half, half, half)

    assert {slot: len(records) for slot, records in found.items()} == {2: 1000, 0: 500}


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view()],
)
def test_strings_and_bytes_of_any_kind_are_taken(kind: pa.DataType) -> None:
    content = pa.array([b"left out", b"\xc3\xa9", None], pa.binary()).cast(kind)
    batch = pa.RecordBatch.from_pydict({"key": content, "value": content}).slice(1)

    found = encoded(a_plan(), batch)

    records = sorted(record[2:4] for records in found.values() for record in records if record.key)
    assert records == [(b"\xc3\xa9", b"\xc3\xa9")]
    assert sum(map(len, found.values())) == 2


def test_the_microseconds_of_a_timestamp_are_cut_off() -> None:
    times = pa.array([1_700_000_000_123_999], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "timestamp": times})

    ((record,),) = encoded(a_plan(), batch).values()

    assert record.timestamp == 1_700_000_000_123


def test_columns_of_nothing_but_nulls_may_have_no_type() -> None:
    names = ["key", "value", "headers", "topic", "partition", "timestamp"]
    batch = pa.RecordBatch.from_pydict({name: pa.nulls(1) for name in names})

    ((record,),) = encoded(a_plan(), batch).values()

    assert (record.key, record.value, record.headers) == (None, None, ())


def test_the_functions_travel_to_other_processes() -> None:
    stage: Stage = pickle.loads(pickle.dumps(encoder(a_plan())))
    batch = a_batch({"value": b"v", "timestamp": 1})

    assert records_of(stage(iter([batch]))) == {0: [Record(0, 1, None, b"v")]}


# --- rows that cannot be written --------------------------------------------------------------

BAD: Final = [
    ({"topic": "else"}, "topic 'else' is not declared; the sink writes to orders, events, dead"),
    ({"partition": -1}, "partition -1 does not exist: topic 'orders' has 3"),
    ({"partition": 3}, "partition 3 does not exist: topic 'orders' has 3"),
    ({"topic": "events", "partition": 2}, "partition 2 does not exist: topic 'events' has 2"),
    (
        {"value": bytes(1000)},
        "it takes 1073 bytes as a batch, and topic 'orders' allows 1000 (max.message.bytes)",
    ),
    ({"headers": [{"key": None, "value": b"x"}]}, "one of its headers has no key"),
    ({"headers": [None]}, "one of its headers has no key"),
    ({"timestamp": -5}, "its timestamp, -5 ms, is before 1970"),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_fails_the_batch_by_name(row: dict[str, Any], reason: str) -> None:
    good = {"value": b"v"}
    bad = {"key": b"key", **row}

    with pytest.raises(BadRow) as caught:
        encoded(a_plan(), a_batch(good, good), a_batch(good, bad, bad))

    topic, partition = row.get("topic", "orders"), row.get("partition")
    assert str(caught.value).startswith(
        f"row 3 of the DataFrame's partition 0 cannot be written: {reason} "
        f"(topic '{topic}', partition {partition}, key b'key'). "
    )


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_becomes_a_letter_among_good_ones(row: dict[str, Any], reason: str) -> None:
    good = {"key": b"good", "value": b"v", "timestamp": 7}
    bad = {"key": b"key", "timestamp": 8, **row}

    found = encoded(a_plan(dead_letters="dead"), a_batch(good, bad, good, bad))

    letters = found.pop(DEAD.first_slot)
    assert len(letters) == 2
    for letter in letters:
        headers = dict(letter.headers)
        partition = row.get("partition")
        assert letter.key == b"key"
        assert headers["oncelog.error"] == reason.encode()
        assert headers["oncelog.topic"] == row.get("topic", "orders").encode()
        assert headers["oncelog.partition"] == (None if partition is None else b"%d" % partition)
        assert letter.timestamp == 8 or (row["timestamp"] < 0 and letter.timestamp > 8)
    assert list(found.values()) == [[Record(0, 7, b"good", b"v")] * 2]


def test_a_row_without_a_topic_and_without_a_default_is_bad() -> None:
    plan = replace(a_plan(), default_topic=None)

    with pytest.raises(BadRow, match="it names no topic, and there is no default one"):
        encoded(plan, a_batch({"value": b"v"}))


def test_a_record_as_large_as_the_topic_allows_is_written() -> None:
    # The header of the batch takes 61 bytes, the record beside key and value 9.
    found = encoded(a_plan(), a_batch({"key": b"key", "value": bytes(1000 - 61 - 9 - 3)}))

    assert [len(records) for records in found.values()] == [1]
    with pytest.raises(BadRow, match="it takes 1001 bytes as a batch"):
        encoded(a_plan(), a_batch({"key": b"key", "value": bytes(1001 - 61 - 9 - 3)}))


@pytest.mark.parametrize(
    ("row", "kept", "dropped"),
    [
        ({"key": b"k", "value": bytes(2000)}, (b"k", None, ["h"]), 2000),
        ({"key": b"k", "value": b"v", "big": 2000}, (b"k", None, []), 1 + 2001),
        ({"key": bytes(2000), "value": b"v"}, (None, None, []), 2000 + 1 + 2),
    ],
)
def test_a_letter_leaves_out_what_its_topic_does_not_take(
    row: dict[str, Any], kept: tuple[bytes | None, bytes | None, list[str]], dropped: int
) -> None:
    row["headers"] = [{"key": "h", "value": bytes(row.pop("big", 1))}]

    (letter,) = encoded(a_plan(dead_letters="dead"), a_batch(row))[DEAD.first_slot]

    own = [name for name, _ in letter.headers if not name.startswith("oncelog.")]
    assert (letter.key, letter.value, own) == kept
    assert dict(letter.headers)["oncelog.dropped.bytes"] == b"%d" % dropped


def test_a_letter_that_has_no_room_for_its_reason_fails_the_batch() -> None:
    tiny = replace(DEAD, max_message_bytes=100)
    plan = replace(a_plan(dead_letters="dead"), topics=(ORDERS, EVENTS, tiny))

    with pytest.raises(BadRow, match="partition 9 does not exist"):
        encoded(plan, a_batch({"value": b"v", "partition": 9}))


def test_a_long_key_is_shortened_in_the_error() -> None:
    with pytest.raises(BadRow, match=r"key b'kk+'\.\.\. of 500 bytes"):
        encoded(a_plan(), a_batch({"key": b"k" * 500, "partition": 9}))


def test_a_plan_names_only_declared_topics() -> None:
    with pytest.raises(ValueError, match="topic 'else' is not among the declared ones"):
        a_plan(dead_letters="else")


# --- the columns of a DataFrame ---------------------------------------------------------------


def a_schema(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def a_header(key: DataType, value: DataType) -> ArrayType:
    return ArrayType(a_schema(key=key, value=value))


TEXT: Final = StringType()


@pytest.mark.parametrize(
    "schema",
    [
        a_schema(value=TEXT),
        a_schema(key=BinaryType(), value=BinaryType(), headers=a_header(TEXT, BinaryType())),
        a_schema(value=TEXT, headers=a_header(TEXT, TEXT), topic=TEXT, partition=IntegerType()),
        a_schema(value=TEXT, timestamp=TimestampType()),
        a_schema(value=TEXT, timestamp=LongType()),
    ],
)
def test_columns_that_make_a_record_are_taken(schema: StructType) -> None:
    check_schema(schema, a_plan())

    assert placed_schema(schema, keep=[]).fieldNames() == ["writer", "slot", "record"]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (a_schema(key=TEXT), "needs a column `value`; it has `key`"),
        (a_schema(value=IntegerType()), "`value` is int; it has to be binary or string"),
        (a_schema(value=TEXT, a=TEXT, b=TEXT), "a record has no place for `a`, `b`: select only"),
        (a_schema(value=TEXT, timestamp=DateType()), "`timestamp` is date; it has to be timestamp"),
        (a_schema(value=TEXT, partition=TEXT), "`partition` is string; it has to be int"),
        (a_schema(value=TEXT, topic=LongType()), "`topic` is bigint; it has to be string"),
        (a_schema(value=TEXT, headers=a_header(LongType(), TEXT)), "it has to be array<struct<key"),
        (a_schema(value=TEXT, headers=TEXT), "`headers` is string; it has to be array<struct<key"),
        (a_schema(value=TEXT).add("value", TEXT), "more than one column `value`: drop one"),
    ],
)
def test_other_columns_are_refused_by_name(schema: StructType, sentence: str) -> None:
    with pytest.raises(WrongColumns) as caught:
        check_schema(schema, a_plan())

    assert sentence in str(caught.value)


def test_rows_need_a_topic_from_somewhere() -> None:
    plan = replace(a_plan(), default_topic=None)

    check_schema(a_schema(value=TEXT, topic=TEXT), plan)
    with pytest.raises(WrongColumns, match="name a topic for the rows, or add a column `topic`"):
        check_schema(a_schema(value=TEXT), plan)


def test_columns_to_sort_by_are_kept_beside_the_record() -> None:
    schema = a_schema(value=TEXT, at=DateType())

    check_schema(schema, a_plan(), keep=["at"])

    assert placed_schema(schema, keep=["at"]).fieldNames() == ["writer", "slot", "record", "at"]
    with pytest.raises(WrongColumns, match="a column named `slot`: rename it"):
        placed_schema(a_schema(value=TEXT, slot=TEXT), keep=["slot"])
    with pytest.raises(WrongColumns, match="`other`, which is not there"):
        check_schema(schema, a_plan(), keep=["at", "other"])


# --- in Spark ---------------------------------------------------------------------------------


def test_spark_runs_the_stages(spark: SparkSession) -> None:
    frame = spark.range(0, 500, numPartitions=2).selectExpr(
        "cast(id % 50 as string) as key",
        "cast(id as string) as value",
        "array(named_struct('key', 'h', 'value', cast(id as string))) as headers",
        "timestamp_millis(id) as timestamp",
    )
    plan = a_plan()
    check_schema(frame.schema, plan)

    batches = frame.mapInArrow(encoder(plan), ENCODED_SCHEMA).toArrow()
    placed = frame.mapInArrow(
        placer(plan, keep=["value"]), placed_schema(frame.schema, keep=["value"])
    )
    later = placed.mapInArrow(encode_placed(plan), ENCODED_SCHEMA).toArrow()

    for table in (batches, later):
        assert set(table.column("origin").to_pylist()) == {0, 1}
        for origin in (0, 1):
            mine = table.filter(pa.compute.equal(table.column("origin"), origin))
            records = [r for some in records_of(mine.to_batches()).values() for r in some]
            assert sorted(r.timestamp for r in records) == list(
                range(250 * origin, 250 * origin + 250)
            )
            for record in records:
                value = str(record.timestamp).encode()
                key = str(record.timestamp % 50).encode()
                assert record == Record(0, record.timestamp, key, value, (("h", value),))
