"""`Pipeline`: read, process, write, without a checkpoint directory.

    Pipeline(
        source=Source("localhost:9092", subscribe="orders"),
        sink=Sink("localhost:9092", topic="invoices", transactional_id="invoicing"),
        transform=lambda orders: orders.select("key", make_invoice("value").alias("value")),
    ).run()

Where the source is stands in the ledger, committed together with the output. So there is nothing to
lose on the machine it runs on: wherever it is started again, it goes on where the last commit was.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from oncelog.client.admin import commit_offsets
from oncelog.client.cluster import RESTART_S, Cluster
from oncelog.client.errors import ClientError
from oncelog.client.fetching import Range
from oncelog.core.plural import plural
from oncelog.spark.errors import BadConfiguration, Refused
from oncelog.spark.exactly_once import Done
from oncelog.spark.job import parallelism_of
from oncelog.spark.ledger import BatchName, Progress, fingerprint
from oncelog.spark.offsets import Position, offset_count
from oncelog.spark.planning import End
from oncelog.spark.reading import read_ranges
from oncelog.spark.sink import Sink
from oncelog.spark.source import StreamReader, row_schema
from oncelog.spark.source_options import SourceOptions, check_for_stream, parse_options

log = logging.getLogger(__name__)

#: What a pipeline calls itself in the ledger: a streaming query has an id of its own there.
QUERY: Final = "pipeline"

AVAILABLE_NOW: Final = "available_now"
ONCE: Final = "once"

#: A task for fewer would take longer to start than to run; there may be fewer only where some of
#: Spark's cores would have nothing to do.
OFFSETS_PER_TASK: Final = 50_000

#: One DataFrame for the sink's topic, or one for each of several topics.
Rows: TypeAlias = DataFrame | Mapping[str, DataFrame]
Transform: TypeAlias = Callable[[DataFrame], Rows]


class Source:
    """What a pipeline reads: the options of `spark.readStream.format("oncelog")`, by their names."""

    def __init__(self, servers: str, **options: object) -> None:
        """A pipeline without progress begins at the earliest offset unless told otherwise."""
        given = {"kafka.bootstrap.servers": servers}
        given |= {name: _text(value) for name, value in options.items()}
        parsed = parse_options(given)
        check_for_stream(parsed)
        self.options: SourceOptions = replace(parsed, starting=parsed.starting or End.EARLIEST)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class Summary:
    """What a run has done."""

    name: str
    batches: int = 0
    rows: int = 0
    rejected: int = 0
    retries: int = 0
    seconds: float = 0.0
    #: Offsets that were still to be read when it ended.
    lag: int = 0
    last: Done | None = None
    position: Position = field(default_factory=lambda: Position(offsets={}))

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0.0
        rejected = f", {self.rejected:,} to the dead letters" if self.rejected else ""
        retries = f", {plural(self.retries, 'try', 'tries')} repeated" if self.retries else ""
        return (
            f"{self.name}: {plural(self.rows, 'row')} in {plural(self.batches, 'batch', 'batches')}"
            f"{rejected}, {self.seconds:.1f} s ({rate:,.0f} rows/s){retries}, lag {self.lag:,}"
        )


class Pipeline:
    """One transactional id's worth of work; only one may run at a time, and the newest one does."""

    def __init__(
        self,
        *,
        source: Source,
        sink: Sink,
        transform: Transform = lambda rows: rows,
        trigger: str | float = 1.0,
        group: str | None = None,
        on_batch: Callable[[Summary], None] | None = None,
    ) -> None:
        """`trigger` is a number of seconds between batches, "available_now" or "once".

        `group` names the consumer group that mirrors the position, the sink's name if not given.
        `transform` gets the rows of one batch as the source gives them, and is called again when a
        batch is run again; it must not have effects of its own.
        """
        if not isinstance(trigger, int | float) and trigger not in (AVAILABLE_NOW, ONCE):
            raise BadConfiguration(
                f"trigger={trigger!r}: give a number of seconds, {AVAILABLE_NOW!r} or {ONCE!r}."
            )
        self.source = source
        self.sink = sink
        self.trigger = trigger
        self._transform = transform
        self._group = group or sink.name
        self._on_batch = on_batch
        self._reader = StreamReader(source.options)
        self._stopping = threading.Event()

    @property
    def name(self) -> str:
        """The transactional id."""
        return self.sink.name

    def stop(self) -> None:
        """Let the present batch be committed, and end."""
        self._stopping.set()

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        on_batch: Callable[[Summary], None] | None = None,
    ) -> Summary:
        """Run until it is stopped, or until everything that is there now has been written.

        `on_batch` is told what the pipeline's own `on_batch` is told.
        """
        session = spark or SparkSession.builder.appName(self.name).getOrCreate()
        self.sink.check_session(session)
        summary = Summary(self.name)
        started_s = time.monotonic()
        self._stopping.clear()
        with self._signals():
            try:
                self._run(session, summary, started_s, on_batch)
            finally:
                summary.seconds = time.monotonic() - started_s
                self._reader.stop()
                self.sink.close()
        return summary

    def _run(
        self,
        spark: SparkSession,
        summary: Summary,
        started_s: float,
        on_batch: Callable[[Summary], None] | None,
    ) -> None:
        progress = self.sink.writer.open(self._admit)
        position = progress.position if progress else None
        is_mirrored_inside = self._is_one_cluster()
        if self.trigger == AVAILABLE_NOW:
            self._reader.prepareForTriggerAvailableNow()
        if position is None:
            position = Position.from_json(self._reader.initialOffset())
        while not self._stopping.is_set():
            batch_began_s = time.monotonic()
            end = self._next(position)
            if end.offsets != position.offsets:
                done = self._batch(spark, position, end, is_mirrored_inside)
                position = end
                summary.batches += 1
                summary.rows += done.rows
                summary.rejected += done.rejected
                summary.retries += done.attempts - 1
                summary.last = done
            elif self.trigger == AVAILABLE_NOW:
                break
            summary.position = position
            summary.lag = self._lag(position)
            summary.seconds = time.monotonic() - started_s
            for told in (self._on_batch, on_batch):
                if told is not None:
                    told(summary)
            if self.trigger == ONCE:
                break
            if isinstance(self.trigger, int | float):
                self._stopping.wait(max(0.0, batch_began_s + self.trigger - time.monotonic()))

    def _admit(self, progress: Progress | None) -> None:
        if progress is not None and progress.query != QUERY:
            raise Refused(
                f"{self.name!r} belongs to {progress.query}, not to a pipeline (batch "
                f"{progress.batch} was its last): choose another transactional id, or forget that "
                f"one with `oncelog pipeline forget {self.name}`."
            )

    def _next(self, position: Position) -> Position:
        limit = self._reader.getDefaultReadLimit()
        if self.trigger == ONCE:
            limit = ReadAllAvailable()
        return Position.from_json(self._reader.latestOffset(position.to_json(), limit))

    def _batch(
        self, spark: SparkSession, start: Position, end: Position, is_mirrored_inside: bool
    ) -> Done:
        written = (start.to_json(), end.to_json())
        progress = self.sink.writer.progress
        batch = BatchName(
            query=QUERY,
            number=progress.batch + 1 if progress else 0,
            fingerprint=fingerprint(written),
        )
        parts = [cast(Range, part.value) for part in self._reader.partitions(*written)]

        def frames() -> Any:
            return self.sink.frames(self._transform(self._rows(spark, parts)))

        group = self._group if is_mirrored_inside else None
        done = self.sink.writer.write(batch, frames, end, group)
        if not is_mirrored_inside:
            self._mirror_outside(end)
        return done

    def _rows(self, spark: SparkSession, parts: list[Range]) -> DataFrame:
        schema = row_schema(include_headers=self.source.options.include_headers)
        if not parts:
            return spark.createDataFrame([], schema)
        read = partial(_read_part, self.source.options, parts)
        tasks = self._tasks(spark, parts)
        return spark.range(0, len(parts), 1, tasks).mapInArrow(read, schema)

    def _tasks(self, spark: SparkSession, parts: list[Range]) -> int:
        """How many tasks read: a part for each, unless these are too small to be worth one."""
        if self.source.options.min_partitions is not None:
            return len(parts)
        worth = sum(part.size for part in parts) // OFFSETS_PER_TASK
        return min(len(parts), max(parallelism_of(spark), worth))

    def _lag(self, position: Position) -> int:
        newest = self._reader.reportLatestOffset()
        if newest is None:
            return 0
        return offset_count(position.offsets, Position.from_json(newest).offsets)

    # --- the mirror ---

    def _is_one_cluster(self) -> bool:
        """Whether source and sink are one cluster, so that offsets can be in the transaction."""

        async def ids() -> tuple[str | None, str | None]:
            async with await Cluster.connect(
                self.source.options.settings, wait_s=RESTART_S
            ) as source:
                theirs = (await source.metadata(())).cluster_id
            return theirs, (await (await self.sink.target.cluster()).metadata(())).cluster_id

        theirs, ours = self.sink.target.run(ids())
        return theirs is not None and theirs == ours

    def _mirror_outside(self, position: Position) -> None:
        async def commit() -> None:
            async with await Cluster.connect(
                self.source.options.settings, wait_s=RESTART_S
            ) as source:
                await commit_offsets(source, self._group, position.offsets)

        try:
            self.sink.target.run(commit())
        except ClientError as error:  # only lag tools look at it
            log.warning("%s: the group's offsets could not be set: %s", self.name, error)

    # --- signals ---

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C let the present batch be committed; a second Ctrl-C does not."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

        def ask(number: int, frame: object) -> None:
            if self._stopping.is_set() and number == signal.SIGINT:
                raise KeyboardInterrupt
            log.info("%s: stopping after the present batch", self.name)
            self.stop()

        for each in before:
            signal.signal(each, ask)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _read_part(
    options: SourceOptions,
    parts: list[Range],
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    # Which part it is, the row says: where frames are joined, Spark counts tasks over all of them.
    wanted = [parts[number] for batch in numbers for number in batch.column(0).to_pylist()]
    return read_ranges(
        options.settings,
        wanted,
        isolation=options.isolation,
        include_headers=options.include_headers,
        skips_lost=not options.fail_on_data_loss,
    )
