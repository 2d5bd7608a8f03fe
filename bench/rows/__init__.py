"""The kinds of rows. They are measured in the order of `kinds`: memory wants a server without a past."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from bench.servers import Contender
from bench.table import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    rounds: int
    #: Rounds that do not count: Kafka's compiler wants to see the code before it is at its best.
    warm_up_rounds: int
    start_rounds: int
    #: As above, where a round takes seconds.
    long_rounds: int
    long_warm_up_rounds: int
    bulk_records: int
    ack_records: int
    #: How long transactions are committed by as many producers as the row says.
    transactions_s: float
    #: Transactions whose commits are measured one by one.
    commits: int
    #: Rows that Spark reads, writes and copies.
    spark_rows: int
    #: How long the whole run may wait for the machine to be quiet.
    quiet_budget_s: float


QUICK: Final = Scale(
    rounds=2,
    warm_up_rounds=1,
    start_rounds=1,
    long_rounds=1,
    long_warm_up_rounds=1,
    bulk_records=50_000,
    ack_records=500,
    transactions_s=2.0,
    commits=100,
    spark_rows=200_000,
    quiet_budget_s=10,
)
FULL: Final = Scale(
    rounds=7,
    warm_up_rounds=6,
    start_rounds=3,
    long_rounds=5,
    long_warm_up_rounds=2,
    bulk_records=120_000,
    ack_records=2_000,
    transactions_s=3.0,
    commits=250,
    spark_rows=2_000_000,
    quiet_budget_s=120,
)


#: Who syncs: the operating system when it likes, or the server before it acknowledges.
MODES: Final = ("os", "sync")


class Repeat(Enum):
    """How often a kind is measured."""

    WARM = auto()  # after rounds that do not count, then round after round
    LONG = auto()  # the same, but fewer of them
    COLD = auto()  # each round starts the server anew, which takes Kafka seconds
    ONCE = auto()  # what it looks at is gone when it has looked


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Rows that one measurement gives together."""

    rows: Sequence[Row]
    #: One round with one contender: a value for each row, in their order.
    measure: Callable[[Contender, Scale], Sequence[float]]
    repeat: Repeat = Repeat.WARM
    #: Whose server both are measured on, where clients are compared; None: each on its own.
    on: str | None = None
    #: At which durability it is measured.
    modes: Sequence[str] = MODES

    def sides(self, pair: tuple[Contender, Contender]) -> tuple[Contender, Contender]:
        """Who is measured in turns: the two, or two guests of one of them."""
        for host in pair:
            if host.name == self.on:
                ours, theirs = pair
                return host.guest(ours.name), host.guest(theirs.name)
        return pair

    def rounds(self, scale: Scale) -> tuple[int, int]:
        """How many rounds do not count, and how many do."""
        match self.repeat:
            case Repeat.WARM:
                return scale.warm_up_rounds, scale.rounds
            case Repeat.LONG:
                return scale.long_warm_up_rounds, scale.long_rounds
            case Repeat.COLD:
                return 0, scale.start_rounds
            case Repeat.ONCE:
                return 0, 1


def kinds() -> Mapping[str, Kind]:
    """Every kind, by the name that `--rows` knows it by."""
    from bench.rows import (
        aborted,
        ack,
        commit,
        consume,
        memory,
        produce,
        spark,
        start,
        transactions,
    )

    return {
        "start": start.KIND,
        "memory": memory.KIND,
        "produce": produce.KIND,
        "ack": ack.KIND,
        "consume": consume.KIND,
        "transactions-1": transactions.ONE,
        "transactions-50": transactions.FIFTY,
        "commit": commit.KIND,
        "aborted": aborted.KIND,
        **spark.kinds(),
    }
