"""Whose directory is it? One wrong bit must never make a partition look empty."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.core.errors import KafkaStorageError
from oncelog.core.types import METADATA_TOPIC
from oncelog.observe import notes
from oncelog.runtime.log_directory import partition_metadata
from oncelog.storage.partition_log import PARTITION_METADATA
from tests.runtime.test_node import a_core, produce
from tests.txn.producer import OK, Producer
from tests.txn.world import World


async def write_some(data_dir: Path) -> None:
    async with a_core(data_dir) as core:
        await core.node.create_topic("a", 1)
        await produce(core.node, "a", 5)


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_directory_that_names_another_topic_is_not_served_and_not_touched(tmp_path: Path) -> None:
    directory = tmp_path / "a-0"

    async def run() -> str | None:
        await write_some(tmp_path)
        (directory / PARTITION_METADATA).write_text(partition_metadata(UUID(int=7)))
        before.update(files_of(directory))
        async with a_core(tmp_path) as core:
            partition = core.node.partition("a", 0)
            with pytest.raises(KafkaStorageError, match="delete that one file and restart"):
                await produce(core.node, "a", 1)
            return partition.offline

    before: dict[str, bytes] = {}
    reason = asyncio.run(run())

    assert reason is not None
    assert "a-0/partition.metadata names the topic id" in reason
    assert files_of(directory) == before
    assert not list(tmp_path.glob("*-stray"))


def test_every_wrong_bit_of_the_file_is_refused_or_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a-0" / PARTITION_METADATA

    async def run() -> list[tuple[bool, int]]:
        await write_some(tmp_path)
        right, found = path.read_bytes(), []
        for position in range(len(right)):
            wrong = bytearray(right)
            wrong[position] ^= 1
            path.write_bytes(wrong)
            async with a_core(tmp_path) as core:
                partition = core.node.partition("a", 0)
                found.append((partition.offline is None, partition.high_watermark))
        return found

    # Offline, where nothing can be read, or there with all of its records: never there and empty.
    assert set(asyncio.run(run())) <= {(True, 5), (False, 0)}


@pytest.mark.parametrize(
    "torn", [b"", b"version: 0\ntop", bytes(43)], ids=["empty", "half", "zeros"]
)
def test_a_file_torn_by_a_power_cut_is_written_again(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a-0" / PARTITION_METADATA

    async def run() -> tuple[str | None, int, UUID]:
        await write_some(tmp_path)
        path.write_bytes(torn)
        async with a_core(tmp_path) as core:
            partition = core.node.partition("a", 0)
            return partition.offline, partition.high_watermark, partition.topic_id

    offline, high_watermark, topic_id = asyncio.run(run())

    assert (offline, high_watermark) == (None, 5)
    assert path.read_text() == partition_metadata(topic_id)


def test_a_broker_does_not_start_over_metadata_that_may_be_anothers(tmp_path: Path) -> None:
    """With an empty one it would take every topic's directory for a stray, and remove it."""
    path = tmp_path / f"{METADATA_TOPIC}-0" / PARTITION_METADATA

    async def start() -> None:
        async with a_core(tmp_path):
            pass

    asyncio.run(write_some(tmp_path))
    before = files_of(tmp_path / "a-0")
    path.write_text(partition_metadata(UUID(int=7)))
    with pytest.raises(KafkaStorageError, match="names the topic id"):
        asyncio.run(start())

    assert files_of(tmp_path / "a-0") == before


@pytest.mark.parametrize("flush", ["sync", "os"])
def test_a_power_cut_brings_no_directory_back_under_a_new_topics_name(flush: str) -> None:
    world = World({"oncelog.flush": flush})
    for n in range(20):
        name = f"again-{n}"
        world.create(name)
        producer = Producer(world, "x", is_v2=True, topic=name).ready()
        assert producer.send(0, b"old").error_code == OK
        producer.commit()
        world.delete(name)
        world.create(name)
        world.crash()
    offline = [note for note in world.broker.notes if isinstance(note, notes.PartitionOffline)]
    world.close()

    assert offline == []


def test_a_wrong_bit_in_what_a_coordinator_remembers_is_not_taken_for_the_truth(
    tmp_path: Path,
) -> None:
    """The names of topics, here; offsets and transactions are read back in the same way."""
    path = tmp_path / f"{METADATA_TOPIC}-0" / "00000000000000000000.log"

    async def start() -> None:
        async with a_core(tmp_path):
            pass

    asyncio.run(write_some(tmp_path))
    wrong = bytearray(path.read_bytes())
    wrong[-1] ^= 1
    path.write_bytes(wrong)

    with pytest.raises(KafkaStorageError, match="is damaged at offset"):
        asyncio.run(start())
