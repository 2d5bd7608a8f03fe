"""The data source `oncelog`: `spark.read` and `spark.readStream` from Oncelog or Apache Kafka.

Columns and options are those of Spark's Kafka source. One thing differs: only committed records are
read, unless the option `isolation` is `read_uncommitted`. Spark finds the source by itself, through
the package `pyspark_oncelog`.
"""

import time
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncelog.client.cluster import RESTART_S, Cluster
from oncelog.client.fetching import NotReadable, Range
from oncelog.core.types import TopicPartition
from oncelog.spark.background import Background
from oncelog.spark.offsets import Position, limited, offset_count, split
from oncelog.spark.planning import (
    End,
    OnLoss,
    Topics,
    check_found,
    end_offsets,
    find_topics,
    first_offsets,
    newest,
    offsets_at,
    ranges_between,
    still_there,
)
from oncelog.spark.reading import read_ranges
from oncelog.spark.source_options import (
    BadOption,
    SourceOptions,
    check_for_batch,
    check_for_stream,
    parse_options,
)

T = TypeVar("T")

_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS: Final = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


def row_schema(*, include_headers: bool) -> StructType:
    """The columns, as Spark's Kafka source has them."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))


class OncelogSource(DataSource):
    """`spark.read.format("oncelog")`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "oncelog"

    def schema(self) -> StructType:
        """Fixed but for the headers."""
        return row_schema(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = self._parsed(schema)
        check_for_batch(options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 as Spark says
        """For `spark.readStream`."""
        options = self._parsed(schema)
        check_for_stream(options)
        return StreamReader(options)

    def _parsed(self, schema: StructType) -> SourceOptions:
        options = parse_options(self.options)
        wanted = row_schema(include_headers=options.include_headers)
        if schema != wanted:
            raise BadOption(
                f"The columns of this source are {', '.join(wanted.fieldNames())}: leave schema(...) "
                "out, and select from them."
            )
        return options


class RangePartition(InputPartition):
    """One task's share."""

    def __init__(self, wanted: Range) -> None:
        """One range of one partition."""
        super().__init__(wanted)


def _partitions(options: SourceOptions, ranges: list[Range]) -> list[InputPartition]:
    shares = split(
        ranges, min_parts=options.min_partitions, max_offsets=options.max_records_per_partition
    )
    return [RangePartition(share) for share in shares]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark makes up a partition without a value where a batch has none at all.
    return read_ranges(
        options.settings,
        [] if partition.value is None else [cast(Range, partition.value)],
        isolation=options.isolation,
        include_headers=options.include_headers,
        skips_lost=not options.fail_on_data_loss,
    )


async def _beginning(
    cluster: Cluster, options: SourceOptions, default: End
) -> tuple[Topics, Position]:
    """The topics that were asked for, and where in them the query begins."""
    topics = await find_topics(cluster, options.selection)
    check_found(options.selection, topics)
    offsets = await offsets_at(
        cluster,
        topics.partitions,
        options.starting or default,
        options.isolation,
        late_is_latest=options.late_start_is_latest,
    )
    return topics, Position(offsets=offsets, ids=topics.ids)


# --- batches ----------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """What is there when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        """The options have been checked."""
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Find out what there is to read, and share it out."""
        with Background() as background:
            return _partitions(self._options, background.run(_plan_batch(self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return _read(self._options, partition)


async def _plan_batch(options: SourceOptions) -> list[Range]:
    async with await Cluster.connect(options.settings, wait_s=RESTART_S) as cluster:
        topics, start = await _beginning(cluster, options, End.EARLIEST)
        ends = await offsets_at(
            cluster,
            topics.partitions,
            options.ending or End.LATEST,
            options.isolation,
            late_is_latest=True,
        )
        readable = await end_offsets(cluster, topics.partitions, options.isolation)
        _check_readable(ends, readable)
        wanted = ranges_between(start, Position(offsets=ends, ids=topics.ids))
        on_loss = OnLoss(fails=options.fail_on_data_loss)
        return await still_there(cluster, wanted, topics, on_loss)


def _check_readable(
    ends: Mapping[TopicPartition, int], readable: Mapping[TopicPartition, int]
) -> None:
    for place, end in sorted(ends.items()):
        if end > readable[place]:
            raise NotReadable(
                f"Partition {place} is to be read up to offset {end} and can be read up to "
                f"{readable[place]} (where its log ends, or a transaction is open): choose lower "
                "endingOffsets, or latest."
            )


# --- streams ----------------------------------------------------------------------------------------


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches; Spark keeps this one in a process of its own beside the driver."""

    def __init__(self, options: SourceOptions) -> None:
        """The options have been checked. Connections are made when they are needed."""
        self._options = options
        self._on_loss = OnLoss(fails=options.fail_on_data_loss)
        self._background: Background | None = None
        self._cluster: Cluster | None = None
        #: With Trigger.AvailableNow: where everything ended when the query began.
        self._target: Mapping[TopicPartition, int] | None = None
        self._newest: Position | None = None
        self._last_batch_at_s: float | None = None

    # --- offsets ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 as Spark says
        """Where a new query begins."""
        return self._run(self._starting()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends: as far as can be read, within the limits."""
        begin = Position.from_json(start)
        found = self._newest = self._run(self._available(begin))
        first = self._run(self._begun(begin, found))
        if self._target is not None:
            found = _capped(found, begin, first, self._target)
        elif not isinstance(limit, ReadAllAvailable) and self._holds_back(first, found):
            return start
        if isinstance(limit, ReadMaxRows):
            nearer = limited(first, found.offsets, limit.max_rows)
            found = Position(offsets=nearer, ids=found.ids)
        self._last_batch_at_s = time.monotonic()
        return found.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of the options; where there are two, the lower one is kept in here."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What could be read without limits, so that the query's progress shows its lag."""
        return None if self._newest is None else self._newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where everything ends; what comes later is for the next run."""
        self._target = self._run(self._ends())

    # --- reading ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Share out what lies between; what is gone by now is named before a task runs."""
        wanted = ranges_between(Position.from_json(start), Position.from_json(end))
        return _partitions(self._options, self._run(self._there(wanted)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return _read(self._options, partition)

    def stop(self) -> None:
        """Hang up."""
        if self._background is not None:
            if self._cluster is not None:
                self._background.run(self._cluster.close())
            self._background.close()
            self._background = self._cluster = None

    # --- the inside ---

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._background is None:
            self._background = Background()
        return self._background.run(coroutine)

    async def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = await Cluster.connect(self._options.settings, wait_s=RESTART_S)
        return self._cluster

    async def _starting(self) -> Position:
        _, start = await _beginning(await self._connected(), self._options, End.LATEST)
        return start

    async def _available(self, start: Position) -> Position:
        options = self._options
        return await newest(
            await self._connected(), options.selection, start, options.isolation, self._on_loss
        )

    async def _begun(self, start: Position, found: Position) -> dict[TopicPartition, int]:
        """Where the next micro-batch begins, in new partitions too."""
        begun = {each.place: each.start for each in ranges_between(start, found)}
        new = [place for place, offset in begun.items() if offset == 0]
        if not self._on_loss.fails:
            # What is gone is skipped, and must not count as if it could be read.
            begun.update(await first_offsets(await self._connected(), new))
        return begun

    async def _ends(self) -> dict[TopicPartition, int]:
        cluster = await self._connected()
        topics = await find_topics(cluster, self._options.selection)
        return await end_offsets(cluster, topics.partitions, self._options.isolation)

    async def _there(self, wanted: list[Range]) -> list[Range]:
        cluster = await self._connected()
        topics = await find_topics(cluster, self._options.selection)
        return await still_there(cluster, wanted, topics, self._on_loss)

    def _holds_back(self, first: Mapping[TopicPartition, int], found: Position) -> bool:
        """Whether there is less than minOffsetsPerTrigger, and not for too long."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._last_batch_at_s is None:
            return False
        waited_s = time.monotonic() - self._last_batch_at_s
        return (
            offset_count(first, found.offsets) < least
            and waited_s < self._options.max_trigger_delay_s
        )


def _capped(
    found: Position,
    start: Position,
    first: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int],
) -> Position:
    """No further than the target, never back behind the start, and nothing that is new since."""
    return Position(
        offsets={
            place: max(min(offset, target.get(place, 0)), first[place])
            for place, offset in found.offsets.items()
            if place in target or place in start.offsets
        },
        ids=found.ids,
    )
