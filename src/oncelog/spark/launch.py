"""From a file to a pipeline and a Spark to run it on, as `oncelog run` needs them."""

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from oncelog.spark.errors import BadConfiguration
from oncelog.spark.pipeline import Pipeline

#: All cores, and four tries for each task: plain `local` never tries again.
LOCAL: Final = "local[*,4]"
_CALM: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
#: A master on this machine need not be reached from others, and its workers start faster.
_ON_THIS_MACHINE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "oncelog.spark.daemon",
}


# --- the pipeline -----------------------------------------------------------------------------


def load(path: Path) -> ModuleType:
    """Import a file by its path; what it imports from beside it is found, by executors too."""
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadConfiguration(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[name] = module
    # Executors cannot import it, so its functions travel as they are.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # has no types
    spec.loader.exec_module(module)
    return module


def pipeline_of(module: ModuleType, name: str | None = None) -> Pipeline:
    """The pipeline that a module has, or makes in its function `pipeline`."""
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    make = vars(module).get("pipeline")
    if not found and callable(make):
        made = make()
        if not isinstance(made, Pipeline):
            raise BadConfiguration(f"pipeline() in {_file(module)} returns {made!r}: no Pipeline.")
        found = {"pipeline": made}
    if name is not None:
        found = {key: value for key, value in found.items() if name in (key, value.name)}
    chosen = list({id(value): value for value in found.values()}.values())
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = ", ".join(f"{key} ({value.name})" for key, value in found.items())
        raise BadConfiguration(
            f"{_file(module)} has several pipelines, {names}: choose one with --name."
        )
    if name is not None:
        raise BadConfiguration(f"{_file(module)} has no pipeline {name!r}.")
    raise BadConfiguration(
        f"{_file(module)} has no pipeline: assign one to a variable (job = Pipeline(...)), or "
        f"return one from a function pipeline()."
    )


def _file(module: ModuleType) -> str:
    return f"{module.__name__}.py"


# --- Spark ------------------------------------------------------------------------------------


def start_spark(
    name: str, *, master: str, conf: Mapping[str, str], beside: Path, log: Path | None
) -> SparkSession:
    """A session whose executors have this Python, and whose own words go to a file, if one is given.

    `beside` is a directory from which executors on this machine import too.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    paths = (str(beside.resolve()), *filter(None, [os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    settings = {**_CALM, **(_ON_THIS_MACHINE if master.startswith("local") else {}), **conf}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _standard_error_to(log), _without_sigterm():
        return builder.getOrCreate()


@contextmanager
def _without_sigterm() -> Iterator[None]:
    """Whoever stops a group of processes must not end the JVM before the batch is committed.

    A JVM ignores SIGTERM for good if it is ignored while it starts, and ends with this process anyway.
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """The JVM inherits where standard error goes while it starts, and keeps it."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
