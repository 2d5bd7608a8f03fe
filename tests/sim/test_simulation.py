"""The real broker on simulated time, disk and network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.check import as_text
from oncelog.testing.sim.scenario import TRANSACTIONAL, simulate

SEEDS = 200
TRANSACTIONAL_SEEDS = 120
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


@pytest.mark.parametrize("part", range(SLICES))
def test_no_seed_tears_a_transaction_or_shows_what_was_aborted(part: int, tmp_path: Path) -> None:
    """Producers of both generations, some under one id, and copiers with offsets inside."""
    committed = aborted = 0
    for seed in range(part, TRANSACTIONAL_SEEDS, SLICES):
        outcome = simulate(seed, tmp_path / "history.jsonl", TRANSACTIONAL)

        assert outcome.is_good, (
            f"seed {seed}: {outcome.failures}\n{as_text(outcome.report)}\nagain: "
            f"python -m oncelog.testing.sim --transactions --seed {seed} --history failed.jsonl"
        )
        committed += outcome.committed
        aborted += outcome.aborted
    assert committed > 50
    assert aborted > 50


@pytest.mark.parametrize("kind", [[], ["--transactions"]])
def test_one_seed_gives_one_history_whatever_order_hashing_has(kind: list[str]) -> None:
    def digests(hash_seed: str) -> str:
        command = [sys.executable, "-m", "oncelog.testing.sim", "--count", "10", "--digests", *kind]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    first, second = digests("1"), digests("2")

    assert len(first.splitlines()) == 10
    assert first == second
