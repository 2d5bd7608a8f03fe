"""`audit`: a Spark job that compares what went in with what came out, on any Kafka.

    report = audit(
        spark,
        input=Topics("localhost:9092", "orders"),
        output=Topics("localhost:9092", "invoices"),
    )
    print(report)

Both sides are counted in one aggregate over all records, by what they are recognised by. So it grows
with the cluster and not with the driver, which sees counts and a few examples.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType
from pyspark.sql.utils import to_str

from oncelog.client.fetching import Isolation, Range
from oncelog.core.types import TopicPartition
from oncelog.spark.audit_report import AuditReport, Example, Finding, Place
from oncelog.spark.errors import BadConfiguration
from oncelog.spark.offsets import Position
from oncelog.spark.pipeline import Rows
from oncelog.spark.source import BatchReader, row_schema
from oncelog.spark.source_options import check_for_batch, parse_options

#: A column, several, an expression, or a function of the DataFrame that makes one.
By: TypeAlias = str | Sequence[str] | Column | Callable[[DataFrame], Column]

_PLACE: Final = ("topic", "partition", "offset")
_PLACE_TYPE: Final = "struct<topic:string,partition:int,offset:bigint>"
#: Who speaks for a record: the input, the output, or a reader who has seen it.
_ROLES: Final = ("expected", "found", "seen")
_NOTHING: Final[Mapping[str, Column]] = {}
#: Options that say what to read, and are fixed when the audit begins.
_SAYS_WHAT: Final = ("subscribe", "assign", "starting", "ending")


class Topics:
    """One side of an audit: topics of a cluster, with the options of `format("oncelog")`."""

    def __init__(self, servers: str, *names: str, **options: object) -> None:
        """Whole topics, unless `startingOffsets`, `endingTimestamp` and their like say otherwise."""
        if any(name.lower() in ("isolation", "kafka.isolation.level") for name in options):
            raise BadConfiguration(
                "An audit reads what is committed, and then what is not: leave the isolation out."
            )
        self._options = {name: to_str(value) or "" for name, value in options.items()}
        self._options["kafka.bootstrap.servers"] = servers
        if names:
            self._options["subscribe"] = ",".join(names)

    def frame(self, spark: SparkSession, isolation: Isolation) -> DataFrame:
        """The records that are there now: whoever reads it again later reads the same."""
        options = {**self._options, "isolation": isolation.name.lower()}
        parsed = parse_options(options)
        check_for_batch(parsed)
        parts = [cast(Range, part.value) for part in BatchReader(parsed).partitions()]
        if not parts:
            schema = row_schema(include_headers=parsed.include_headers)
            return spark.createDataFrame([], schema)
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for part in parts:
            starts[part.place] = min(part.start, starts.get(part.place, part.start))
            ends[part.place] = max(part.end, ends.get(part.place, part.end))
        assigned = {
            topic: [int(partition) for partition in partitions]
            for topic, partitions in Position(offsets=ends).to_json().items()
        }
        fixed = {
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(Position(offsets=starts).to_json()),
            "endingOffsets": json.dumps(Position(offsets=ends).to_json()),
        }
        kept = {n: v for n, v in options.items() if not n.lower().startswith(_SAYS_WHAT)}
        return spark.read.format("oncelog").options(**kept, **fixed).load()


def audit(
    spark: SparkSession,
    *,
    input: Topics,
    output: Topics,
    by: By = "key",
    output_by: By | None = None,
    expected: Callable[[DataFrame], Rows] | None = None,
    order: By | None = "key",
    seen: DataFrame | Iterable[Any] | None = None,
    examples: int = 5,
) -> AuditReport:
    """Compare two sides, record by record; the job that wrote the output should have come to rest.

    `by` is what a record is recognised by, on the output too unless `output_by` says otherwise; as
    often as it is in the input it has to be in the output. `expected` makes of the input what should
    be in the output: a pipeline's own `transform` will do, and if it gives rows for several topics,
    each has to be in its topic. `order` says which records have to keep their order on the way from
    one partition to another: those of one key, or ("partition") all; it is seen where `by` tells
    them apart, and where `expected` keeps topic, partition and offset. `seen` is what a
    read_committed reader got while the job ran: rows like the output's, or what `by` gives for them.
    """
    # The output first: what is written in the meantime may seem lost, but never out of nowhere.
    committed = output.frame(spark, Isolation.READ_COMMITTED)
    everything = output.frame(spark, Isolation.READ_UNCOMMITTED)
    wanted = input.frame(spark, Isolation.READ_COMMITTED)
    made: Rows = expected(wanted) if expected else wanted
    found_by = by if output_by is None else output_by
    sides = _Sides(committed, made, by=by, output_by=found_by, order=order)
    rows = sides.rows()
    if seen is not None:
        rows = rows.unionByName(sides.of_seen(spark, seen))
    tally = _tally(rows).persist()
    try:
        return _report(
            tally,
            examples,
            is_ordered=sides.is_ordered,
            has_seen=seen is not None,
            uncommitted=partial(_uncommitted, everything, committed, found_by, examples),
        )
    finally:
        tally.unpersist()


# --- records and what they are recognised by ----------------------------------------------------


class _Sides:
    """Both sides in one shape: what a record is recognised by, whose it is, and where it lies."""

    def __init__(
        self, output: DataFrame, expected: Rows, *, by: By, output_by: By, order: By | None
    ) -> None:
        is_one = isinstance(expected, DataFrame)
        parts = {"": expected} if isinstance(expected, DataFrame) else expected
        self._by = output_by
        #: Rows for several topics have to be in their own.
        self._more = () if is_one else (fn.col("topic"),)
        self._output = (output, _identity(output, output_by, *self._more))
        self._expected = [
            (part, _identity(part, by, *(() if is_one else (fn.lit(topic),))))
            for topic, part in parts.items()
        ]
        self._id_type = _type_of(*self._output)
        for each in self._expected:
            _check_alike(_type_of(*each), self._id_type)
        first = self._expected[0][0]
        self._has_places = is_one and set(_PLACE) <= set(first.columns)
        self.is_ordered = order is not None and self._has_places
        self._group = fn.lit(None)
        if order is not None and self.is_ordered:
            self._group = fn.struct(*_columns(first, order))
        self._group_type = _type_of(first, self._group)

    def rows(self) -> DataFrame:
        """One row for each record that should be there, and one for each that is."""
        place = fn.struct(*_PLACE)
        rows = self._shaped(*self._output, "found", {"output": place})
        for part in self._expected:
            where = {"input": place, "group": self._group} if self._has_places else {}
            rows = rows.unionByName(self._shaped(*part, "expected", where))
        return rows

    def of_seen(self, spark: SparkSession, seen: DataFrame | Iterable[Any]) -> DataFrame:
        """One row for each record that somebody has seen."""
        if isinstance(seen, DataFrame):
            return self._shaped(seen, _identity(seen, self._by, *self._more), "seen")
        kinds = [field.dataType for field in cast(StructType, self._id_type).fields]
        values = [
            (tuple(_given(*each) for each in zip(_parts(one), kinds, strict=True)),) for one in seen
        ]
        frame = spark.createDataFrame(values, StructType([StructField("id", self._id_type)]))
        return self._shaped(frame, fn.col("id"), "seen")

    def _shaped(
        self, frame: DataFrame, identity: Column, role: str, known: Mapping[str, Column] = _NOTHING
    ) -> DataFrame:
        unknown = fn.lit(None)
        return frame.select(
            identity.alias("id"),
            *(fn.lit(int(each == role)).alias(each) for each in _ROLES),
            known.get("input", unknown).cast(_PLACE_TYPE).alias("input"),
            known.get("output", unknown).cast(_PLACE_TYPE).alias("output"),
            known.get("group", unknown).cast(self._group_type).alias("group"),
        )


def _type_of(frame: DataFrame, column: Column) -> DataType:
    return frame.select(column).schema[0].dataType


def _columns(frame: DataFrame, by: By) -> list[Column]:
    if isinstance(by, str):
        return [fn.col(by)]
    if isinstance(by, Column):
        return [by]
    if callable(by):
        return [by(frame)]
    return [fn.col(name) for name in by]


def _identity(frame: DataFrame, by: By, *more: Column) -> Column:
    """What a record is recognised by, as one column; text counts as the bytes that it is sent as."""
    columns = [*more, *_columns(frame, by)]
    kinds = frame.select(*columns).schema.fields
    return fn.struct(
        *(
            (column.cast(BinaryType()) if isinstance(kind.dataType, StringType) else column).alias(
                f"part{number}"
            )
            for number, (column, kind) in enumerate(zip(columns, kinds, strict=True))
        )
    )


def _check_alike(expected: DataType, found: DataType) -> None:
    if expected.simpleString() != found.simpleString():
        raise BadConfiguration(
            f"Records of the input are recognised by {expected.simpleString()} and those of the "
            f"output by {found.simpleString()}: say by=... and output_by=... so that they are alike."
        )


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)


def _given(value: Any, kind: DataType) -> Any:
    return value.encode() if isinstance(value, str) and isinstance(kind, BinaryType) else value


# --- counting -------------------------------------------------------------------------------------


def _tally(rows: DataFrame) -> DataFrame:
    """One row for all that is known of what is recognised as one record."""
    return rows.groupBy("id").agg(
        *(fn.sum(role).alias(role) for role in _ROLES),
        fn.min("input").alias("input"),
        fn.min("output").alias("output"),
        fn.max("output").alias("again"),
        fn.first("group", ignorenulls=True).alias("group"),
    )


def _report(
    tally: DataFrame,
    examples: int,
    *,
    is_ordered: bool,
    has_seen: bool,
    uncommitted: Callable[[int], Finding],
) -> AuditReport:
    expected, found, seen = (fn.col(role) for role in _ROLES)
    kinds = {
        "lost": fn.greatest(expected - found, fn.lit(0)),
        "duplicated": fn.when(expected > 0, fn.greatest(found - expected, fn.lit(0))).otherwise(0),
        "unexpected": fn.when(expected == 0, found).otherwise(0),
        "seen_early": fn.when(found == 0, seen).otherwise(0),
    }
    wanted = {"expected": expected, "output": found, **kinds}
    total = tally.agg(
        *(fn.coalesce(fn.sum(count), fn.lit(0)).alias(name) for name, count in wanted.items())
    ).first()
    assert total is not None, "an aggregate has one row"
    findings = {
        name: _finding(tally.where(count > 0), total[name], examples)
        for name, count in kinds.items()
    }
    late = _late(tally) if is_ordered else None
    return AuditReport(
        expected=total["expected"],
        output=total["output"],
        lost=findings["lost"],
        duplicated=findings["duplicated"],
        unexpected=findings["unexpected"],
        reordered=None if late is None else _finding(late, late.count(), examples),
        seen_early=findings["seen_early"] if has_seen else None,
        uncommitted=uncommitted(total["output"]),
    )


def _late(tally: DataFrame) -> DataFrame:
    """Records that stand behind one that came after them, where both are there just once."""
    before = (
        Window.partitionBy(
            "group", "input.topic", "input.partition", "output.topic", "output.partition"
        )
        .orderBy("output.offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    once = tally.where("expected = 1 AND found = 1")
    furthest = fn.max("input.offset").over(before)
    return once.withColumn("furthest", furthest).where("furthest > input.offset")


def _uncommitted(
    everything: DataFrame, committed: DataFrame, by: By, examples: int, visible: int
) -> Finding:
    """What is there beside the visible records; as many as those are no more than those."""
    if everything.count() == visible:
        return Finding()
    hidden = everything.join(committed.select(*_PLACE), [*_PLACE], "left_anti")
    rows = hidden.select(
        _identity(hidden, by).alias("id"),
        fn.lit(None).alias("input"),
        fn.struct(*_PLACE).alias("output"),
        fn.struct(*_PLACE).alias("again"),
    )
    return _finding(rows, rows.count(), examples)


def _finding(rows: DataFrame, count: int, examples: int) -> Finding:
    if not count:
        return Finding()
    some = rows.orderBy("output", "input", "id").select("id", "input", "output", "again")
    return Finding(
        count=count, examples=tuple(_example(row) for row in some.limit(examples).collect())
    )


def _example(row: Row) -> Example:
    places = dict.fromkeys(_place(each) for each in (row.output, row.again) if each is not None)
    return Example(
        record=", ".join(_readable(part) for part in row.id),
        input=None if row.input is None else _place(row.input),
        output=tuple(places),
    )


def _place(row: Row) -> Place:
    return Place(topic=row.topic, partition=row.partition, offset=row.offset)


def _readable(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return str(value)
