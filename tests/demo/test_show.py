"""The whole demo, with fewer orders: its kills, its audit and its exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_demo_loses_and_doubles_nothing_and_at_least_once_does(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "oncelog", "demo", "--records", "4000", "--seed", "5"],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("KILL") == 6
    table = _table(ran.stdout)
    orders = table["orders in"][0]
    assert 3000 < orders < 4000, "some transactions were aborted"
    assert table["out: valid"][0] + table["out: rejected"][0] == orders
    faults = ("lost", "duplicated", "seen before commit", "windows with a wrong sum")
    assert [table[fault][0] for fault in faults] == [0, 0, 0, 0]
    assert table["lost"][1] == 0
    assert table["duplicated"][1] > 0
    assert table["seen before commit"][1] > 0
    assert not list(tmp_path.glob("oncelog-demo-*")), "it removes what it made"


def _table(text: str) -> dict[str, list[int]]:
    """The numbers of each line, by its name."""
    found = {}
    for line in text.splitlines():
        name, numbers = line[:28].strip(), line[28:].replace(",", "").split()
        if line.startswith("  ") and numbers and all(number.isdigit() for number in numbers):
            found[name] = [int(number) for number in numbers]
    return found
