"""Write tasks that kill: themselves, or the whole driver, in the middle of a batch."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from oncelog.spark.rows import Stage
from oncelog.spark.task import TaskPlan, writer


def killing(how: str, flag: str, group: int, plan: TaskPlan) -> Stage:
    """A write stage in which the first task to get there kills, once in the life of `flag`."""
    return partial(_run, how, flag, group, writer(plan))


def _run(
    how: str, flag: str, group: int, stage: Stage, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield from stage(_rows(how, flag, group, batches))


def _rows(
    how: str, flag: str, group: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    count = 0
    for batch in batches:
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)
            count += 1
    if count and _is_first(flag):
        if how == "driver":
            os.killpg(group, signal.SIGKILL)
        if how == "executor":
            # The worker's daemon is a child of the executor's JVM.
            os.kill(_parent_of(os.getppid()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def _is_first(flag: str) -> bool:
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
