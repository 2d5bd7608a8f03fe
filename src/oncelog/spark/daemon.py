"""PySpark's worker daemon with everything imported that our tasks need.

Workers are forked from it, so each of them starts at once instead of importing for most of a second.
Named in `spark.python.daemon.module` where executors are on this machine.

PySpark itself imports after the fork, since these libraries start threads. They are two, and neither
is missed in a fork: OpenBLAS ends its own before one and starts it again on demand, and jemalloc does
its cleaning without one.
"""

import runpy

import pandas  # type: ignore[import-untyped]  # noqa: F401  # every worker with Arrow imports it

import oncelog.spark.reading
import oncelog.spark.rows
import oncelog.spark.task  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
