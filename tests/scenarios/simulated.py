"""A broker on simulated time, disk and network, spoken to as over a socket."""

import asyncio
from collections.abc import Mapping
from random import Random

from oncelog.runtime.config import BrokerConfig
from oncelog.testing.sim.disk import SimDisk
from oncelog.testing.sim.loop import SimLoop
from oncelog.testing.sim.world import SimBroker, SimConnection
from tests.scenarios.wire import Wire
from tests.storage.disks import Files, files_of

SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.segment.bytes": "1000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
}
#: Enough virtual time for a checkpoint.
CHECKPOINT_S = 6.0


class Machine:
    """A broker that starts, stops and loses its power."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        *,
        seed: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop), "run by `simulated`"
        config = BrokerConfig().with_values({**SETTINGS, **(settings or {})}, origin="test")
        self.broker = SimBroker(loop, Random(seed), config)
        self.broker.disk.sync_s = 0.001
        if disk is not None:
            self.broker.disk = disk

    async def start(self) -> Wire:
        """Start, and connect."""
        await self.broker.start()
        return self.connect()

    def connect(self) -> Wire:
        """One more connection."""
        clock = self.broker.clock
        return Wire(SimConnection(self.broker, "test"), clock=lambda: clock.now().wall_ms)

    async def restart(self) -> Wire:
        """Lose the power, and what was not synced; then start again."""
        self.broker.crash()
        return await self.start()

    def files(self) -> Files:
        """Everything on the disk as it is now."""
        return files_of(self.broker.disk)
