"""Copiers in a group are killed again and again, and replaced; now and then the broker is killed too."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.check import Verdict, as_text, judge, open_history


@pytest.mark.slow
def test_d55_g96_copies_are_exact_whichever_copier_is_killed(tmp_path: Path) -> None:
    """K1, K3, P16: the output equals the input, and the ranges that were consumed tile."""
    report, directory = tmp_path / "report.json", tmp_path / "soak"
    command = [sys.executable, "-m", "oncelog", "soak", "--for", "15s", "--kill-every", "0.8s"]
    command += ["--seed", "55", "--dir", str(directory), "--json", str(report)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["client_kills"] >= 10
    assert found["input_records"] == found["copied_records"] > 500
    history = judge(open_history(directory / "history.jsonl"), with_floors=False)
    assert history.verdict is Verdict.VALID, as_text(history)
