"""Scenario 234: real clients of four libraries, in processes of their own, and every fault by turns.

ONCELOG_TEST_FAULTS_S says for how long (15 s at least: each kind comes once), ONCELOG_TEST_SEED in
which order. A failure names the history, which is kept.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

import oncelog
from oncelog.check import Op, Recorder, Run, Verdict, as_text, judge, open_history
from oncelog.testing import Schedule
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
from tests.crash.brokers import SocketLine
from tests.crash.copiers import ALL_PARTS, PARTITIONS, SEED
from tests.peers.java import is_complete
from tests.txn.world import create_topic

SECONDS: Final = float(os.environ.get("ONCELOG_TEST_FAULTS_S", "15"))
CLIENTS: Final = (
    "confluent",
    "impatient",
    "aiokafka",
    "kafka-python",
    *(("java",) if is_complete() else ()),
)
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "300",
    "log.segment.bytes": "100000",
}
START_S: Final = 40.0
#: Whatever is open has timed out by then.
REST_S: Final = TRANSACTION_TIMEOUT_MS / 1000 + 2
DRAIN_S: Final = 60.0
CLIENT_PAUSE: Final = "pause_client"


class Pauser(threading.Thread):
    """M187: lets random clients stand still for a while."""

    def __init__(self, copiers: list[subprocess.Popen[bytes]], recorder: Recorder) -> None:
        super().__init__(name="pauser")
        self._copiers = copiers
        self._recorder = recorder
        self._rng = Random(SEED)
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(self._rng.uniform(0.5, 2.0)):
            victim = self._rng.choice(self._copiers)
            target = f"client {self._copiers.index(victim)}"
            self._recorder.note(Op.FAULT, what=CLIENT_PAUSE, target=target)
            victim.send_signal(signal.SIGSTOP)
            self.is_over.wait(self._rng.uniform(0.1, 1.5))
            victim.send_signal(signal.SIGCONT)
            self._recorder.note(Op.FAULT, what=CLIENT_PAUSE, target=target, over=True)


@contextmanager
def running(bootstrap: str, port: int, log: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One of each library; nobody is left behind."""
    started = list(copiers.start(CLIENTS, bootstrap, port, log).values())
    try:
        yield started
    finally:
        for each in started:
            if each.poll() is None:
                each.kill()
            each.wait()


def until(what: str, condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)


def play(
    broker: oncelog.Broker, recorder: Recorder, schedule: Schedule, log: Path
) -> tuple[Feeder, CopyReader]:
    """Load, faults and healing; answers what was written and what was read meanwhile."""
    server = RecordingServer(recorder)
    feeder = Feeder(recorder, broker.bootstrap_servers, run=SEED, partitions=PARTITIONS)
    reader = CopyReader(recorder, broker.bootstrap_servers, run=SEED, partitions=PARTITIONS)
    with ExitStack() as stack:
        stack.callback(server.close)
        for thread in (feeder, reader):
            thread.start()
            stack.callback(thread.join)
            stack.callback(thread.is_over.set)
        working = stack.enter_context(running(broker.bootstrap_servers, server.port, log))
        until("all copiers work", lambda: len(server.working) == len(CLIENTS), START_S)
        pauser = Pauser(working, recorder)
        pauser.start()
        try:
            print(dict(schedule.run(broker, seconds=SECONDS, recorder=recorder)))
        finally:
            pauser.is_over.set()
            pauser.join()
        assert [each.poll() for each in working] == [None] * len(CLIENTS), f"see {log}"

        feeder.is_over.set()
        feeder.join()
        wanted = {index: len(values) for index, values in feeder.values.items()}
        servers = broker.bootstrap_servers
        until("everything is copied", lambda: copiers.offsets_of(servers) == wanted, DRAIN_S)
        server.is_over.set()
        assert [each.wait(30) for each in working] == [0] * len(CLIENTS), f"see {log}"
        print(f"{sum(server.committed.values())} committed: {server.committed}")
        until("all copies are read", lambda: reader.copies.count >= sum(wanted.values()), 20)
    return feeder, reader


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
def test_m187_copies_are_exact_through_a_mix_of_all_faults(tmp_path: Path) -> None:
    """Row 234, K1, K3, K5: kills, pauses, cuts, slow and full disks, clocks that jump."""
    history = tmp_path / "history.jsonl"
    schedule = Schedule(SEED)
    again = f"ONCELOG_TEST_SEED={SEED} ONCELOG_TEST_FAULTS_S={SECONDS:g}; see {tmp_path}"
    print(again)
    header = Run(
        seed=SEED,
        txn=True,
        parts=ALL_PARTS,
        faults=(*schedule.kinds, CLIENT_PAUSE),
        scale=max(0.2, SECONDS / 300),
    )
    with (
        oncelog.Broker(SETTINGS, data_dir=tmp_path / "data", process=True, faults=True) as broker,
        Recorder(history, header) as recorder,
    ):
        line = SocketLine(int(broker.bootstrap_servers.rpartition(":")[2]))
        create_topic(line, SOURCE, PARTITIONS)
        create_topic(line, TARGET, TARGET_PARTITIONS)
        line.close()
        feeder, reader = play(broker, recorder, schedule, tmp_path / "copiers.log")
        left = aftermath.settled(
            broker.bootstrap_servers,
            (SOURCE, TARGET),
            within_s=REST_S,
        )
        assert left.is_settled, f"{left}\n{again}"
        final = copiers.finish(recorder, broker.bootstrap_servers, rest_s=REST_S)
        assert note_markers(recorder, logs_in(tmp_path / "data", ALL_PARTS), run=SEED) > 0

    report = judge(open_history(history))
    print(as_text(report))
    assert report.verdict is Verdict.VALID, f"{as_text(report)}\n{again}"
    assert final == feeder.values, again
    assert reader.copies.values == feeder.values, again
