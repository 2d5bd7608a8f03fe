"""A Python worker of Spark, as far as it is ours to treat well."""

import gc
from functools import cache

from pyspark import TaskContext


def settle() -> None:
    """Called by every task of ours, and does something in the first one of each worker.

    PySpark collects garbage after each task, and goes through everything that was ever imported:
    with pandas and pyarrow that takes longer than a small task. What is there now is there to stay.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
