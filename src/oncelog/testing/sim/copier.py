"""A simulated copier: consumes, writes for what it read, and commits both as one.

Now and then its group goes on without it while its transaction is open: it stands still until others
have its partitions, or it joins again itself. Then it goes on as the member that it was when it read,
and must be refused.
"""

import asyncio
from random import Random
from typing import Final

from oncelog.testing.sim.client import Part, Stage
from oncelog.testing.sim.member import SESSION_MS, Again, Member
from oncelog.testing.sim.transactional import Abortable, GroupOffsets, TxnProducer
from oncelog.testing.sim.world import Disconnected

#: So many batches at most a copier writes for one poll.
MOST_WRITES: Final = 4
#: How likely it falls behind its group in the middle of a transaction.
FALLS_BEHIND: Final = 0.1
#: How likely a transaction is aborted on purpose.
ABORTS: Final = 0.15


class Copier(Member):
    """A member of a group whose offsets are part of its transactions."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        rng: Random,
        *,
        group: str,
        parts: list[Part],
        patience_s: float,
        targets: list[Part],
        producer: TxnProducer,
    ) -> None:
        super().__init__(stage, name, rng, group=group, parts=parts, patience_s=patience_s)
        self._targets = targets
        self.producer = producer

    def stop_for(self, seconds: float) -> None:
        """It is one process: its producer stops too."""
        super().stop_for(seconds)
        self.producer.stop_for(seconds)

    async def handle(self, read: dict[Part, tuple[int, int]], count: int) -> bool:
        """Copy what was read; False sends the reader back to what is committed."""
        offsets = GroupOffsets(
            group=self.group_id,
            generation=self.generation,
            member_id=self.member_id,
            ranges=read,
        )
        most = 1 if self.is_hurried else min(count, MOST_WRITES)
        writes = [(self._rng.choice(self._targets), 1) for _ in range(most)]
        if self.is_hurried:
            return await self.producer.transact(writes, commit=True, offsets=offsets)
        return await self.producer.transact(
            writes,
            commit=self._rng.random() >= ABORTS,
            offsets=offsets,
            before_offsets=self._fall_behind if self._rng.random() < FALLS_BEHIND else None,
            # Now and then for longer than its session lasts: others take over its partitions.
            linger_s=self._rng.choice((0, 0, 0, 0, 0.1, 0.1, 1, 4)),
        )

    async def _fall_behind(self) -> None:
        """Let the group begin a new generation before the offsets are sent."""
        if self._rng.random() < 0.5:
            await asyncio.sleep(SESSION_MS / 1000 * self._rng.uniform(1.1, 2.5))
            return
        self.subscription += b"+"
        try:
            await self.enter()
        except (Disconnected, Again):
            raise Abortable from None
