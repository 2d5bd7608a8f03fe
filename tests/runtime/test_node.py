"""What a node keeps through restarts and crashes, over the real disk."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog.core.types import Now
from oncelog.runtime.clock import LoopClock
from oncelog.runtime.config import BrokerConfig
from oncelog.server.broker import BrokerCore
from oncelog.storage.disk import RealDisk

YEAR_MS = 365 * 86_400_000


@asynccontextmanager
async def a_core(
    data_dir: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[BrokerCore]:
    data_dir.mkdir(exist_ok=True)
    config = BrokerConfig().with_values(settings or {}, origin="test")
    disk = RealDisk(data_dir)
    core = BrokerCore(config, disk, clock=LoopClock())
    await core.open()
    yield core
    await core.close()
    disk.shut_down()


def test_retention_never_forgets_a_topic(tmp_path: Path) -> None:
    # Each change of the metadata gets a segment of its own, old enough to be dropped.
    settings = {"log.segment.bytes": "14", "log.retention.ms": "1", "log.retention.bytes": "1"}

    async def run() -> set[str]:
        async with a_core(tmp_path / "data", settings) as core:
            for name in ("a", "b", "c"):
                await core.node.create_topic(name, 1)
            now = core.node.clock.now()
            later = Now(wall_ms=now.wall_ms + YEAR_MS, monotonic_ms=now.monotonic_ms)
            await core.logs.apply_retention(later)
        async with a_core(tmp_path / "data", settings) as core:
            return set(core.node.metadata.topics)

    assert asyncio.run(run()) == {"a", "b", "c"}
