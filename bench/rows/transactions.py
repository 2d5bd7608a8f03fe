"""How many transactions of one record are committed in a second, by one producer and by fifty."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from bench.rows import Kind, Scale
from bench.servers import Contender
from bench.table import Row, Target
from bench.transactions import transactions_per_second

MANY: Final = 50
RECORD_BYTES: Final = 100

BY_ONE = Row(
    name="transactions of 1 record, 1 producer",
    unit="1/s",
    target=Target(ratio_at_least=4.0),
    more_is_better=True,
)
BY_MANY = Row(
    name=f"transactions of 1 record, {MANY} producers",
    unit="1/s",
    target=Target(ratio_at_least=2.0),
    # Here a sync is shared by all who wait for one.
    synced_target=Target(ratio_at_least=5.0),
    more_is_better=True,
)


def measure(producers: int, contender: Contender, scale: Scale) -> Sequence[float]:
    """Commit for a while; nothing is deleted, since a log that grows is what both are made for."""
    rate = transactions_per_second(
        contender.server,
        f"transactions-of-{producers}",
        producers=producers,
        for_s=scale.transactions_s,
        value=os.urandom(RECORD_BYTES),
    )
    return [rate]


ONE = Kind(rows=[BY_ONE], measure=partial(measure, 1))
FIFTY = Kind(rows=[BY_MANY], measure=partial(measure, MANY))
