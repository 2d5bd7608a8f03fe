"""The orders of the demo, and what must become of them, told without Spark. Pure functions."""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

#: What there is to buy, in cents.
CATALOGUE: Final = {"tea": 350, "coffee": 420, "cake": 275, "soup": 690, "bread": 180}
_UNKNOWN: Final = "unicorn"
_CUSTOMERS: Final = 500
_START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
WINDOW_MS: Final = 60_000
_WINDOWS: Final = 20
#: One order in so many has a quantity of nothing, or asks for what there is not.
_BAD_IN: Final = 12


class Output(StrEnum):
    """The topics that the job writes."""

    VALID = "orders-valid"
    REJECTED = "orders-rejected"
    REVENUE = "revenue"


INPUT: Final = "orders"
PARTITIONS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Somebody wants something."""

    number: int
    customer: str
    item: str
    quantity: int
    placed_ms: int

    def encode(self) -> bytes:
        """As it is written to the topic."""
        return json.dumps(
            {
                "number": self.number,
                "customer": self.customer,
                "item": self.item,
                "quantity": self.quantity,
                "placed_ms": self.placed_ms,
            }
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Order":
        """What `encode` wrote."""
        return cls(**json.loads(value))


def make_orders(count: int, seed: int) -> list[Order]:
    """The same orders for the same seed, spread over some windows of time."""
    dice = random.Random(seed)
    orders = []
    for number in range(count):
        is_bad = dice.randrange(_BAD_IN) == 0
        is_unknown = is_bad and dice.randrange(2) == 0
        orders.append(
            Order(
                number=number,
                customer=f"customer-{dice.randrange(_CUSTOMERS)}",
                item=_UNKNOWN if is_unknown else dice.choice(sorted(CATALOGUE)),
                quantity=0 if is_bad and not is_unknown else dice.randint(1, 9),
                placed_ms=_START_MS + number * _WINDOWS * WINDOW_MS // count,
            )
        )
    return orders


# --- what must become of them -----------------------------------------------------------------


def expected(order: Order) -> tuple[Output, dict[str, Any]]:
    """Where an order belongs, and what of it must be written there."""
    if order.item not in CATALOGUE:
        return Output.REJECTED, {"number": order.number, "reason": "unknown item"}
    if order.quantity < 1:
        return Output.REJECTED, {"number": order.number, "reason": "no quantity"}
    total = order.quantity * CATALOGUE[order.item]
    return Output.VALID, {
        "number": order.number,
        "placed_ms": order.placed_ms,
        "total_cents": total,
    }


def expected_revenue(orders: Iterable[Order]) -> dict[int, tuple[int, int]]:
    """For each window, by its start: how many valid orders, and what they are worth."""
    windows: dict[int, tuple[int, int]] = {}
    for order in orders:
        output, row = expected(order)
        if output is Output.VALID:
            start = order.placed_ms - order.placed_ms % WINDOW_MS
            count, cents = windows.get(start, (0, 0))
            windows[start] = (count + 1, cents + int(row["total_cents"]))
    return windows
