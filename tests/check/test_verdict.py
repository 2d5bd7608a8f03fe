"""Floors, reports, exit codes, and how long a large history takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.check import Verdict, as_json, as_text
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


def test_a_history_comes_from_standard_input_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "oncelog.check", "-"],
        input="".join(a_busy_run().text()),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("-: valid (")


#: Judges a generated history in a process of its own, and tells what that took.
MEASURED = """
import json, time
from pathlib import Path
from oncelog.check import judge, parse_history
from tests.check import generate

def peak_kib():  # of this program alone; getrusage remembers the one that started it
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

before, began = peak_kib(), time.process_time()
report = judge(parse_history(generate.long_history(100_000)))
took = {"cpu_s": time.process_time() - began, "bytes": 1024 * (peak_kib() - before)}
print(json.dumps(took | {"verdict": report.verdict, "events": report.counts["events"]}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for the peak of memory")
def test_a_hundred_thousand_operations_take_seconds_and_some_bytes_each() -> None:
    """Ten million have to fit into a gibibyte, with room for the program itself."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True, cwd=root
    )
    took = json.loads(done.stdout)

    assert took["verdict"] == "valid"
    assert took["events"] > 200_000
    assert took["cpu_s"] < 10  # of that process: the machine may be busy with others
    # Two megabytes any history takes, and eight bytes of each operation are the generator's logs.
    assert 20 < (took["bytes"] - 2_000_000) / 100_000 < 100
