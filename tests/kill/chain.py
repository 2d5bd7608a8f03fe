"""One chain of lives of one pipeline: in each the driver may die, and its successor goes on."""

import contextlib
import json
import os
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

import pytest
from confluent_kafka import Consumer, TopicPartition

import oncelog
from oncelog.check import Op, Verdict, Write, as_text
from tests.kill.driver import LATENESS_S, WINDOW_S
from tests.kill.recording import PARTITIONS, PipeHistory, number_of, write_input
from tests.peers.kafka import running_kafka
from tests.spark.logs import make_topics, values_of

COUNT = 6000
BATCH_ROWS = 300
#: One life of a driver, its JVM's start included, on a busy machine.
LIFE_S = 240.0

#: A driver lives for seconds: better code and another collector would come too late for it.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
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


@dataclass
class Chain:
    """The lives of one pipeline."""

    cluster: Cluster
    kind: str
    directory: Path
    #: The pipeline whose output this one reads; without one there is an input of its own.
    reads: "Chain | None" = None
    count: int = COUNT
    batch_rows: int = BATCH_ROWS
    name: str = field(init=False)
    targets: list[str] = field(init=False)
    #: What went into the first topic, and where.
    sent: list[Write] = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        self.name = f"{self.kind}-{time.monotonic_ns()}"
        self.source = self.reads.targets[0] if self.reads else f"in-{self.name}"
        self.targets = [f"out-{self.name}", f"odd-{self.name}"]
        self.checkpoint = self.directory / "checkpoint"
        self.directory.mkdir(exist_ok=True)
        make_topics(self.cluster.servers, *self.targets, partitions=PARTITIONS)
        if self.reads is None:
            make_topics(self.cluster.servers, self.source, partitions=PARTITIONS)
            self.sent = write_input(self.cluster.servers, self.source, range(self.count))
            if self.kind == "windows":
                # They let the watermark pass all windows before them, in both partitions, and
                # come out of none.
                last = range(self.count + 10 * LATENESS_S, self.count + 10 * LATENESS_S + 50)
                write_input(self.cluster.servers, self.source, last)
        else:
            self.sent = self.reads.sent
        self.history = PipeHistory(
            self.directory / "history.jsonl", self.name, self.sent, self.targets, self.origins
        )
        self.reader = Reader(self.cluster.servers, self.targets, self.history)

    def origins(self, value: bytes) -> range:
        """The numbers of the input that a record of the output stands for."""
        if self.kind == "windows":
            start = int(value.partition(b"=")[0])
            return range(start, min(start + WINDOW_S, self.count))
        return range(number_of(value), number_of(value) + 1)

    def oracle(self) -> list[bytes]:
        """What one program that never fails makes of the input."""
        if self.kind == "windows":
            counts = Counter(number // WINDOW_S * WINDOW_S for number in range(self.count))
            return sorted(b"%d=%d" % item for item in counts.items())
        letter = b"N" if self.kind == "map" else b"n"
        return sorted(b"%b%d" % (letter, number) for number in range(self.count))

    def live(self, **order: Any) -> bool:
        """Start a driver and wait for its end: True if it finished, False if it was killed."""
        process, log = self.start(**order)
        code = self.wait(process, log)
        assert code in (0, -signal.SIGKILL), f"{code}\n{log.read_text()[-5000:]}"
        if code != 0:
            self.history.killed("kill-driver")
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
            "batch_rows": self.batch_rows,
            "checkpoint": str(self.checkpoint),
        }
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "JDK_JAVA_OPTIONS": QUICK_JVM,
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
        """Let it run to its end, compare, and let the history be judged."""
        assert self.live()
        found = values_of(self.cluster.servers, *self.targets)
        assert found == self.oracle()
        assert self.reader.stop() == Counter(found)
        if self.kind == "fan-out":
            even = values_of(self.cluster.servers, self.targets[0])
            assert all(int(value[1:]) % 2 == 0 for value in even if value)
        self.judge()

    def judge(self) -> None:
        """K1, K9, K10: nothing is lost, doubled, foreign or torn, whoever looked and when."""
        if self.kind != "windows":  # where a record comes out in a later batch than it went in
            assert self.history.note_batches(self.cluster.servers, self.source) > 1
        report = self.history.finish(self.cluster.servers)
        assert report.verdict is Verdict.VALID, f"{self.history.path}: {as_text(report)}"


class Reader:
    """Reads committed records all the time, and remembers each."""

    def __init__(self, servers: str, topics: list[str], history: PipeHistory) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"watcher-{time.monotonic_ns()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._history = history
        self._process = history.recorder.new_process()
        call = history.recorder.call(self._process, Op.ASSIGN, at=dict.fromkeys(history.parts, 0))
        self._consumer.assign(
            [TopicPartition(topic, index, 0) for topic in topics for index in range(PARTITIONS)]
        )
        history.recorder.ok(call)
        self._seen: Counter[bytes | None] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        quiet_since = time.monotonic()
        while not self._stopping.is_set() or time.monotonic() - quiet_since < 3:
            call = self._history.recorder.call(self._process, Op.POLL)
            messages = self._consumer.consume(1000, timeout=0.2)
            self._history.recorder.ok(call, [self._history.effects_of(messages)])
            for message in messages:
                if not message.error():
                    self._seen[message.value()] += 1
                    quiet_since = time.monotonic()

    def stop(self) -> Counter[bytes | None]:
        """Read what is left; everything that was seen, and how often."""
        self._stopping.set()
        self._thread.join(60)
        self._consumer.close()
        return self._seen
