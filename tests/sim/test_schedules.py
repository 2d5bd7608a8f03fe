"""Schedules that once failed: each shows a bug that was mended, and is named for it."""

from pathlib import Path

import pytest

from oncelog.testing.sim.plan import decode_plan
from oncelog.testing.sim.runs import run_plan

SCHEDULES = sorted((Path(__file__).parent / "schedules").glob("*.json"))


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_what_once_failed_does_not_fail_any_more(path: Path) -> None:
    result = run_plan(decode_plan(path.read_text()))

    assert result.is_good, result.text
