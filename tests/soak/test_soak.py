"""`oncelog soak`, for a few seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.check import End, Op, Verdict, judge, open_history


@pytest.mark.slow
def test_a_short_soak_survives_its_kills_and_says_what_it_saw(tmp_path: Path) -> None:
    report, directory = tmp_path / "soak.json", tmp_path / "soak"
    command = [sys.executable, "-m", "oncelog", "soak", "--for", "7s", "--kill-every", "2s"]
    command += ["--seed", "3", "--dir", str(directory), "--json", str(report)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "audit         passed" in done.stdout
    found = json.loads(report.read_text())
    assert found["is_good"]
    assert found["broker_kills"] >= 1
    assert found["client_kills"] >= 1
    assert found["committed"] > 20
    assert found["input_records"] == found["copied_records"] > 100
    assert len(found["samples"]) >= 3
    assert all(each["rss_bytes"] > 1 << 20 for each in found["samples"])
    assert found["handles"]["end"] > 10
    assert found["threads"]["end"] >= 1
    history = judge(open_history(directory / "history.jsonl"), with_floors=False)
    assert history.verdict is Verdict.VALID
    seen = list(open_history(directory / "history.jsonl").events)
    markers = [event for event in seen if event.op is Op.MARKER]
    assert sum(event.end is End.COMMIT for event in markers) >= found["committed"]
    assert sum(len(event.details.values) for event in markers) > found["copied_records"]
    (state,) = [event for event in seen if event.op is Op.STATE]
    groups = state.details.groups or {}
    assert {"copiers", "g"} <= groups.keys()
    assert set(groups.values()) == {"Empty"}
    assert sum(event.details.probe for event in seen) == 1 + 4, "a new id, and one of each copier"
    assert history.counts["faults"] == found["broker_kills"] + found["client_kills"]


def test_a_directory_that_holds_data_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-m", "oncelog", "soak", "--for", "1s", "--dir", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "is there already: name a new directory" in done.stderr


@pytest.mark.parametrize("span", ["10", "m", "-1s", "0h"])
def test_a_time_needs_a_number_and_a_unit(span: str) -> None:
    command = [sys.executable, "-m", "oncelog", "soak", f"--for={span}"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "unit" in done.stderr or "is not a number of seconds" in done.stderr
