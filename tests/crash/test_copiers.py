"""D55, G96: ten transactional copiers of different clients, while the broker is killed again and again.

The broker is killed at random moments, and after some of these kills it also dies at a named crash
point (`launcher.py`), once at each. ONCELOG_TEST_KILLS says how many random kills there are in each
flush mode (at least one before each point), ONCELOG_TEST_SEED when. A failure names the history,
which is kept. The Java client takes part if its JARs are here (`make peers`): it alone speaks the
second generation of transactions.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from oncelog.check import Op, Recorder, Run, Verdict, as_text, judge, open_history
from oncelog.testing.workload.copier import (
    SOURCE,
    TARGET,
    TARGET_PARTITIONS,
    TRANSACTION_TIMEOUT_MS,
)
from oncelog.testing.workload.feeding import CopyReader, Feeder
from oncelog.testing.workload.markers import logs_in, note_markers
from oncelog.testing.workload.recording import RecordingServer
from tests.client import aftermath
from tests.crash import copiers
from tests.crash.brokers import Launcher, SocketLine
from tests.crash.copiers import ALL_PARTS, PARTITIONS, SEED
from tests.peers.java import is_complete
from tests.txn.producer import Producer as Transactional
from tests.txn.world import create_topic

#: kafka-python is asked for with ONCELOG_TEST_KAFKA_PYTHON=1: version 3.0 loses a request when its
#: coordinator refuses a connection at the wrong moment, and then waits for ever.
THIRD: Final = "kafka-python" if os.environ.get("ONCELOG_TEST_KAFKA_PYTHON") else "confluent"
CLIENTS: Final = (
    "confluent", "aiokafka", THIRD, "impatient", "confluent",
    "aiokafka", THIRD, "impatient", "aiokafka", "java" if is_complete() else "confluent",
)  # fmt: skip
#: A run in which less was committed has not shown much.
MIN_CONFIRMED: Final = 100
#: Where the broker kills itself, each once; how often it gets there first is drawn.
POINTS: Final = (
    "before-added", "after-added", "before-data", "after-data", "before-offsets", "after-offsets",
    "before-prepare", "after-prepare", "committed-prepare", "decided",
    "before-marker", "after-marker", "before-complete", "after-complete", "before-identity",
    "loading",
)  # fmt: skip
KILLS: Final = max(int(os.environ.get("ONCELOG_TEST_KILLS", "15")), len(POINTS))
#: The first time is waited for: it does not come with every transaction.
RARE: Final = ("loading", "before-identity")
START_S: Final = 40.0
#: Whatever is open has timed out by then.
REST_S: Final = TRANSACTION_TIMEOUT_MS / 1000 + 2
DRAIN_S: Final = 60.0


# --- the run --------------------------------------------------------------------------------


class World:
    """The broker and everyone who works with it."""

    def __init__(self, launcher: Launcher, directory: Path, flush: str) -> None:
        self._launcher = launcher
        self._data = directory / "data"
        self._settings = {
            "oncelog.flush": flush,
            "group.initial.rebalance.delay.ms": "300",
            "log.segment.bytes": "100000",
        }
        self._port = 0
        self._log = directory / "copiers.log"
        self.copiers: dict[str, subprocess.Popen[bytes]] = {}
        self.start()
        self._port = launcher.port
        line = SocketLine(self._port)
        create_topic(line, SOURCE, PARTITIONS)
        create_topic(line, TARGET, TARGET_PARTITIONS)
        line.close()

    @property
    def bootstrap_servers(self) -> str:
        return self._launcher.bootstrap_servers

    def start(self, crash_at: str | None = None) -> bool:
        return self._launcher.start(self._data, self._settings, crash_at=crash_at, port=self._port)

    def kill(self) -> None:
        self._launcher.kill()

    def has_crashed(self, *, within_s: float) -> bool:
        return self._launcher.is_gone(within_s=within_s)

    def open_an_id(self) -> None:
        """Copiers open theirs only when they must; the broker is to die of this one."""
        line = SocketLine(self._port)
        with closing(line), pytest.raises(ConnectionError):
            Transactional(line, "nobody").ready()

    def start_copiers(self, port: int) -> None:
        self.copiers = copiers.start(CLIENTS, self.bootstrap_servers, port, self._log)

    def check_copiers(self) -> None:
        gone = {name: each.poll() for name, each in self.copiers.items()}
        ended = {name: code for name, code in gone.items() if code is not None}
        assert not ended, f"copiers ended: {ended}, see {self._log}"

    def end_copiers(self) -> None:
        """Each leaves by itself; who does not is a failure, and is not left behind."""
        deadline = time.monotonic() + 30
        codes: dict[str, int | None] = {}
        for name, copier in self.copiers.items():
            try:
                codes[name] = copier.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[name] = None
        self.drop_copiers()
        assert set(codes.values()) == {0}, f"{codes}, see {self._log}"

    def drop_copiers(self) -> None:
        for copier in self.copiers.values():
            if copier.poll() is None:
                copier.kill()
                copier.wait()


@contextmanager
def running(tmp_path: Path, flush: str) -> Iterator[World]:
    with Launcher(tmp_path / "brokers.log") as launcher:
        world = World(launcher, tmp_path, flush)
        try:
            yield world
        finally:
            world.drop_copiers()


def until(what: str, condition: object, within_s: float, world: World) -> None:
    assert callable(condition)
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        world.check_copiers()
        time.sleep(0.05)


def play(world: World, recorder: Recorder, rng: Random) -> tuple[Feeder, CopyReader]:
    """Load, kills and healing; answers what was written and what was read meanwhile."""
    server = RecordingServer(recorder)
    feeder = Feeder(recorder, world.bootstrap_servers, run=SEED, partitions=PARTITIONS)
    reader = CopyReader(recorder, world.bootstrap_servers, run=SEED, partitions=PARTITIONS)
    with ExitStack() as stack:
        stack.callback(server.close)
        for thread in (feeder, reader):
            thread.start()
            stack.callback(thread.join)
            stack.callback(thread.is_over.set)
        stack.callback(world.drop_copiers)
        world.start_copiers(server.port)
        until("all copiers work", lambda: len(server.working) == len(CLIENTS), START_S, world)

        faults: list[str | None] = [*POINTS, *([None] * (KILLS - len(POINTS)))]
        rng.shuffle(faults)
        for point in faults:
            fault(world, recorder, rng, point)
            before = sum(server.committed.values())
            until("work goes on", lambda: sum(server.committed.values()) > before, 20, world)  # noqa: B023
        recorder.note(Op.HEAL)

        feeder.is_over.set()
        feeder.join()
        wanted = {index: len(values) for index, values in feeder.values.items()}
        until("everything is copied", lambda: is_copied(world, wanted), DRAIN_S, world)
        server.is_over.set()
        world.end_copiers()
        print(f"{sum(server.committed.values())} committed: {server.committed}")
        deadline = time.monotonic() + 10
        while reader.copies.count < sum(wanted.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
    return feeder, reader


def is_copied(world: World, wanted: dict[int, int]) -> bool:
    return copiers.offsets_of(world.bootstrap_servers) == wanted


def fault(world: World, recorder: Recorder, rng: Random, point: str | None) -> None:
    """Kill the broker, now or at a point that it comes to, and start it again."""
    time.sleep(rng.uniform(0.05, 0.5))  # the moment of the kill is what the test is about
    recorder.note(Op.FAULT, what="kill", target="n1")
    world.kill()
    if point is not None:
        crash_at = f"{point}:{1 if point in RARE else rng.randint(1, 8)}"
        recorder.note(Op.FAULT, what=point, target="n1")
        if world.start(crash_at):
            if point == "before-identity":
                world.open_an_id()
            assert world.has_crashed(within_s=15), f"not reached: {crash_at}"
        recorder.note(Op.FAULT, what=point, target="n1", over=True)
    world.start()
    recorder.note(Op.FAULT, what="kill", target="n1", over=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush", ["sync", "os"])
def test_d54_copies_are_exact_whenever_the_broker_is_killed(flush: str, tmp_path: Path) -> None:
    """D55, K1, K3, K4, K5: P4 to P11 and P16."""
    history = tmp_path / "history.jsonl"
    again = f"ONCELOG_TEST_SEED={SEED} ONCELOG_TEST_KILLS={KILLS}; see {tmp_path}"
    print(again)
    header = Run(
        seed=SEED,
        durability="fsync" if flush == "sync" else "os",
        txn=True,
        parts=ALL_PARTS,
        faults=("kill", *POINTS),
        scale=min(1.0, KILLS / 40),
    )
    with running(tmp_path, flush) as world, Recorder(history, header) as recorder:
        feeder, reader = play(world, recorder, Random(f"{SEED} {flush}"))
        left = aftermath.settled(
            world.bootstrap_servers,
            (SOURCE, TARGET),
            within_s=REST_S,
        )
        assert left.is_settled, f"{left}\n{again}"
        final = copiers.finish(recorder, world.bootstrap_servers, rest_s=REST_S)
        assert (
            note_markers(recorder, logs_in(tmp_path / "data", ALL_PARTS), run=SEED) > MIN_CONFIRMED
        )

    # How many ends stay unknown is a matter of luck: a kill has to cut off the very reply. So the
    # floors of the checker are not asked for; what the run must have seen is counted here.
    report = judge(open_history(history), with_floors=False)
    print(as_text(report))
    assert report.verdict is Verdict.VALID, f"{as_text(report)}\n{again}"
    assert report.counts["confirmed"] >= MIN_CONFIRMED, f"{as_text(report)}\n{again}"
    assert report.counts["faults"] >= KILLS, f"{as_text(report)}\n{again}"
    assert final == feeder.values, again
    assert reader.copies.values == feeder.values, again
