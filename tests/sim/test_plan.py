"""Schedules: drawn from a seed, written down, read back, and made small."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.runtime.partition import Partition
from oncelog.testing.sim.command import FAILED, GOOD, MISUSED, duration, main
from oncelog.testing.sim.plan import BadPlan, Fault, Role, What, decode_plan, encode_plan
from oncelog.testing.sim.runs import run_plan
from oncelog.testing.sim.shrink import shrink
from oncelog.testing.sim.swarm import ENDING, TRANSACTIONAL, Shape, draw_plan


def test_a_plan_is_read_back_as_it_was_written() -> None:
    plan = draw_plan(7)

    assert decode_plan(encode_plan(plan)) == plan


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2}',
        '{"format": 1}',
        '{"format": 1, "seed": -1}',
        '{"format": 1, "other": 1}',
        '{"format": 1, "faults": [{"what": "flood", "at": 1}]}',
        '{"format": 1, "faults": [{"what": "crash", "at": true}]}',
        '{"format": 1, "faults": [{"what": "crash", "at": 1, "for_s": -1}]}',
        '{"format": 1, "clients": {"name": "x"}}',
        '{"format": 1, "clients": [{"name": "x", "role": "writer", "acks": 2}]}',
        '{"format": 1, "clients": [{"name": "x", "role": "writer", "is_hasty": 1}]}',
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(BadPlan):
        decode_plan(text)


def test_seeds_draw_faults_of_every_kind() -> None:
    drawn = {fault.what for seed in range(40) for fault in draw_plan(seed).faults}

    assert drawn == set(What)


def test_seeds_draw_clients_of_every_kind() -> None:
    drawn = [client for seed in range(40) for client in draw_plan(seed).clients]

    assert {client.role for client in drawn} == set(Role)
    writers = [client for client in drawn if client.role is Role.WRITER]
    assert {client.acks for client in writers} == {-1, 0, 1}
    assert {client.is_hasty for client in writers} == {True, False}
    assert any(client.abandons for client in writers)


def test_a_broker_that_lasts_is_ended_by_no_fault() -> None:
    drawn = [f for seed in range(20) for f in draw_plan(seed, Shape(restarts=False)).faults]

    assert drawn
    assert not ENDING & {fault.what for fault in drawn}


def test_a_plan_is_cut_to_the_faults_without_which_it_does_not_fail() -> None:
    plan = draw_plan(3, TRANSACTIONAL)
    needed = {plan.faults[1], plan.faults[-1]}

    small = shrink(plan, lambda smaller: needed <= set(smaller.faults), within_s=10)

    assert set(small.faults) == needed
    assert small.clients == ()


def test_a_planted_bug_leaves_few_faults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An acknowledgement that does not wait for the disk: one crash is all that it takes."""
    monkeypatch.setattr(Partition, "committed", lambda self, end_offset: None)
    monkeypatch.chdir(tmp_path)

    code = main(["--seed", "1", "--seeds", "20", "--shrink", "15s"])

    assert code == FAILED
    told = capsys.readouterr().err
    [schedule] = tmp_path.glob("seed-*.json")
    small = decode_plan(schedule.read_text())
    assert f"again: oncelog sim --schedule {schedule.name}" in told
    assert len(small.faults) <= 3
    assert any(fault.what in ENDING for fault in small.faults)
    assert not run_plan(small).is_good


def test_a_schedule_runs_without_its_seed(tmp_path: Path) -> None:
    plan = replace(draw_plan(2), faults=(Fault(what=What.CRASH, at=0.5, for_s=0.1),), flips=0)
    path = tmp_path / "schedule.json"
    path.write_text(encode_plan(plan))

    assert main(["--schedule", str(path)]) == GOOD


def test_misuse_is_told_from_failure(tmp_path: Path) -> None:
    assert main(["--schedule", str(tmp_path / "none.json")]) == MISUSED
    assert main(["--seeds", "2", "--history", str(tmp_path / "h.jsonl")]) == MISUSED
    with pytest.raises(SystemExit) as wrong:
        main(["--for", "soon"])
    assert wrong.value.code == MISUSED


def test_durations_are_written_as_people_write_them() -> None:
    assert [duration(text) for text in ("90s", "10m", "1h", "5")] == [90, 600, 3600, 5]
