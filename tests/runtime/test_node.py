"""What a node keeps through restarts and crashes, over the real disk."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog.core.batch import read_header
from oncelog.core.records import KeyValue, encode_batch
from oncelog.core.types import Now
from oncelog.runtime.clock import LoopClock
from oncelog.runtime.config import BrokerConfig
from oncelog.runtime.node import Node
from oncelog.server.broker import BrokerCore
from oncelog.storage.disk import RealDisk

YEAR_MS = 365 * 86_400_000


def a_disk(data_dir: Path) -> RealDisk:
    data_dir.mkdir(exist_ok=True)
    return RealDisk(data_dir)


@asynccontextmanager
async def a_core(
    data_dir: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[BrokerCore]:
    config = BrokerConfig().with_values(settings or {}, origin="test")
    disk = a_disk(data_dir)
    core = BrokerCore(config, disk, clock=LoopClock())
    await core.open()
    yield core
    await core.close()
    disk.shut_down()


async def produce(node: Node, topic: str, count: int) -> None:
    partition = node.partition(topic, 0)
    batch = encode_batch([KeyValue(b"k", b"v")] * count, timestamp_ms=1)
    result = partition.append(memoryview(batch), read_header(batch), node.clock.now())
    await partition.wait_committed(result.last_offset + 1)


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


def test_a_new_topic_inherits_no_offsets_from_a_deleted_one_of_its_name(tmp_path: Path) -> None:
    async def run() -> tuple[str | None, int, int]:
        async with a_core(tmp_path / "data") as core:
            node = core.node
            await node.create_topic("a", 1)
            await produce(node, "a", 5)
            await core.logs.move_starts({node.partition("a", 0): 3})
            assert await node.delete_topics([node.metadata.topic("a")]) == [None]
            await node.create_topic("a", 1)
            await produce(node, "a", 2)
            shutil.copytree(tmp_path / "data", tmp_path / "crashed")
        async with a_core(tmp_path / "crashed") as core:
            partition = core.node.partition("a", 0)
            return partition.offline, partition.log_start_offset, partition.high_watermark

    assert asyncio.run(run()) == (None, 0, 2)
