"""D51: writers and readers at work while the broker is killed again and again.

ONCELOG_TEST_KILLS says how many times in each flush mode (20), ONCELOG_TEST_SEED when.
"""

import asyncio
import os
import time
from pathlib import Path
from random import Random

import pytest

import oncelog
from oncelog.check import Op, Recorder, Run, Verdict, as_text, judge, open_history
from oncelog.testing.workload.dump import walk
from oncelog.testing.workload.load import (
    TOPIC,
    Load,
    Member,
    Reader,
    Writer,
    ask_for_ends_and_commits,
    read_everything,
)
from oncelog.testing.workload.markers import logs_in, note_markers
from oncelog.testing.workload.rest import come_to_rest
from tests.scenarios.wire import OK, connect, hang_up

KILLS = int(os.environ.get("ONCELOG_TEST_KILLS", "20"))
SEED = int(os.environ.get("ONCELOG_TEST_SEED", "51"))
PARTITIONS = 3
#: Longer than the session of a member that has not left in order.
REST_S = 10.0


async def create_topic(bootstrap: str) -> None:
    wire = await connect(bootstrap)
    assert await wire.create_topic(TOPIC, PARTITIONS) == OK
    await hang_up(wire)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["sync", "os"])
def test_d51_kills_lose_nothing_and_double_nothing(flush: str, tmp_path: Path) -> None:
    """D51, K1, K2: P1-P4 and P10, for readers by assignment and for a group."""
    history = tmp_path / "history.jsonl"
    settings = {"oncelog.flush": flush, "log.segment.bytes": "50000"}
    broker = oncelog.Broker(settings, data_dir=tmp_path / "data", process=True)
    header = Run(
        seed=SEED,
        durability="fsync" if flush == "sync" else "os",
        mode="subscribe",
        parts=tuple(f"{TOPIC}:{index}" for index in range(PARTITIONS)),
        faults=("kill",),
        scale=min(1.0, KILLS / 20),
    )
    broker.start()
    try:
        with Recorder(history, header) as recorder:
            play(broker, recorder)
            broker.stop()
            assert note_markers(recorder, logs_in(tmp_path / "data", header.parts), run=SEED) > 0
    finally:
        broker.close()

    report = judge(open_history(history))
    again = f"ONCELOG_TEST_SEED={SEED} ONCELOG_TEST_KILLS={KILLS}; the history is {history}"
    assert report.verdict is Verdict.VALID, f"{as_text(report)}\n{again}"
    assert sum(walk(tmp_path / "data" / f"{TOPIC}-{index}") for index in range(PARTITIONS)) > 200


def play(broker: oncelog.Broker, recorder: Recorder) -> None:
    """Load, kills, healing, and the last look at everything."""
    asyncio.run(create_topic(broker.bootstrap_servers))
    rng = Random(SEED)
    load = Load(recorder, broker.bootstrap_servers, run=SEED, partitions=PARTITIONS, seed=SEED)
    load.begin(
        Writer(load, 0, timeout_ms=60_000),
        Writer(load, 1, timeout_ms=60_000),
        Writer(load, 2, timeout_ms=300),
        Reader(load, 0),
        Member(load, 0),
        Member(load, 1),
    )
    try:
        load.until_confirmed(10)
        for number in range(KILLS):
            time.sleep(rng.uniform(0.05, 0.6))  # the moment of the kill is what the test is about
            recorder.note(Op.FAULT, what="kill", target="n1")
            broker.kill()
            broker.start()
            recorder.note(Op.FAULT, what="kill", target="n1", over=True)
            if number % 4 == 0:
                ask_for_ends_and_commits(load)
        load.until_confirmed(20)
    finally:
        load.end()
    assert not load.failures, load.failures
    recorder.note(Op.HEAL)
    come_to_rest(recorder, broker.bootstrap_servers, load.parts, run=SEED, within_s=REST_S)
    read_everything(load)
