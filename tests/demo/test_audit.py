"""The demo's audit finds what is wrong; an audit that cannot fail shows nothing."""

import json

from oncelog.demo.audit import Findings, judge
from oncelog.demo.orders import Order, Output, expected, expected_revenue, make_orders

ORDERS = make_orders(400, seed=3)


def outputs(orders: list[Order]) -> dict[Output, list[bytes]]:
    """What a faultless job writes."""
    written: dict[Output, list[bytes]] = {output: [] for output in Output}
    for order in orders:
        output, row = expected(order)
        written[output].append(json.dumps(row).encode())
    for start, (count, cents) in expected_revenue(orders).items():
        written[Output.REVENUE].append(
            json.dumps({"start": start, "orders": count, "cents": cents}).encode()
        )
    return written


def audited(written: dict[Output, list[bytes]], seen_early: int = 0) -> Findings:
    return judge(ORDERS, written, seen_early=seen_early)


def test_faultless_output_is_exact() -> None:
    found = audited(outputs(ORDERS))

    assert found.is_exact
    assert (found.orders, found.valid + found.rejected, found.windows) == (400, 400, 20)
    assert found.rejected > 0


def test_the_same_seed_gives_the_same_orders_and_another_one_others() -> None:
    assert make_orders(50, seed=3) == make_orders(50, seed=3)
    assert make_orders(50, seed=3) != make_orders(50, seed=4)
    assert Order.decode(ORDERS[7].encode()) == ORDERS[7]


def test_a_missing_order_is_lost() -> None:
    written = outputs(ORDERS)
    written[Output.REJECTED].pop()

    assert (audited(written).lost, audited(written).is_exact) == (1, False)


def test_an_order_in_the_wrong_topic_is_lost_and_one_too_many() -> None:
    written = outputs(ORDERS)
    written[Output.VALID].append(written[Output.REJECTED].pop())

    assert (audited(written).lost, audited(written).duplicated) == (1, 1)


def test_an_order_that_is_there_twice_is_duplicated() -> None:
    written = outputs(ORDERS)
    written[Output.VALID] += written[Output.VALID][:3]

    assert (audited(written).duplicated, audited(written).is_exact) == (3, False)


def test_the_last_sum_of_a_window_counts_and_none_may_come_twice() -> None:
    written = outputs(ORDERS)
    partial = json.loads(written[Output.REVENUE][0]) | {"orders": 1, "cents": 5}
    written[Output.REVENUE].insert(0, json.dumps(partial).encode())
    assert audited(written).is_exact

    written[Output.REVENUE].append(json.dumps(partial).encode())
    found = audited(written)
    assert (found.wrong_windows, found.repeated_sums, found.is_exact) == (1, 1, False)


def test_what_was_seen_too_early_is_a_fault() -> None:
    assert not audited(outputs(ORDERS), seen_early=1).is_exact
