"""The kinds of rows, in the order in which they are measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.servers import Contender
from bench.table import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    rounds: int
    #: Rounds that do not count: Kafka's compiler wants to see the code before it is at its best.
    warm_up_rounds: int
    #: Rounds of rows that start servers of their own, which takes Kafka seconds.
    start_rounds: int
    bulk_records: int
    ack_records: int
    #: How long the whole run may wait for the machine to be quiet.
    quiet_budget_s: float


QUICK: Final = Scale(
    rounds=2,
    warm_up_rounds=1,
    start_rounds=1,
    bulk_records=50_000,
    ack_records=500,
    quiet_budget_s=10,
)
FULL: Final = Scale(
    rounds=7,
    warm_up_rounds=3,
    start_rounds=3,
    bulk_records=120_000,
    ack_records=2_000,
    quiet_budget_s=120,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Rows that one measurement gives together."""

    rows: Sequence[Row]
    #: One round with one contender: a value for each row, in their order.
    measure: Callable[[Contender, Scale], Sequence[float]]
    #: Whether each round starts a server of its own.
    starts_servers: bool = False

    def rounds(self, scale: Scale) -> int:
        """How often it is measured."""
        return scale.start_rounds if self.starts_servers else scale.rounds


def kinds() -> Mapping[str, Kind]:
    """Every kind, by the name that `--rows` knows it by."""
    from bench.rows import ack, consume, memory, produce, start

    return {
        "start": start.KIND,
        "memory": memory.KIND,
        "produce": produce.KIND,
        "ack": ack.KIND,
        "consume": consume.KIND,
    }
