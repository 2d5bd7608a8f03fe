"""The bench's arithmetic on made-up numbers: no server is started here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from bench.__main__ import main
from bench.quiet import Quiet
from bench.rows import QUICK, Kind, Scale, kinds
from bench.scale import Measured
from bench.scale import render as render_scale
from bench.servers import Contender, Server
from bench.table import Result, Row, Target, render
from bench.turns import measure

RATE = Row(name="rate", unit="MB/s", target=Target(ratio_at_least=1.5), more_is_better=True)
TIME = Row(name="time", unit="ms", target=Target(ratio_at_most=1.0))
START = Row(name="start", unit="s", target=Target(ours_at_most=0.4, ratio_at_most=1 / 15))


def a_result(row: Row, *, ours: Sequence[float], kafkas: Sequence[float]) -> Result:
    return Result(row=row, mode="os", ours=ours, kafkas=kafkas)


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    result = a_result(RATE, ours=[90.0, 300.0, 1800.0], kafkas=[100.0, 200.0, 900.0])

    assert result.ratio == 1.5
    assert result.is_met


def test_the_best_round_is_the_highest_rate_and_the_shortest_time() -> None:
    rate = a_result(RATE, ours=[100.0, 300.0], kafkas=[100.0, 200.0])
    time = a_result(TIME, ours=[0.4, 0.2], kafkas=[0.5, 0.8])

    assert rate.ratio_of_best == 1.5
    assert time.ratio_of_best == 0.4


@pytest.mark.parametrize(
    ("row", "ours", "kafkas", "is_met"),
    [
        (RATE, 150.0, 100.0, True),
        (RATE, 149.0, 100.0, False),
        (TIME, 0.3, 0.3, True),
        (TIME, 0.31, 0.3, False),
        (START, 0.3, 6.0, True),
        (START, 0.3, 4.0, False),  # fast, and yet not 15 times as fast
        (START, 0.5, 9.0, False),  # 18 times as fast, and yet too slow
    ],
)
def test_a_target_is_met_when_all_its_bounds_hold(
    row: Row, ours: float, kafkas: float, is_met: bool
) -> None:
    assert a_result(row, ours=[ours], kafkas=[kafkas]).is_met is is_met


def test_a_row_may_want_more_where_both_sync() -> None:
    row = replace(RATE, target=Target(ratio_at_least=2.0), synced_target=Target(ratio_at_least=5.0))
    result = a_result(row, ours=[400.0], kafkas=[100.0])
    synced = replace(result, mode="sync")

    assert result.is_met
    assert not synced.is_met
    assert synced.as_json()["target"] == "≥ 5.00x"


def test_the_table_shows_numbers_ratios_and_what_is_missed() -> None:
    results = [
        a_result(RATE, ours=[315.0, 1467.0, 2000.0], kafkas=[210.0, 244.5, 300.0]),
        a_result(TIME, ours=[0.36], kafkas=[0.18]),
    ]

    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in render(results).split("\n")
    ]

    assert table[2] == [
        "rate", "MB/s", "os", "1,467", "244", "6.00x", "6.67x", "≥ 1.50x", "yes",
    ]  # fmt: skip
    assert table[3] == ["time", "ms", "os", "0.36", "0.18", "2.00x", "2.00x", "≤ 1.00x", "NO"]
    assert len({len(line) for line in render(results).split("\n")}) == 1


def test_json_has_every_round() -> None:
    result = a_result(TIME, ours=[0.4, 0.2], kafkas=[0.5, 0.8])

    assert result.as_json()["ours"] == {
        "median": pytest.approx(0.3),
        "best": 0.2,
        "all": [0.4, 0.2],
    }


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    said: list[str] = []

    def one_round(contender: Contender, scale: Scale) -> Sequence[float]:
        order.append(contender.name)
        return [float(len(order))]

    pair = (a_contender("oncelog"), a_contender("kafka"))
    kind = Kind(rows=[TIME], measure=one_round)

    (result,) = measure(kind, pair, QUICK, mode="os", wait=lambda: None, say=said.append)

    assert order == ["oncelog", "kafka", "kafka", "oncelog", "oncelog", "kafka"]
    assert (result.ours, result.kafkas) == ([4.0, 5.0], [3.0, 6.0])
    assert len(said) == 6
    assert said[0].endswith("(warm-up)")


def test_a_server_is_shared_until_it_is_started_anew() -> None:
    contender = a_contender("oncelog")

    first = contender.server
    filled: list[int] = []
    contender.once("fill", lambda server: filled.append(server.pid))
    contender.once("fill", lambda server: filled.append(server.pid))
    assert contender.server is first

    assert contender.restart() is not first
    assert filled == [first.pid]


def test_waiting_for_a_quiet_machine_ends_with_its_budget() -> None:
    quiet = Quiet(budget_s=0)

    for _ in range(3):
        quiet.wait()

    assert quiet.rounds == 3
    assert 0 <= quiet.disturbed <= 3


def test_each_kind_of_row_can_be_asked_for_by_name() -> None:
    assert list(kinds()) == [
        "start", "memory", "produce", "ack", "consume",
        "transactions-1", "transactions-50", "commit", "aborted",
        "spark-sink", "spark-source", "spark-copy", "spark-pipeline",
        "spark-sink-kafka", "spark-source-kafka", "spark-copy-kafka", "spark-pipeline-kafka",
    ]  # fmt: skip


def test_clients_are_compared_as_guests_of_one_server() -> None:
    pair = (a_contender("oncelog"), a_contender("kafka"))
    kind = Kind(rows=[RATE], measure=lambda contender, scale: [1.0], on="kafka")

    ours, theirs = kind.sides(pair)
    filled: list[int] = []
    for side in (ours, theirs):
        side.once("fill", lambda server: filled.append(server.pid))

    assert (ours.name, theirs.name) == ("oncelog", "kafka")
    assert (ours.is_ours, theirs.is_ours) == (True, False)
    assert ours.server is theirs.server is pair[1].server
    assert filled == [pair[1].server.pid]


def test_a_row_that_does_not_exist_is_refused_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--rows", "nonsense"])

    assert "'nonsense' is none of start, memory" in capsys.readouterr().err


def a_contender(name: str) -> Contender:
    pids = iter(range(1, 100))

    @contextmanager
    def start() -> Iterator[Server]:
        yield Server(name=name, bootstrap_servers="", pid=next(pids), started_at_s=0.0)

    return Contender(name, start)


def test_what_each_item_costs_is_counted_from_a_broker_that_has_none() -> None:
    nothing = a_measurement(count=0, clean_start_s=0.25, resident_mb=40.0)
    much = a_measurement(count=1_000_000, clean_start_s=2.25, resident_mb=240.0)

    table = render_scale(nothing, [much]).split("\n")

    assert [cell.strip() for cell in table[2].split("|")[-3:-1]] == ["-", "-"]
    assert [cell.strip() for cell in table[3].split("|")[-3:-1]] == ["2.0 µs", "200 bytes"]


def test_a_load_that_does_not_exist_is_refused_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["scale", "--what", "nonsense"])

    assert "'nonsense' is none of ids, producers, partitions" in capsys.readouterr().err


def a_measurement(*, count: int, clean_start_s: float, resident_mb: float) -> Measured:
    return Measured(
        name="items",
        count=count,
        crashed_start_s=1.0,
        clean_start_s=clean_start_s,
        stop_s=1.0,
        resident_mb=resident_mb,
    )
