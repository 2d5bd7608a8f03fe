"""Floors, reports, exit codes, and how long a large history takes."""

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.check import Verdict, as_json, as_text, judge, parse_history
from oncelog.check.command import main
from tests.check.script import Script

A = "a:0"


def a_busy_run(*, sends: int = 200, unknown: int = 10, **run: object) -> Script:
    """Two writers at once, all the time, and a final read that finds everything."""
    script = Script(parts=[A], **run)
    value = 0
    offset = 0
    records: list[tuple[int, int | None]] = []
    for _ in range(sends // 2):
        refs = []
        for process in (1, 2):
            refs.append(script.event(process, "call", "send", steps=[["w", A, value]]))
            value += 1
        for index, ref in enumerate(refs):
            sent = value - 2 + index
            script.done("ok", ref, steps=[["w", A, sent, offset]])
            records.append((offset, sent))
            offset += 1
    for process in range(10, 10 + unknown):
        script.unsure(process, A, value)
        value += 1
    return script.final({A: records})


def test_a_busy_run_reaches_its_floors() -> None:
    report = a_busy_run().judge(with_floors=True)

    assert report.verdict is Verdict.VALID
    assert report.missed == ()


@pytest.mark.parametrize(
    ("script", "missed"),
    [
        (a_busy_run(sends=198), "confirmed sends"),
        (a_busy_run(scale=2), "confirmed sends"),
        (a_busy_run(faults=["kill"]), "fault kill injected and ended"),
        (a_busy_run(faults=["kill"]).note("fault", what="kill"), "fault kill injected and ended"),
        (a_busy_run(unknown=9).note("fault", what="kill"), "unknown ends"),
        (a_busy_run(mode="subscribe"), "rebalances"),
        (a_busy_run(txn=True), "confirmed aborts"),
        (a_busy_run(quiet_ops_s=10_000), "sends confirmed per second in quiet periods"),
        (Script(parts=[A, "b:0"]).final({}, ends={A: [0, 0]}), "final completed"),
        (Script(), "pairs of sends that overlapped in one partition"),
    ],
)
def test_a_run_in_which_too_little_happened_is_inconclusive(script: Script, missed: str) -> None:
    report = script.judge(with_floors=True)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert missed in {floor.what for floor in report.missed}
    assert script.judge(with_floors=False).verdict is Verdict.VALID


@pytest.mark.parametrize(
    "script",
    [
        a_busy_run(sends=100, unknown=5, scale=0.5),
        a_busy_run(faults=["kill"])
        .note("fault", what="kill", target="n1")
        .note("fault", what="kill", target="n1", over=True),
        a_busy_run(faults=["kill"]).note("fault", what="kill", target="n1").note("heal"),
        a_busy_run(mode="subscribe").read(5, A, moved=[A]),
        a_busy_run(quiet_ops_s=100),
    ],
)
def test_floors_follow_the_header(script: Script) -> None:
    assert script.judge(with_floors=True).verdict is Verdict.VALID


def test_an_anomaly_outweighs_a_missed_floor() -> None:
    report = Script().sent(1, A, (1, 0)).final({A: []}).judge(with_floors=True)

    assert report.verdict is Verdict.INVALID
    assert report.missed


def test_a_report_counts_all_and_shows_some() -> None:
    script = Script()
    for value in range(50):
        script.sent(1, A, value)

    report = script.final({A: []}).judge()

    (finding,) = report.findings
    assert (finding.count, len(finding.examples)) == (50, 10)
    assert "unseen: 50 (fatal)" in as_text(report)
    assert "and 40 more" in as_text(report)


def test_a_report_is_json_too() -> None:
    report = Script().sent(1, A, (71, 0)).final({A: []}).judge(with_floors=True)

    found = json.loads(json.dumps(as_json(report)))

    assert found["verdict"] == "invalid"
    assert found["anomalies"][0]["name"] == "unseen"
    assert found["anomalies"][0]["examples"][0]["values"] == [71]
    assert {"what": "confirmed sends", "reached": 1, "wanted": 200} in found["floors_missed"]


def write(path: Path, script: Script) -> str:
    path.write_text("".join(script.text()))
    return str(path)


def test_exit_codes_tell_scripts_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    valid = write(tmp_path / "valid", a_busy_run())
    invalid = write(tmp_path / "invalid", Script().read(1, A, (0, 7)))
    small = write(tmp_path / "small", Script().sent(1, A, 1))
    (tmp_path / "broken").write_text("{")
    broken = str(tmp_path / "broken")

    assert main([valid]) == 0
    assert main([invalid]) == 1
    assert main([broken]) == main([str(tmp_path / "missing")]) == 2
    assert main([small]) == 3
    assert main(["--no-floors", small]) == 0
    assert main([valid, small]) == 3
    assert main([valid, small, broken]) == 2
    assert main([valid, small, broken, invalid]) == 1
    assert f"unreadable: {broken}:1: not JSON" in capsys.readouterr().err


def test_json_output_is_one_object_for_each_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    valid = write(tmp_path / "valid", a_busy_run())
    (tmp_path / "broken").write_text("{")

    main(["--json", valid, str(tmp_path / "broken")])

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["verdict"] for report in found] == ["valid", "unreadable"]
    assert found[1]["line"] == 1


def test_the_checker_runs_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "valid", a_busy_run())

    done = subprocess.run(
        [sys.executable, "-m", "oncelog.check", path], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{path}: valid (")


def a_long_run(operations: int) -> Iterator[str]:
    """Eight writers, two partitions, a poller that keeps up, and a final read, line by line."""
    parts = ("a:0", "a:1")
    yield json.dumps({"kind": "run", "format": 1, "parts": parts}) + "\n"
    n = 0
    logs: dict[str, list[int]] = {part: [] for part in parts}

    def event(process: int, kind: str, op: str, **fields: object) -> str:
        nonlocal n
        n += 1
        line = {"n": n - 1, "t": n * 1000, "p": process, "e": kind, "op": op, **fields}
        return json.dumps(line, separators=(",", ":")) + "\n"

    for first in range(0, operations, 8):
        for value in range(first, first + 8):
            yield event(value % 8, "call", "send", steps=[["w", parts[value % 2], value]])
        calls = n - 8
        for value in range(first, first + 8):
            part = parts[value % 2]
            steps = [["w", part, value, len(logs[part])]]
            logs[part].append(value)
            yield event(value % 8, "ok", "send", ref=calls + value - first, steps=steps)
        records = {part: _tail(log, 4) for part, log in logs.items()}
        yield event(9, "call", "poll")
        yield event(9, "ok", "poll", ref=n - 1, steps=[["r", records]])
    for part, log in logs.items():
        for start in range(0, len(log), 500):
            records = {part: [[o, log[o]] for o in range(start, min(start + 500, len(log)))]}
            steps = [["r", records]]
            yield event(10, "ok", "final", ref=None, steps=steps, more=True)
    yield event(10, "ok", "final", ref=None, ends={p: [len(log)] * 2 for p, log in logs.items()})


def _tail(log: list[int], count: int) -> list[list[int]]:
    return [[offset, log[offset]] for offset in range(len(log) - count, len(log))]


def test_a_hundred_thousand_operations_take_less_than_ten_seconds() -> None:
    lines = list(a_long_run(100_000))

    began = time.process_time()  # of this process: the machine may be busy with others
    report = judge(parse_history(lines))

    assert report.verdict is Verdict.VALID
    assert time.process_time() - began < 10


def test_memory_grows_by_little_for_each_operation() -> None:
    operations = 10_000

    tracemalloc.start()
    try:
        report = judge(parse_history(a_long_run(operations)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # 40 of these bytes are the test's own: the log from which it makes up the history.
    assert report.counts["confirmed"] == operations
    assert peak_bytes / operations < 200
