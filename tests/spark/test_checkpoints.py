"""Stateful queries with a checkpoint and the sink: group K, and what Spark repeats after a crash."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import oncelog
from oncelog.spark import Event, Sink, Step
from tests.spark.logs import fill, fresh, make_topics, values_of

COUNT = 400
WINDOW = 20


class Died(Exception):
    """The driver is gone at this point."""


class Windows:
    """Counts values by window, in four batches or so, with a checkpoint."""

    def __init__(self, spark: SparkSession, broker: oncelog.Broker, directory: Path) -> None:
        self.spark = spark
        self.servers = broker.bootstrap_servers
        self.source, self.target, self.name = fresh("in"), fresh("out"), fresh("windows")
        self.checkpoint = directory / "checkpoint"
        self.events: list[Event] = []
        make_topics(self.servers, self.source, partitions=1)
        make_topics(self.servers, self.target, partitions=2)
        self.add(range(COUNT))
        # This one lets the watermark pass every window before it.
        self.add([COUNT + 1000])

    def add(self, numbers: range | list[int]) -> None:
        fill(self.servers, self.source, [b"%d" % number for number in numbers])

    def rows(self) -> DataFrame:
        at = F.timestamp_seconds(F.col("value").cast("string").cast("int"))
        rows = (
            self.spark.readStream.format("oncelog")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 100)
            .load()
        )
        counts = (
            rows.select(at.alias("at"))
            .withWatermark("at", "30 seconds")
            .groupBy(F.window("at", f"{WINDOW} seconds"))
            .count()
        )
        start = F.unix_timestamp("window.start").cast("string")
        return counts.select(F.concat_ws("=", start, F.col("count").cast("string")).alias("value"))

    def run(self, watch: Callable[[Event], None] | None = None, **options: object) -> None:
        self.events.clear()

        def watching(event: Event) -> None:
            self.events.append(event)
            if watch is not None:
                watch(event)

        sink = Sink(
            self.servers,
            topic=self.target,
            transactional_id=self.name,
            watch=watching,
            **options,  # type: ignore[arg-type]
        )
        self.sink = sink
        query = (
            self.rows()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(100)
        finally:
            query.stop()
            sink.close()

    def die_at(self, step: Step, batch: int) -> None:
        def watch(event: Event) -> None:
            if event.step is step and event.batch == batch:
                self.sink.writer._abort = lambda: None  # type: ignore[union-attr,method-assign]
                raise Died

        with pytest.raises(Exception, match="Died"):
            self.run(watch)

    def check(self) -> None:
        counts = Counter(number // WINDOW * WINDOW for number in range(COUNT))
        assert values_of(self.servers, self.target) == sorted(b"%d=%d" % i for i in counts.items())

    def skipped(self) -> list[int | None]:
        return [event.batch for event in self.events if event.step is Step.SKIPPED]


@pytest.fixture
def windows(spark: SparkSession, broker: oncelog.Broker, tmp_path: Path) -> Windows:
    return Windows(spark, broker, tmp_path)


def test_i133_a_committed_batch_that_spark_runs_again_is_skipped_and_its_state_goes_on(
    windows: Windows,
) -> None:
    windows.die_at(Step.COMMITTED, 2)
    windows.run()
    assert windows.skipped() == [2]
    windows.check()


def test_i131_k161_a_batch_that_was_not_committed_is_written_by_the_next_driver(
    windows: Windows,
) -> None:
    windows.die_at(Step.RECORDED, 1)
    windows.run()
    assert windows.skipped() == []
    windows.check()


def test_k151_a_lost_checkpoint_is_refused(windows: Windows) -> None:
    windows.run()
    shutil.rmtree(windows.checkpoint)
    with pytest.raises(Exception, match="checkpoint is new, or was deleted"):
        windows.run()
    windows.check()


def test_k152_batches_that_an_old_checkpoint_repeats_are_not_written_again(
    windows: Windows, tmp_path: Path
) -> None:
    """Same input, same limits: the batches are planned as before, and recognised."""
    windows.die_at(Step.COMMITTED, 0)
    shutil.copytree(windows.checkpoint, tmp_path / "copy")
    windows.run()
    windows.check()
    shutil.rmtree(windows.checkpoint)
    shutil.copytree(tmp_path / "copy", windows.checkpoint)
    windows.run()
    assert len(windows.skipped()) >= 4
    windows.check()


def test_k152_an_old_checkpoint_that_plans_other_batches_is_refused(
    windows: Windows, tmp_path: Path
) -> None:
    windows.die_at(Step.COMMITTED, 3)
    copy = tmp_path / "copy"
    shutil.copytree(windows.checkpoint, copy)
    windows.run()
    # Put back without what was planned for the last batches; new input makes them other ones.
    for part in ("offsets", "commits"):
        for number in range(3, 20):
            for path in (copy / part).glob(f"*{number}*"):
                if path.name.lstrip(".").split(".")[0] == str(number):
                    path.unlink()
    windows.add(range(COUNT + 2000, COUNT + 2300))
    shutil.rmtree(windows.checkpoint)
    shutil.copytree(copy, windows.checkpoint)
    before = values_of(windows.servers, windows.target)
    with pytest.raises(Exception, match="with other input than it has now"):
        windows.run()
    assert values_of(windows.servers, windows.target) == before


def _damaged(checkpoint: Path, name: str, how: str) -> None:
    """One file of the checkpoint is not as it was; no checksum beside it gives that away."""
    path = checkpoint / name
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if how == "empty" else whole[: len(whole) // 2])


def test_k153_a_damaged_checkpoint_is_refused_or_gone_on_from_but_never_guessed(
    windows: Windows, tmp_path: Path
) -> None:
    """Batch 3 is committed, and Spark was not told: the newest files are offsets 3 and commits 2."""
    windows.die_at(Step.COMMITTED, 3)
    copy = tmp_path / "copy"
    shutil.copytree(windows.checkpoint, copy)
    before = values_of(windows.servers, windows.target)
    for name, how in (
        ("offsets/3", "empty"),
        ("offsets/3", "cut"),
        ("offsets/2", "missing"),
        ("commits/2", "empty"),
        ("commits/2", "cut"),
    ):
        _damaged(windows.checkpoint, name, how)
        with pytest.raises(Exception, match=r"log file|end-of-input|batch 2"):
            windows.run()
        assert values_of(windows.servers, windows.target) == before, (name, how)
        shutil.rmtree(windows.checkpoint)
        shutil.copytree(copy, windows.checkpoint)
    # An older commit is not asked for, and the batches go on.
    _damaged(windows.checkpoint, "commits/1", "missing")
    windows.run()
    windows.check()
