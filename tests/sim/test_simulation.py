"""The real broker on simulated time, disk and network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.check import as_text
from oncelog.testing.sim.scenario import simulate

SEEDS = 200
SLICES = 8


@pytest.mark.parametrize("part", range(SLICES))
def test_no_seed_loses_doubles_or_moves_a_record(part: int, tmp_path: Path) -> None:
    for seed in range(part, SEEDS, SLICES):
        outcome = simulate(seed, tmp_path / "history.jsonl")

        assert outcome.is_good, (
            f"seed {seed}: {outcome.failures}\n{as_text(outcome.report)}\n"
            f"again: python -m oncelog.testing.sim --seed {seed} --history failed.jsonl"
        )
        assert outcome.acknowledged > 0
        assert outcome.delivered >= outcome.acknowledged


def test_one_seed_gives_one_history_whatever_order_hashing_has() -> None:
    def digests(hash_seed: str) -> str:
        command = [sys.executable, "-m", "oncelog.testing.sim", "--count", "10", "--digests"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    first, second = digests("1"), digests("2")

    assert len(first.splitlines()) == 10
    assert first == second
