"""Making a failing plan small: fewer faults, fewer clients, less to do, as long as it still fails."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from oncelog.testing.sim.plan import ClientPlan, Plan

T = TypeVar("T")

Fails = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Fails, *, within_s: float) -> Plan:
    """The smallest plan that was found in that time and still fails."""
    deadline = time.monotonic() + within_s

    def still_fails(smaller: Plan) -> bool:
        return time.monotonic() < deadline and fails(smaller)

    size = -1
    while size != _size(plan):
        size = _size(plan)
        for simpler in (replace(plan, flips=0), replace(plan, shuffles=False)):
            if simpler != plan and still_fails(simpler):
                plan = simpler
        kept = _fewest(plan.faults, lambda some: still_fails(replace(plan, faults=some)))  # noqa: B023 - called at once
        plan = replace(plan, faults=kept)
        clients = _fewest(plan.clients, lambda some: still_fails(replace(plan, clients=some)))  # noqa: B023 - called at once
        plan = _less_to_do(replace(plan, clients=clients), still_fails)
    return plan


def _size(plan: Plan) -> int:
    return len(plan.faults) + len(plan.clients) + sum(c.operations for c in plan.clients)


def _fewest(items: tuple[T, ...], still_fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Leave out as many as can be: first large parts, then smaller ones, in the end each alone."""
    count = len(items)
    while count > 0:
        start = 0
        while start < len(items):
            smaller = items[:start] + items[start + count :]
            if still_fails(smaller):
                items = smaller
            else:
                start += count
        count //= 2
    return items


def _less_to_do(plan: Plan, still_fails: Fails) -> Plan:
    for index, client in enumerate(plan.clients):
        while client.operations > 1:
            less = replace(client, operations=client.operations // 2)
            smaller = replace(plan, clients=_with(plan.clients, index, less))
            if not still_fails(smaller):
                break
            plan, client = smaller, less
    return plan


def _with(
    clients: tuple[ClientPlan, ...], index: int, client: ClientPlan
) -> tuple[ClientPlan, ...]:
    return (*clients[:index], client, *clients[index + 1 :])
