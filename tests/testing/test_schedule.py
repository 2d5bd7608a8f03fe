"""A seed's faults: each kind, in its order, written down, and healed."""

from pathlib import Path

import pytest

import oncelog
from oncelog.check import Op, Recorder, Run, open_history
from oncelog.testing import (
    MACHINE,
    NETWORK,
    ImpossibleFault,
    Schedule,
    delay,
    fence,
)
from oncelog.testing.schedule import Kind
from tests.testing.plain import Plain


def order_of(history: Path) -> list[tuple[str | None, bool]]:
    return [
        (event.details.what, bool(event.details.over))
        for event in open_history(history).events
        if event.op is Op.FAULT
    ]


def test_a_seed_has_one_order_and_every_kind_comes_and_ends(tmp_path: Path) -> None:
    kinds = {**NETWORK, **MACHINE}
    orders = []
    with oncelog.Broker(faults=True) as broker:
        for number, seed in enumerate((1, 1, 2)):
            history = tmp_path / f"{number}.jsonl"
            with Recorder(history, Run()) as recorder:
                counts = Schedule(seed, kinds=kinds, quiet_s=(0, 0.001), lasting_s=(0, 0.002)).run(
                    broker, seconds=0, recorder=recorder
                )
            orders.append(order_of(history))
            assert counts == dict.fromkeys(kinds, 1)
        with Plain(broker.bootstrap_servers) as plain:
            assert plain.versions().error_code == 0
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][::2] == [(what, False) for what, _ in orders[0][1::2]]
    assert all(is_over for _, is_over in orders[0][1::2])


def test_a_load_that_fails_leaves_nothing_broken() -> None:
    with oncelog.Broker(faults=True) as broker:
        broken: dict[str, Kind] = {
            "delay": lambda rng: delay(seconds=9),
            "fence": lambda rng: fence(""),
        }
        with pytest.raises(ImpossibleFault):
            Schedule(1, kinds=broken, quiet_s=(0, 0), lasting_s=(0, 0)).run(broker, seconds=0)
        with Plain(broker.bootstrap_servers) as plain:
            plain.metadata(within_s=5)


def test_no_kind_is_no_schedule() -> None:
    with pytest.raises(ImpossibleFault):
        Schedule(1, kinds={})
