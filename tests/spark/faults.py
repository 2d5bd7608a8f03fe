"""Write tasks that fail in chosen ways, once, at a chosen moment. They run in Spark's workers."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from oncelog.spark.job import WriterOf
from oncelog.spark.report import Report
from oncelog.spark.rows import Stage
from oncelog.spark.task import TaskPlan, writer


def failing_once(flag: Path, fault: str, *, task: int = 0) -> WriterOf:
    """A write stage in which one task meets a fault, but only the first time."""
    return partial(_stage, str(flag), fault, task)


def _stage(flag: str, fault: str, task: int, plan: TaskPlan) -> Stage:
    return partial(_run, flag, fault, task, writer(plan))


def _run(
    flag: str, fault: str, task: int, stage: Stage, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() != task or not _is_first(flag):
        yield from stage(batches)
        return
    if fault == "raise before":
        raise RuntimeError("the task fails before it writes")
    if fault in ("raise in the middle", "kill in the middle"):
        batches = _breaking(batches, is_kill=fault.startswith("kill"))
    for report in stage(batches):
        if fault == "raise after":
            raise RuntimeError("the task fails when everything is written")
        if fault == "kill after":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "no report":
            return
        if fault == "stale report":
            found = Report.decode(report.column(0)[0].as_py())
            stale = Report(
                task=found.task + 1,
                stage=found.stage,
                attempt_id=found.attempt_id,
                written=found.written,
                rejected=0,
                seconds=0,
            )
            report = pa.RecordBatch.from_pydict({"report": [stale.encode()]})
        yield report


def _breaking(batches: Iterator[pa.RecordBatch], *, is_kill: bool) -> Iterator[pa.RecordBatch]:
    # Row by row, so that most of the first ones are on their way when it happens.
    for batch in batches:
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)
    if is_kill:
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("the task fails in the middle of its writes")


def _is_first(flag: str) -> bool:
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def slow(flag: str, seconds: float, plan: TaskPlan) -> Stage:
    """A write stage whose first task, once, takes its time between its first batch and its last."""
    return partial(_slow, flag, seconds, writer(plan))


def _slow(
    flag: str, seconds: float, stage: Stage, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield from stage(_waiting(flag, seconds, batches))


def _waiting(
    flag: str, seconds: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)
            if row == 0 and _is_first(flag):
                time.sleep(seconds)
