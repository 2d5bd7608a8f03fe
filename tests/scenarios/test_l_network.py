"""Group L: a network that delays, resets, cuts and repeats; real clients behind a proxy.

Each run is recorded and judged (K1). The simulation runs the same faults over many seeds.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from oncelog.check import Op, Recorder, Run, Verdict, as_text, judge, open_history
from oncelog.testing.sim.world import SimConnection
from oncelog.testing.workload.load import TOPIC, Load, Member, Reader, Writer, read_everything
from tests.scenarios.proxy import Proxy
from tests.scenarios.simulated import Machine
from tests.scenarios.wire import OK, connect, hang_up
from tests.storage.opened import simulated

PARTITIONS = 2
RUN_S = 2.0


class Process:
    """A broker that tells its clients to come through the proxy."""

    def __init__(self, data_dir: Path, proxy: Proxy) -> None:
        self._data_dir = data_dir
        self._proxy = proxy
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start, and let the proxy know where."""
        command = [sys.executable, "-m", "oncelog", "serve", "--data", str(self._data_dir)]
        command += ["--listen", "127.0.0.1:0", "--advertise", self._proxy.address]
        command += ["--set", "group.initial.rebalance.delay.ms=0"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("oncelog listening on "), line
        self._proxy.target_port = int(line.rpartition(":")[2])

    def kill(self) -> None:
        """End it without warning."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(10)
        self._process.stdout.close()


@contextmanager
def a_broker_behind(proxy: Proxy, data_dir: Path) -> Iterator[Process]:
    process = Process(data_dir, proxy)
    process.start()
    try:
        yield process
    finally:
        process.kill()


# --- faults ---------------------------------------------------------------------------------


def delays(proxy: Proxy, process: Process, rng: Random) -> None:
    """L173, at a tenth of its size: each piece takes up to half a second."""
    proxy.delay_s = (0.0, 0.3)
    time.sleep(RUN_S)


def resets(proxy: Proxy, process: Process, rng: Random) -> None:
    """L174: connections are reset at random bytes of requests and replies."""
    proxy.reset_share = 0.05
    time.sleep(RUN_S)


def short_lives(proxy: Proxy, process: Process, rng: Random) -> None:
    """L175: no connection lives for longer than a moment."""
    proxy.life_s = (0.15, 0.5)
    proxy.cut()
    time.sleep(RUN_S)


def cuts(proxy: Proxy, process: Process, rng: Random) -> None:
    """L176: nobody gets through for a while, again and again."""
    for _ in range(5):
        proxy.is_down = True
        proxy.cut()
        time.sleep(rng.uniform(0.05, 0.5))
        proxy.is_down = False
        time.sleep(rng.uniform(0.1, 0.5))


def lost_replies(proxy: Proxy, process: Process, rng: Random) -> None:
    """L177, the lost part: replies vanish, then the connection does."""
    for _ in range(6):
        proxy.swallows_replies = True
        time.sleep(rng.uniform(0.05, 0.2))
        proxy.cut()
        proxy.swallows_replies = False
        time.sleep(rng.uniform(0.2, 0.4))


def cut_heal_kill(proxy: Proxy, process: Process, rng: Random) -> None:
    """L180: all within a tenth of a second, repeated."""
    for _ in range(4):
        proxy.is_down = True
        proxy.cut()
        time.sleep(rng.uniform(0, 0.05))
        proxy.is_down = False
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.start()
        time.sleep(rng.uniform(0.1, 0.4))


def repeats(proxy: Proxy, process: Process, rng: Random) -> None:
    """L177, the repeated part: every request reaches the broker twice."""
    proxy.repeats_requests = True
    proxy.cut()
    time.sleep(RUN_S)


Fault = Callable[[Proxy, Process, Random], None]


def heal(proxy: Proxy) -> None:
    proxy.delay_s, proxy.reset_share, proxy.life_s = (0.0, 0.0), 0.0, None
    proxy.is_down = proxy.swallows_replies = proxy.repeats_requests = False
    proxy.cut()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [delays, resets, short_lives, cuts, lost_replies, cut_heal_kill, repeats]
)
def test_a_bad_network_loses_nothing_and_doubles_nothing(fault: Fault, tmp_path: Path) -> None:
    """L173-L177, L180, K1, K5: idempotent writers, a reader and a group."""
    name, seed = fault.__name__, 173
    history = tmp_path / "history.jsonl"
    # A group is not idempotent: with each request doubled, members would be too.
    has_group = fault is not repeats
    run = Run(
        seed=seed,
        mode="subscribe" if has_group else "assign",
        parts=tuple(f"{TOPIC}:{index}" for index in range(PARTITIONS)),
        faults=(name,),
    )
    with Proxy(seed=seed) as proxy, a_broker_behind(proxy, tmp_path / "data") as process:
        asyncio.run(create_topic(proxy.address))
        with Recorder(history, run) as recorder:
            load = Load(recorder, proxy.address, run=seed, partitions=PARTITIONS, seed=seed)
            load.begin(
                Writer(load, 0, timeout_ms=60_000),
                Writer(load, 1, timeout_ms=60_000),
                Writer(load, 2, timeout_ms=150),
                Reader(load, 0),
                *([Member(load, 0), Member(load, 1)] if has_group else []),
            )
            try:
                load.until_confirmed(10)
                recorder.note(Op.FAULT, what=name, target="net")
                fault(proxy, process, Random(seed))
            finally:
                heal(proxy)
                recorder.note(Op.FAULT, what=name, target="net", over=True)
                load.until_confirmed(20)
                load.end()
            assert not load.failures, load.failures
            recorder.note(Op.HEAL)
            read_everything(load)

    # A patient client sees few unknown ends on a bad network, so no number of them is asked for.
    report = judge(open_history(history), with_floors=False)
    assert report.verdict is Verdict.VALID, f"{as_text(report)}\nseed {seed}, {history}"


async def create_topic(bootstrap: str) -> None:
    wire = await connect(bootstrap)
    assert await wire.create_topic(TOPIC, PARTITIONS) == OK
    await hang_up(wire)


# --- peers that vanish ------------------------------------------------------------------------


def test_a_thousand_peers_that_vanished_are_found_and_closed() -> None:
    """L178: whoever says nothing for too long is closed, and nobody else."""

    async def main() -> None:
        machine = Machine(settings={"connections.max.idle.ms": "30000"})
        wire = await machine.start()
        assert await wire.create_topic() == OK
        silent = [SimConnection(machine.broker, "silent") for _ in range(1000)]
        assert len(machine.broker.core.connections) == 1001

        for _ in range(10):
            await asyncio.sleep(5)
            assert (await wire.produce(wire.batch())).error_code == OK

        assert not any(connection.is_open for connection in silent)
        assert len(machine.broker.core.connections) == 1
        assert await wire.end_offset() == 10

    simulated(main)
