"""What a run writes down after healing, and that the checker would notice if it were otherwise."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.check import Report, Verdict, judge, parse_history
from oncelog.check.anomaly import Name
from oncelog.testing.sim.runs import run_plan
from oncelog.testing.sim.swarm import TRANSACTIONAL, draw_plan

Line = dict[str, Any]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The history of one run with transactions, commits and aborts among them."""
    history = tmp_path_factory.mktemp("sim") / "history.jsonl"
    result = run_plan(draw_plan(3, TRANSACTIONAL), history)
    assert result.is_good, result.text
    return [json.loads(line) for line in history.read_text().splitlines()]


def judged(lines: list[Line], changed: Callable[[Line], Line] = lambda line: line) -> Report:
    history = parse_history(json.dumps(changed(line)) for line in lines)
    return judge(history, with_floors=False)


def fatal(report: Report) -> set[Name]:
    return {finding.name for finding in report.findings if finding.fatal_count}


def of(lines: list[Line], op: str) -> list[Line]:
    return [line for line in lines if line.get("op") == op]


def first_with_values(lines: list[Line], end: str) -> Line:
    """A marker that ends a transaction whose client was told so."""
    told = {
        step[2]
        for line in of(lines, "txn")
        if line["e"] == ("ok" if end == "commit" else "fail") and line.get("end") == end
        for step in line.get("steps", ())
    }
    markers = of(lines, "marker")
    return next(m for m in markers if m["end"] == end and told.intersection(m["values"]))


def test_markers_state_and_probes_are_recorded(lines: list[Line]) -> None:
    markers = of(lines, "marker")

    assert {marker["end"] for marker in markers} == {"commit", "abort"}
    assert all(len(marker["at"]) == 1 and len(marker["id"]) == 2 for marker in markers)
    written = {
        step[2]
        for line in of(lines, "txn")
        if line["e"] == "ok"
        for step in line["steps"]
        if not step[1].startswith("c:")  # whose beginning is deleted now and then
    }
    ended = {value for m in markers if m["end"] == "commit" for value in m["values"]}
    assert written
    assert written <= ended, "each committed value has its marker"
    (state,) = of(lines, "state")
    assert state["open_txns"] == []
    assert len(state["groups"]) == 2
    assert sum("probe" in line for line in lines) == 2
    assert judged(lines).verdict is Verdict.VALID


@pytest.mark.parametrize(("end", "other"), [("commit", "abort"), ("abort", "commit")])
def test_a_marker_that_says_the_opposite_is_a_flipped_decision(
    lines: list[Line], end: str, other: str
) -> None:
    wrong = first_with_values(lines, end)

    report = judged(lines, lambda line: line | {"end": other} if line is wrong else line)

    assert fatal(report) == {Name.DECISION_FLIP}


def test_a_transaction_that_is_still_open_is_stuck(lines: list[Line]) -> None:
    report = judged(
        lines, lambda line: line | {"open_txns": ["w"]} if line.get("op") == "state" else line
    )

    assert fatal(report) == {Name.STUCK}


def test_a_group_that_does_not_settle_is_stuck(lines: list[Line]) -> None:
    groups = {"g": "PreparingRebalance"}

    report = judged(
        lines, lambda line: line | {"groups": groups} if line.get("op") == "state" else line
    )

    assert fatal(report) == {Name.STUCK}


def test_a_probe_that_takes_too_long_is_stuck(lines: list[Line]) -> None:
    probe = next(line["n"] for line in lines if "probe" in line)
    late_ns = 31 * 10**9

    report = judged(
        lines,
        lambda line: line | {"t": line["t"] + late_ns} if line.get("ref") == probe else line,
    )

    assert fatal(report) == {Name.STUCK}
