"""A simulated copier: consumes, writes for what it read, and commits both as one."""

from random import Random

from oncelog.testing.sim.client import Part, Stage
from oncelog.testing.sim.member import Member
from oncelog.testing.sim.transactional import GroupOffsets, TxnProducer

#: So many batches at most a copier writes for one poll.
MOST_WRITES = 4


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
        writes = [(self._rng.choice(self._targets), 1) for _ in range(min(count, MOST_WRITES))]
        return await self.producer.transact(
            writes,
            commit=self._rng.random() < 0.85,
            offsets=offsets,
            # Now and then for longer than its session lasts: others take over its partitions.
            linger_s=self._rng.choice((0, 0, 0, 0, 0.1, 0.1, 1, 4)),
        )
