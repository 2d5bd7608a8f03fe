"""The real broker on simulated time, disk and network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.testing.sim.runs import Result, run_plan
from oncelog.testing.sim.swarm import PLAIN, TRANSACTIONAL, draw_plan

#: `make sim` runs more.
SEEDS = 40
SHAPED_SEEDS = 6
SLICES = 8


def assert_good(result: Result) -> None:
    assert result.is_good, (
        f"seed {result.seed} failed:\n{result.text}\nagain: oncelog sim --seed {result.seed}"
    )


@pytest.mark.parametrize("part", range(SLICES))
def test_no_seed_loses_doubles_moves_or_tears(part: int) -> None:
    transactions = faults = 0
    for seed in range(part, SEEDS, SLICES):
        result = run_plan(draw_plan(seed))

        assert_good(result)
        transactions += result.transactions
        faults += result.faults
    assert transactions > 50
    assert faults > 50


@pytest.mark.parametrize("shape", [PLAIN, TRANSACTIONAL], ids=["plain", "transactional"])
def test_no_seed_of_a_given_shape_fails(shape: object) -> None:
    for seed in range(SHAPED_SEEDS):
        assert_good(run_plan(draw_plan(seed, PLAIN if shape is PLAIN else TRANSACTIONAL)))


def test_one_seed_gives_one_history_whatever_order_hashing_has() -> None:
    def digests(hash_seed: str) -> str:
        command = [sys.executable, "-m", "oncelog.testing.sim", "--seeds", "12", "--digests"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=100
        ).stdout

    first, second = digests("1"), digests("2")

    assert len(first.splitlines()) == 12
    assert first == second


def test_a_history_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"

    result = run_plan(draw_plan(1), history)

    assert_good(result)
    assert history.read_text().startswith('{"kind":"run"')
