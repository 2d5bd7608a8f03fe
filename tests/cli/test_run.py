"""`oncelog run` as people start it: a process, a file, a signal."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from oncelog.cli.main import main
from tests.cli.serving import ONCELOG

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = """
from pyspark.sql import functions as F

from oncelog.spark import Pipeline, Sink, Source

SERVERS = "{servers}"


@F.udf("string")
def price(value):
    return str(1 / int(value))


def transform(rows):
    return rows.select("key", price("value").alias("value"))


job = Pipeline(
    source=Source(SERVERS, subscribe="in-{name}"),
    sink=Sink(SERVERS, topic="out-{name}", transactional_id="{name}"),
    transform=transform,
    trigger=0.2,
)
"""
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker({"num.partitions": "2"}) as running:
        yield running


class Job:
    """A pipeline in a file, and the topics on both sides of it."""

    def __init__(self, broker: oncelog.Broker, directory: Path, name: str) -> None:
        self.file = directory / f"{name}.py"
        self.file.write_text(JOB.format(servers=broker.bootstrap_servers, name=name))
        self.name = name
        self._env = {**os.environ, "ONCELOG_BOOTSTRAP": broker.bootstrap_servers}
        for topic in (f"in-{name}", f"out-{name}"):
            self.oncelog("topic", "create", topic)

    def oncelog(self, *words: str, given: str = "") -> str:
        ran = subprocess.run(
            [*ONCELOG, *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            env=self._env,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def feed(self, *values: int) -> None:
        self.oncelog("produce", f"in-{self.name}", given="".join(f"{v}\n" for v in values))

    def wait_for(self, rows: int) -> None:
        self.oncelog(
            "consume", f"out-{self.name}", "--isolation", "read_committed",
            "--max", str(rows), "--timeout", "50",
        )  # fmt: skip

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator["subprocess.Popen[str]"]:
        process = subprocess.Popen(
            [*ONCELOG, "run", str(self.file), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._env,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_sigterm_ends_it_in_order(broker: oncelog.Broker, tmp_path: Path) -> None:
    job = Job(broker, tmp_path, "orderly")
    job.feed(1, 2, 4)

    with job.running() as process:
        job.wait_for(3)
        os.killpg(process.pid, signal.SIGTERM)  # as `timeout` and systemd do, to the JVM as well
        out, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, err
    assert out.startswith("orderly: 3 rows in ")
    assert out.rstrip().endswith("lag 0")
    assert "\tat " not in err


def test_a_replaced_pipeline_stops_and_says_so(broker: oncelog.Broker, tmp_path: Path) -> None:
    job = Job(broker, tmp_path, "replaced")
    job.feed(1)

    with job.running() as process:
        job.wait_for(1)
        time.sleep(0.5)  # its commit is confirmed
        job.oncelog("txn", "fence", "replaced", "--yes")
        job.feed(2)
        _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 1
    assert "oncelog: Another driver has taken over 'replaced'" in err
    assert "Traceback" not in err
    assert "could not be aborted" not in err


def test_a_bug_in_the_users_code_is_shown_without_sparks_stack(
    broker: oncelog.Broker, tmp_path: Path
) -> None:
    job = Job(broker, tmp_path, "buggy")
    job.feed(0)

    with job.running("--trigger", "once", "--master", "local[2]") as process:
        _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 1
    assert f'File "{job.file}", line 11, in price' in err
    assert "ZeroDivisionError" in err
    assert "\tat " not in err
    assert "pyspark" not in err
    log = Path(err.rpartition("Spark's own log is ")[2].strip().removesuffix("."))
    log.unlink()


def test_a_file_that_cannot_be_run_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def oops(:\n")

    assert main(["run", str(broken)]) == 1
    assert "broken.py is not Python: invalid syntax" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "absent.py")]) == 1
    assert "absent.py cannot be read: No such file" in capsys.readouterr().err
