"""A driver dies in the middle of a batch and the broker with it, in a minute's half; and a history
of that, which the checker would not have passed had it been otherwise.

`make test-kill` has all the other moments.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.check import judge, parse_history
from oncelog.check.anomaly import Name
from tests.kill.chain import Chain, an_oncelog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 160
BATCH_ROWS = 80

Line = dict[str, Any]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Line]]:
    """The history of a pipeline whose driver and broker were killed; it is valid."""
    with an_oncelog() as cluster:
        directory = tmp_path_factory.mktemp("kill")
        chain = Chain(cluster, "fan-out", directory, count=COUNT, batch_rows=BATCH_ROWS)
        assert not chain.live(die=["written", 2])
        assert cluster.kill is not None, "ours can be killed"
        cluster.kill()
        chain.finish()
        yield [json.loads(line) for line in chain.history.path.read_text().splitlines()]


def fatal(lines: list[Line]) -> set[Name]:
    report = judge(parse_history(map(json.dumps, lines)), with_floors=False)
    return {finding.name for finding in report.findings if finding.fatal_count}


def with_last_effects(lines: list[Line], change: Callable[[list[Any]], list[Any]]) -> list[Line]:
    """The same history, but some effects of each event with some are others."""

    def changed(step: list[Any]) -> list[Any]:
        if step[0] != "e":
            return step
        return ["e", {part: change(effects) for part, effects in step[1].items()}]

    return [
        line | {"steps": [changed(step) for step in line["steps"]]} if "steps" in line else line
        for line in lines
    ]


def test_each_batch_of_a_killed_pipeline_is_in_the_history_with_its_effects(
    lines: list[Line],
) -> None:
    """I131, K10."""
    batches = {line["batch"]: line["values"] for line in lines if line.get("op") == "batch"}
    final = [line for line in lines if line.get("op") == "final" and line["e"] == "ok"]
    effects = [
        effect
        for line in final
        for step in line.get("steps", ())
        for records in step[1].values()
        for effect in records
    ]

    assert sorted(batches) == list(range(COUNT // BATCH_ROWS))
    assert sorted(value for values in batches.values() for value in values) == list(range(COUNT))
    assert len(effects) == COUNT
    assert all(origins[0] in batches[batch] for _, origins, batch in effects)
    assert sum(line.get("op") == "fault" for line in lines) == 2
    assert sum(line.get("op") == "state" for line in lines) == 1
    assert fatal(lines) == set()


def test_effects_that_were_never_written_are_named(lines: list[Line]) -> None:
    """Those of a whole batch are lost; without some of them it is torn."""
    gone = with_last_effects(lines, lambda effects: [e for e in effects if e[2] != 1])
    torn = with_last_effects(lines, lambda effects: [e for e in effects if e[1] != [0]])

    assert fatal(gone) == {Name.EFFECT_LOST}
    assert fatal(torn) == {Name.BATCH_TORN}


def test_an_effect_under_another_batch_is_a_torn_batch(lines: list[Line]) -> None:
    wrong = with_last_effects(
        lines, lambda effects: [[e[0], e[1], 1] if e[1] == [0] else e for e in effects]
    )

    assert fatal(wrong) == {Name.BATCH_TORN}


def test_an_effect_that_is_there_twice_or_of_nothing_is_named(lines: list[Line]) -> None:
    def and_one_more(origin: int) -> Callable[[list[Any]], list[Any]]:
        return lambda effects: [
            *effects, *([e[0] + 100_000, [origin], e[2]] for e in effects if e[1] == [0])
        ]  # fmt: skip

    assert fatal(with_last_effects(lines, and_one_more(0))) == {Name.EFFECT_TWICE}
    assert Name.EFFECT_FOREIGN in fatal(with_last_effects(lines, and_one_more(COUNT + 5)))
