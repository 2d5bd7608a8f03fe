"""Group L: a network that delays, resets, cuts and repeats; real clients behind a proxy.

Each run is recorded and judged (K1). The simulation runs the same faults over many seeds.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal

import pytest

import oncelog
from oncelog.check import Op, Recorder, Run, Verdict, as_text, judge, open_history
from oncelog.testing import (
    black_hole,
    cut,
    delay,
    kill,
    lose_reply,
    refuse,
    repeat,
    short_lives,
)
from oncelog.testing.sim.world import SimConnection
from oncelog.testing.workload.load import TOPIC, Load, Member, Reader, Writer, read_everything
from tests.scenarios.simulated import Machine
from tests.scenarios.wire import OK, connect, hang_up
from tests.storage.opened import simulated

PARTITIONS = 2
RUN_S = 2.0


# --- faults ---------------------------------------------------------------------------------


def l173_delays(broker: oncelog.Broker, rng: Random) -> None:
    """At a tenth of its size: each request and each reply takes up to 0.3 s."""
    with (
        broker.fault(delay(seconds=(0.0, 0.3), seed=1)) as there,
        broker.fault(delay(seconds=(0.0, 0.3), side="reply", seed=2)),
    ):
        time.sleep(RUN_S)
    assert there.hits > 10


def l174_resets(broker: oncelog.Broker, rng: Random) -> None:
    """Connections are reset before, inside and behind requests, and inside replies."""
    moments: tuple[Literal["before", "within request", "after", "within reply"], ...] = (
        "before",
        "within request",
        "after",
        "within reply",
    )
    cuts = [
        broker.fault(cut(when=when, probability=0.02, times=None, seed=seed))
        for seed, when in enumerate(moments)
    ]
    time.sleep(RUN_S)
    assert sum(each.hits for each in cuts) > 2


def l175_short_lives(broker: oncelog.Broker, rng: Random) -> None:
    """No connection lives for longer than a moment."""
    with broker.fault(short_lives(seconds=(0.15, 0.5), seed=1)) as short:
        time.sleep(RUN_S)
    assert short.hits > 5


def l176_cuts(broker: oncelog.Broker, rng: Random) -> None:
    """Nobody gets through for a while, again and again: closed, or without a word."""
    for number in range(6):
        with broker.fault(refuse() if number % 2 else black_hole()):
            time.sleep(rng.uniform(0.05, 0.5))
        time.sleep(rng.uniform(0.1, 0.4))


def l177_lost_replies(broker: oncelog.Broker, rng: Random) -> None:
    """The lost part: replies vanish, then the connection does."""
    for _ in range(6):
        with broker.fault(lose_reply(probability=0.3, times=None, seed=rng.getrandbits(32))):
            time.sleep(rng.uniform(0.1, 0.3))
        time.sleep(rng.uniform(0.1, 0.3))


def l177_repeats(broker: oncelog.Broker, rng: Random) -> None:
    """The repeated part: every batch, and every question that a reader asks, arrives twice."""
    with broker.fault(repeat(times=None)) as twice:
        time.sleep(RUN_S)
    assert twice.hits > 20


def l180_cut_heal_kill(broker: oncelog.Broker, rng: Random) -> None:
    """All within a tenth of a second, repeated."""
    for _ in range(4):
        with broker.fault(refuse()):
            time.sleep(rng.uniform(0, 0.05))
        time.sleep(rng.uniform(0, 0.05))
        broker.fault(kill())
        time.sleep(rng.uniform(0.1, 0.4))


NetworkFault = Callable[[oncelog.Broker, Random], None]
FAULTS: list[NetworkFault] = [
    l173_delays,
    l174_resets,
    l175_short_lives,
    l176_cuts,
    l177_lost_replies,
    l177_repeats,
    l180_cut_heal_kill,
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_l173_to_l177_l180_a_bad_network_loses_nothing_and_doubles_nothing(
    fault: NetworkFault, tmp_path: Path
) -> None:
    """K1, K5: idempotent writers, a reader and a group."""
    name, seed = fault.__name__, 173
    history = tmp_path / "history.jsonl"
    # A group is not idempotent: with each request doubled, members would be too.
    has_group = fault is not l177_repeats
    run = Run(
        seed=seed,
        mode="subscribe" if has_group else "assign",
        parts=tuple(f"{TOPIC}:{index}" for index in range(PARTITIONS)),
        faults=(name,),
    )
    with oncelog.Broker(data_dir=tmp_path / "data", process=True, faults=True) as broker:
        asyncio.run(create_topic(broker.bootstrap_servers))
        with Recorder(history, run) as recorder:
            address = broker.bootstrap_servers
            load = Load(recorder, address, run=seed, partitions=PARTITIONS, seed=seed)
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
                fault(broker, Random(seed))
            finally:
                broker.heal()
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


def test_l178_a_thousand_peers_that_vanished_are_found_and_closed() -> None:
    """Whoever says nothing for too long is closed, and nobody else."""

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
