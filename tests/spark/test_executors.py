"""Executors that lack oncelog, have another version, or belong to a session that cannot be trusted."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from oncelog import __version__
from oncelog.client.errors import ClientError
from oncelog.spark.errors import BadConfiguration, RunAgain
from oncelog.spark.job import check_stage, translated
from oncelog.spark.task import check_version


def test_an_executor_without_oncelog_says_what_to_install() -> None:
    error = PySparkException("x\nModuleNotFoundError: No module named 'oncelog'\n")
    found = translated(error)
    assert isinstance(found, BadConfiguration)
    assert "install oncelog[spark] in the Python that executors use" in str(found)


def test_an_executor_with_another_version_says_so() -> None:
    check_version(__version__)
    with pytest.raises(
        ClientError, match=f"The driver has oncelog 0.0.0 and this executor has {__version__}"
    ):
        check_version("0.0.0")


@pytest.mark.parametrize(
    "text",
    [
        "Python worker exited unexpectedly (crashed)",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
        "A shuffle map stage with indeterminate output was failed and retried. However, Spark cannot",
        "ResultStage 3 has failed the maximum allowable number of times: 4.",
        "...[oncelog-run-again] Write task 3 was started again.\n at org.apache",
    ],
)
def test_a_lost_task_sends_the_batch_round_again(text: str) -> None:
    assert isinstance(translated(PySparkException(text)), RunAgain)


def test_the_users_own_error_stays_the_users_own() -> None:
    error = PySparkException("ValueError: cannot digest")
    assert not isinstance(translated(error), RunAgain | BadConfiguration)


class Tracker:
    """What Spark says of a stage, call by call."""

    def __init__(self, *infos: tuple[int, int, int] | None) -> None:
        self._infos = list(infos)
        self.asked = 0

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:  # noqa: N802
        self.asked += 1
        info = self._infos.pop(0) if len(self._infos) > 1 else self._infos[0]
        if info is None:
            return None
        attempt, tasks, completed = info
        return SimpleNamespace(
            currentAttemptId=attempt, numTasks=tasks, numCompletedTasks=completed
        )


class Session:
    """Enough of a session for `check_stage`."""

    def __init__(self, tracker: Tracker) -> None:
        self.sparkContext = self
        self._tracker = tracker

    def statusTracker(self) -> Tracker:  # noqa: N802
        return self._tracker


def test_j144_a_stage_that_was_run_once_is_trusted() -> None:
    """Its last event may come a moment later than its result."""
    tracker = Tracker(None, (0, 4, 3), (0, 4, 4))

    check_stage(Session(tracker), 7)  # type: ignore[arg-type]

    assert tracker.asked == 3


def test_j144_a_stage_that_was_run_again_sends_the_batch_round_again() -> None:
    """The first run looks unfinished until the second one is known."""
    session = Session(Tracker((0, 4, 3), (1, 1, 1)))
    with pytest.raises(RunAgain, match="Stage 7 was run 2 times"):
        check_stage(session, 7)  # type: ignore[arg-type]


CONNECT = """
import sys
from pyspark.sql import SparkSession
import oncelog
from oncelog.spark import BadConfiguration, Pipeline, Sink, Source, write
from tests.spark.logs import fill, make_topics, values_of

spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
values = [b"%03d" % number for number in range(60)]
with oncelog.Broker() as broker:
    servers = broker.bootstrap_servers
    make_topics(servers, "in", "out", partitions=2)
    fill(servers, "in", values)
    reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", "in").load().select("key", "value")
    assert rows.count() == 60
    try:
        write(rows, servers, topic="out", key="k")
    except BadConfiguration as error:
        assert "exactly_once needs a classic Spark session" in str(error), error
    else:
        raise AssertionError("exactly_once must refuse")
    Pipeline(
        source=Source(servers, subscribe="in"),
        sink=Sink(servers, topic="out", transactional_id="j", delivery="at_least_once"),
        transform=lambda read: read.select("key", "value"),
        trigger="available_now",
    ).run(spark)
    assert values_of(servers, "out") == values
print("connect works")
"""


@pytest.mark.slow
def test_on_spark_connect_the_weaker_delivery_works_and_the_strong_one_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONNECT],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert "connect works" in done.stdout, done.stderr[-4000:]
