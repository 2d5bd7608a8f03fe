"""Whether what came out is what went in: pure, over what plain consumers have read."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oncelog.demo.orders import Order, Output, expected, expected_revenue


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an audit found; all but the first four should be nothing."""

    orders: int
    valid: int
    rejected: int
    windows: int
    #: Committed orders of which nothing came out, or something else than should.
    lost: int
    #: Records beyond the first for one order.
    duplicated: int
    #: Orders that a reader of committed records saw before their batch was committed, or that were
    #: taken back after it had seen them.
    seen_early: int
    #: Windows whose last sum is wrong, and sums that were written twice.
    wrong_windows: int
    repeated_sums: int

    @property
    def is_exact(self) -> bool:
        """Nothing lost, nothing twice, nothing early, and every sum right."""
        return not (
            self.lost
            or self.duplicated
            or self.seen_early
            or self.wrong_windows
            or self.repeated_sums
        )


def judge(
    orders: Iterable[Order], records: Mapping[Output, Iterable[bytes]], *, seen_early: int
) -> Findings:
    """Compare the committed orders with the committed records of the outputs, in their order."""
    taken = list(orders)
    written = Counter(
        (output, json.dumps(json.loads(value), sort_keys=True))
        for output in (Output.VALID, Output.REJECTED)
        for value in records[output]
    )
    wanted = {(output, json.dumps(row, sort_keys=True)) for output, row in map(expected, taken)}
    sums: dict[int, list[tuple[int, int]]] = {}
    for value in records[Output.REVENUE]:
        found = json.loads(value)
        sums.setdefault(found["start"], []).append((found["orders"], found["cents"]))
    revenue = expected_revenue(taken)
    return Findings(
        orders=len(taken),
        valid=sum(count for (output, _), count in written.items() if output is Output.VALID),
        rejected=sum(count for (output, _), count in written.items() if output is Output.REJECTED),
        windows=len(revenue),
        lost=len(wanted - written.keys()),
        # What nobody ordered counts as well.
        duplicated=sum(written.values()) - len(wanted & written.keys()),
        seen_early=seen_early,
        wrong_windows=sum(
            sums.get(start, [None])[-1] != revenue.get(start)
            for start in revenue.keys() | sums.keys()
        ),
        repeated_sums=sum(len(found) - len(set(found)) for found in sums.values()),
    )
