"""Groups I, J and K with real processes: SIGKILL for drivers, workers, executors and brokers.

`make test-kill` runs it, for half an hour on two cores. Each case is one chain of lives of one
pipeline: in each life the driver dies at another step, and its successor goes on. At the end every
record of the input is in the output exactly once, and a reader of committed records that watched all
the time has seen nothing else.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

import oncelog
from tests.kill.driver import LATENESS_S, WINDOW_S
from tests.peers.kafka import running_kafka
from tests.spark.logs import fill, make_topics, values_of

pytestmark = [pytest.mark.kill, pytest.mark.timeout(1800)]

COUNT = 6000
BATCH_ROWS = 300
#: One life of a driver, its JVM's start included, on a busy machine.
LIFE_S = 240.0

ROOT = Path(__file__).parents[2]


@dataclass
class Cluster:
    """A broker under test."""

    servers: str
    kill: Callable[[], None] | None = None


@contextlib.contextmanager
def an_oncelog() -> Iterator[Cluster]:
    with oncelog.Broker(process=True) as broker:

        def kill() -> None:
            broker.kill()
            broker.start()

        yield Cluster(broker.bootstrap_servers, kill)


@contextlib.contextmanager
def a_kafka(level: int) -> Iterator[Cluster]:
    with running_kafka(format_arguments=("--feature", f"transaction.version={level}")) as kafka:
        yield Cluster(kafka.bootstrap_servers)


CLUSTERS: dict[str, Callable[[], contextlib.AbstractContextManager[Cluster]]] = {
    "oncelog": an_oncelog,
    "kafka": lambda: a_kafka(2),
    "kafka-before-v2": lambda: a_kafka(1),
}


@pytest.fixture(
    scope="module",
    params=[
        "oncelog",
        pytest.param("kafka", marks=pytest.mark.peers),
        pytest.param("kafka-before-v2", marks=pytest.mark.peers),
    ],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with CLUSTERS[request.param]() as running:
        yield running


@dataclass
class Chain:
    """The lives of one pipeline."""

    cluster: Cluster
    kind: str
    directory: Path
    #: The pipeline whose output this one reads; without one there is an input of its own.
    reads: "Chain | None" = None
    name: str = field(init=False)
    targets: list[str] = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        self.name = f"{self.kind}-{time.monotonic_ns()}"
        self.source = self.reads.targets[0] if self.reads else f"in-{self.name}"
        self.targets = [f"out-{self.name}", f"odd-{self.name}"]
        self.checkpoint = self.directory / "checkpoint"
        self.directory.mkdir(exist_ok=True)
        make_topics(self.cluster.servers, *self.targets, partitions=2)
        if self.reads is None:
            make_topics(self.cluster.servers, self.source, partitions=2)
            fill(self.cluster.servers, self.source, self.input())
        self.reader = Reader(self.cluster.servers, self.targets)

    def input(self) -> list[bytes]:
        values = [b"n%d" % number for number in range(COUNT)]
        if self.kind == "windows":
            # The last ones let the watermark pass all windows before them, in both partitions.
            values += [b"n%d" % (COUNT + 10 * LATENESS_S + number) for number in range(50)]
        return values

    def oracle(self) -> list[bytes]:
        """What one program that never fails makes of the input."""
        if self.kind == "windows":
            counts = Counter(number // WINDOW_S * WINDOW_S for number in range(COUNT))
            return sorted(b"%d=%d" % item for item in counts.items())
        if self.kind == "map":
            return sorted(value.upper() for value in self.input())
        return sorted(self.input())

    def live(self, **order: Any) -> bool:
        """Start a driver and wait for its end: True if it finished, False if it was killed."""
        process, log = self.start(**order)
        code = self.wait(process, log)
        assert code in (0, -signal.SIGKILL), f"{code}\n{log.read_text()[-5000:]}"
        return code == 0

    def start(self, **order: Any) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a driver in a process group of its own; its JVM and its tasks are in it too."""
        self.lives += 1
        order |= {
            "kind": self.kind,
            "name": self.name,
            "servers": self.cluster.servers,
            "source": self.source,
            "targets": self.targets,
            "batch_rows": BATCH_ROWS,
            "checkpoint": str(self.checkpoint),
        }
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }
        log = self.directory / f"life-{self.lives}.log"
        with open(log, "w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.kill.driver", json.dumps(order)],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process, log

    def wait(self, process: subprocess.Popen[bytes], log: Path) -> int:
        """Wait for a driver's end."""
        try:
            return process.wait(LIFE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail(f"life {self.lives} does not end\n{log.read_text()[-3000:]}")

    def finish(self) -> None:
        """Let it run to its end, and compare."""
        assert self.live()
        found = values_of(self.cluster.servers, *self.targets)
        assert found == self.oracle()
        assert self.reader.stop() == Counter(found)
        if self.kind == "fan-out":
            even = values_of(self.cluster.servers, self.targets[0])
            assert all(int(value[1:]) % 2 == 0 for value in even if value)


class Reader:
    """Reads committed records all the time, and remembers each."""

    def __init__(self, servers: str, topics: list[str]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"watcher-{time.monotonic_ns()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(t, p, 0) for t in topics for p in (0, 1)])
        self._seen: Counter[bytes | None] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        quiet_since = time.monotonic()
        while not self._stopping.is_set() or time.monotonic() - quiet_since < 3:
            for message in self._consumer.consume(1000, timeout=0.2):
                if not message.error():
                    self._seen[message.value()] += 1
                    quiet_since = time.monotonic()

    def stop(self) -> Counter[bytes | None]:
        """Read what is left; everything that was seen, and how often."""
        self._stopping.set()
        self._thread.join(60)
        self._consumer.close()
        return self._seen


@pytest.mark.parametrize("kind", ["map", "windows", "fan-out"])
def test_i127_to_i139_k162_the_driver_is_killed_at_every_step(
    cluster: Cluster, kind: str, tmp_path: Path
) -> None:
    chain = Chain(cluster, kind, tmp_path)
    deaths = 0
    # 127-129, 131-133, 138; each life but the first two commits a batch before it dies.
    steps = ["looked", "fenced", "planned", "written", "recorded", "committed"]
    steps += ["mirrored"] if kind != "windows" else []
    for step in steps:
        count = 1 if step in ("looked", "fenced") else 2
        deaths += not chain.live(die=[step, count])
    assert deaths == len(steps)
    # 130: some tasks have written, some have not.
    assert not chain.live(task={"how": "driver", "flag": str(tmp_path / "mid")})
    if kind == "windows":
        checkpoint = chain.checkpoint
        # 135: the commit file is there, the source was not told.
        number = 1 + max(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
        assert not chain.live(die_when=str(checkpoint / "commits" / str(number)))
        # 128, 134: what is left under a temporary name is ignored.
        for part in ("offsets", "commits"):
            last = max(int(each.name) for each in (checkpoint / part).glob("[0-9]*"))
            (checkpoint / part / f".{last + 1}.left-over.tmp").write_text("v1\n{")
        # 136, 137: wherever it happens to be, while metadata is removed and state is saved.
        chain.live(die_after_s=12)
        chain.live(die_after_s=14)
    if cluster.kill is not None:
        # 139: the broker goes at the same time.
        assert not chain.live(die=["recorded", 2])
        cluster.kill()
        timer = threading.Timer(15, cluster.kill)
        timer.start()
        try:
            chain.live(die=["written", 3])
        finally:
            timer.join()
    chain.finish()


@pytest.mark.parametrize("kind", ["map", "fan-out"])
def test_j141_workers_are_killed_in_the_middle_of_their_writes(
    cluster: Cluster, kind: str, tmp_path: Path
) -> None:
    chain = Chain(cluster, kind, tmp_path)
    for number in range(2):
        chain.live(
            task={"how": "worker", "flag": str(tmp_path / f"worker{number}")}, die=["committed", 4]
        )
        assert (tmp_path / f"worker{number}").exists()
    chain.finish()


def test_j142_an_executor_is_killed_with_its_tasks(cluster: Cluster, tmp_path: Path) -> None:
    """Two executors as processes of their own; one dies in the middle of a write."""
    chain = Chain(cluster, "fan-out", tmp_path)
    flag = tmp_path / "executor"
    assert chain.live(master="local-cluster[2,1,1024]", task={"how": "executor", "flag": str(flag)})
    assert flag.exists()
    chain.finish()


def test_j149_a_transaction_that_nobody_ends_is_aborted_by_its_timeout(
    cluster: Cluster, tmp_path: Path
) -> None:
    chain = Chain(cluster, "map", tmp_path)
    assert not chain.live(die=["written", 3], timeout_s=5)
    time.sleep(12)
    chain.finish()


def test_j150_k155_a_driver_that_stood_still_while_another_took_over_commits_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    """150 too: its JVM and its tasks stand still with it, past the timeout of the transaction."""
    chain = Chain(cluster, "map", tmp_path)
    process, log = chain.start(stop=["written", 3], timeout_s=5)
    try:
        status = psutil.Process(process.pid)
        deadline = time.monotonic() + LIFE_S
        while status.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.1)
        chain.finish()
    finally:
        os.killpg(process.pid, signal.SIGCONT)
    assert chain.wait(process, log) == 1
    assert "DriverReplaced" in log.read_text()
    assert values_of(cluster.servers, *chain.targets) == chain.oracle()


def test_k163_three_pipelines_in_a_row_whose_parts_die_at_random(
    cluster: Cluster, tmp_path: Path
) -> None:
    """For some minutes instead of ten, one pipeline at a time: drivers, workers, and the broker."""
    chosen = random.Random(163)
    chains = [Chain(cluster, "map", tmp_path / "0")]
    for number in (1, 2):
        chains.append(Chain(cluster, "map", tmp_path / str(number), reads=chains[-1]))
    steps = ["fenced", "planned", "written", "recorded", "mirrored", "committed"]
    deaths = 0
    for life in range(9):
        chain = chains[life % 3]
        order: dict[str, Any] = {"die": [chosen.choice(steps), chosen.randint(1, 4)]}
        if life % 3 == 1:
            order["task"] = {"how": "worker", "flag": str(tmp_path / f"worker{life}")}
        timer = threading.Timer(chosen.uniform(5, 15), cluster.kill or (lambda: None))
        timer.start()
        try:
            deaths += not chain.live(**order)
        finally:
            timer.join()
    assert deaths >= 5
    for chain in chains:
        chain.finish()
