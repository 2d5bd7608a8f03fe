"""The Spark job that writes one batch: encode, shuffle, write, and account for it.

The write is the job's last stage and its reports are collected, for a stage behind it would make it
one that Spark may run again at will. Upstream tasks may be run as often as Spark likes. The driver
looks whether the write stage itself was run more than once: tasks are not told.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has none
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from oncelog.spark.errors import BadConfiguration, RunAgain, Stopped
from oncelog.spark.report import REPORT_SCHEMA, Report, check_reports
from oncelog.spark.rows import (
    ENCODED_SCHEMA,
    Stage,
    check_schema,
    encode_placed,
    encoder,
    placed_schema,
    placer,
)
from oncelog.spark.task import TaskPlan, writer
from oncelog.spark.write_plan import WritePlan

#: How long the status of a stage may lag behind its end.
_STATUS_WAIT_S: Final = 10.0
_STATUS_PAUSE_S: Final = 0.005

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"

#: What Spark says when it has lost the process of a task, rather than being told of an error by it.
_LOST_TASK: Final = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "FetchFailed",
    "A shuffle map stage with indeterminate output was failed and retried",
    "has failed the maximum allowable number of times",
    "Could not recover from a failed barrier",
)


#: What it says when the query is stopped: the waiting thread is interrupted, or the job goes first.
_STOPPED: Final = ("java.lang.InterruptedException", "SPARK_JOB_CANCELLED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Rows to write."""

    rows: DataFrame
    #: The topic of rows without one of their own.
    topic: str | None
    #: Columns by which rows are sorted within each output partition.
    order_by: tuple[str, ...] = ()


WriterOf = Callable[[TaskPlan], Stage]


def run(
    frames: Sequence[Frame], plan: WritePlan, tasks: TaskPlan, *, write: WriterOf = writer
) -> list[Report]:
    """Write the frames and check the account; raises `RunAgain` if the batch must be done anew."""
    spark = frames[0].rows.sparkSession
    reports_of = _written(frames, plan, write(tasks))
    try:
        reports = [Report.decode(row.report) for row in reports_of.collect()]
    except (PySparkException, Py4JJavaError) as error:
        raise translated(error) from error
    if tasks.identity is not None:
        check_reports(reports, tasks=plan.writers)
        check_stage(spark, reports[0].stage)
    return reports


def _written(frames: Sequence[Frame], plan: WritePlan, stage: Stage) -> DataFrame:
    sorted_ones = {frame.order_by for frame in frames}
    if len(sorted_ones) > 1:
        raise BadConfiguration("All outputs of one transaction are sorted alike, or none is.")
    (order_by,) = sorted_ones
    parts = [_prepared(frame, replace(plan, default_topic=frame.topic)) for frame in frames]
    rows = reduce(DataFrame.unionByName, parts).repartitionById(plan.writers, col("writer"))
    if not order_by:
        return rows.mapInArrow(stage, REPORT_SCHEMA)
    rows = rows.sortWithinPartitions("slot", *order_by)
    return rows.mapInArrow(partial(_in_turn, encode_placed(plan), stage), REPORT_SCHEMA)


def _prepared(frame: Frame, plan: WritePlan) -> DataFrame:
    check_schema(frame.rows.schema, plan, keep=frame.order_by)
    if not frame.order_by:
        return frame.rows.mapInArrow(encoder(plan), ENCODED_SCHEMA)
    schema = placed_schema(frame.rows.schema, keep=frame.order_by)
    return frame.rows.mapInArrow(placer(plan, keep=frame.order_by), schema)


def _in_turn(first: Stage, second: Stage, batches):  # type: ignore[no-untyped-def]
    return second(first(batches))


@contextmanager
def planned_once(spark: SparkSession) -> Iterator[None]:
    """Write within without adaptive execution, for a streaming query's own session.

    What a query hands over has been planned, and the write's own shuffle must stay as it is: there is
    nothing to adapt, but Spark would run a job for the shuffle, plan again, and run one more.
    """
    before = spark.conf.get(_ADAPTIVE)
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before or "true")


def evaluate(rows: DataFrame) -> None:
    """Run a batch that is done already into nothing, so that the query's state goes on with it."""
    rows.write.format("noop").mode("overwrite").save()


# --- what went wrong --------------------------------------------------------------------------


def translated(error: Exception) -> Exception:
    """What a failed job means: run it again, install something, or the user's own error."""
    text = str(error)
    if again := RunAgain.found_in(text):
        return again
    if any(sign in text for sign in _STOPPED):
        return Stopped()
    if any(sign in text for sign in _LOST_TASK):
        return RunAgain(text.split("\n", 1)[0])
    if "No module named 'oncelog'" in text or "No module named 'pyarrow'" in text:
        return BadConfiguration(
            "An executor has no oncelog (or no pyarrow): install oncelog[spark] in the Python that "
            "executors use (PYSPARK_PYTHON), or ship it with the job, for instance with "
            "`venv-pack` and spark.archives."
        )
    return error


def refuse_speculation(spark: SparkSession) -> None:
    """Two attempts of one write task at once can never be exactly once."""
    if spark.conf.get("spark.speculation", "false") == "true":
        raise BadConfiguration(
            "spark.speculation is on: Spark would run a slow write task twice at the same time. "
            "Set spark.speculation=false for this application, or delivery='at_least_once'."
        )


def refuse_connect(spark: SparkSession) -> None:
    """Over Spark Connect nobody can ask whether a stage was run twice."""
    if not hasattr(spark, "_jsparkSession"):
        raise BadConfiguration(
            "exactly_once needs a classic Spark session: over Spark Connect the driver cannot see "
            "whether Spark ran a write stage twice. Run the job with spark-submit or "
            "`oncelog run --master URL`, or set delivery='at_least_once'."
        )


def parallelism_of(spark: SparkSession) -> int:
    """How many tasks Spark runs at once."""
    if hasattr(spark, "_jsparkSession"):
        return spark.sparkContext.defaultParallelism
    return int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)


def check_stage(spark: SparkSession, stage: int) -> None:
    """Raise `RunAgain` if the stage was run more than once, wholly or in part."""
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + _STATUS_WAIT_S
    while True:
        # The status follows events: an attempt is known for good once all of its tasks are done.
        info = tracker.getStageInfo(stage)
        if info is not None and info.currentAttemptId > 0:
            raise RunAgain(f"Stage {stage} was run {info.currentAttemptId + 1} times.")
        if info is not None and info.numCompletedTasks == info.numTasks:
            return
        if time.monotonic() > deadline:
            raise RunAgain(f"Spark does not tell how often stage {stage} was run.")
        time.sleep(_STATUS_PAUSE_S)
