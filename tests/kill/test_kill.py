"""Groups I, J and K with real processes: SIGKILL for drivers, workers, executors and brokers.

`make test-kill` runs it, for half an hour on two cores. Each case is one chain of lives of one
pipeline: in each life the driver dies at another step, and its successor goes on. At the end every
record of the input is in the output exactly once, and a reader of committed records that watched all
the time has seen nothing else.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kill.chain import CLUSTERS, LIFE_S, Chain, Cluster
from tests.spark.logs import values_of

pytestmark = [pytest.mark.kill, pytest.mark.timeout(1800)]


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
