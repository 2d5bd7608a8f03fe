"""A broker in virtual time, on a disk that can be full and lose its power: real frames, no waiting.

    world.create("t", partitions=2)
    world.ask(EndTxnRequest(...), 4)
    world.pass_ms(60_000)
    world.crash()

Time passes while something is asked or `pass_ms` says so. A request that is to be under way while
something else happens is begun with `begin`, and its answer picked up with `answer`.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

from oncelog.core.batch import HEADER_BYTES
from oncelog.core.records import batches
from oncelog.runtime.config import BrokerConfig
from oncelog.storage.disk import Buffer
from oncelog.testing.sim.disk import Directory, Inode, SimDisk, SimFile
from oncelog.testing.sim.loop import SimLoop
from oncelog.testing.sim.world import Disconnected, SimBroker, SimConnection
from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

#: Small numbers of partitions start faster; the rest is as in a broker of today.
SETTINGS: Final[Mapping[str, str]] = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "connections.max.idle.ms": "-1",
}
#: Whoever meets markers that are under way is sent away at once, as by Kafka.
KAFKA_ANSWERS: Final[Mapping[str, str]] = {"oncelog.transaction.busy.wait.ms": "0"}

__all__ = ["KAFKA_ANSWERS", "Disconnected", "Line", "PickyDisk", "World"]


class Line(Protocol):
    """Anything that carries a request to a broker and brings its answer back."""

    @property
    def now_ms(self) -> int:
        """The time that its clients put into their records."""

    def ask(self, message: Any, version: int) -> Any:
        """Send it in this version, and wait for the answer."""


class PickyDisk(SimDisk):
    """A disk that has no more room in some directories."""

    def __init__(self, rng: Random, root: Directory | None = None) -> None:
        super().__init__(rng, root)
        self.sync_s = 0.001
        #: Writes to files whose path begins like one of these fail: the disk is full.
        self.full: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> SimFile:
        return PickyFile(self, path, super().open(path, create=create).inode)

    def check_room(self, path: str) -> None:
        if any(path.startswith(prefix) for prefix in self.full):
            raise OSError(errno.ENOSPC, f"no room for {path}")


class PickyFile(SimFile):
    """A file on a `PickyDisk`."""

    def __init__(self, disk: PickyDisk, path: str, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        self._picky = disk

    def append(self, chunks: Sequence[Buffer]) -> None:
        self._picky.check_room(self.path)
        super().append(chunks)


class World:
    """One broker and those who speak to it."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        seed: int = 1,
        disk: SimDisk | None = None,
    ) -> None:
        """`disk` is one to begin with, instead of the empty one that can be full."""
        config = BrokerConfig().with_values({**SETTINGS, **(settings or {})}, origin="test")
        self.loop = SimLoop()
        self.disk = PickyDisk(Random(seed))
        self.broker = SimBroker(self.loop, Random(seed), config.checked())
        self.broker.disk = disk or self.disk
        self._run(self.broker.start)
        self._line = self.connect()

    def close(self) -> None:
        """Stop; whatever raised where nobody expected it fails the test now."""
        self.disk.full.clear()
        try:
            self._run(self.broker.stop)
        finally:
            self.loop.close()
        assert self.loop.failures == []

    def _run(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return await work()

        return self.loop.run_until_complete(run())

    # --- asking -------------------------------------------------------------------------------------

    def ask(self, message: Any, version: int) -> Any:
        """Ask on the world's own connection."""
        return self._line.ask(message, version)

    def connect(self) -> "SimLine":
        """One more connection."""

        async def opened() -> SimConnection:
            return SimConnection(self.broker, "test")

        return SimLine(self, self._run(opened))

    # --- time and trouble ---------------------------------------------------------------------------

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        self._run(lambda: asyncio.sleep(ms / 1000))

    @property
    def now_ms(self) -> int:
        """The broker's wall clock."""
        return self.broker.clock.now().wall_ms

    def crash(self) -> None:
        """The power goes and comes back: what was not synced may be lost."""
        self.broker.crash()
        self._start_again()

    def _start_again(self) -> None:
        self.broker.disk.sync_s = 0.001
        self._run(self.broker.start)
        self._line = self.connect()

    def restart(self) -> None:
        """Stop in order, and start again."""
        self._run(self.broker.stop)
        self._start_again()

    def crash_with(self, directory: str, batch: Callable[[int], bytes]) -> None:
        """Crash, and find one more batch in a log: it is made with the offset that it gets."""
        self.broker.crash()
        path = f"{directory}/00000000000000000000.log"
        file = self.broker.disk.open(path)
        found = [header for header, _ in batches(file.read(0, file.size_bytes))]
        file.append([batch(found[-1].next_offset if found else 0)])
        file.inode.sync(len(file.inode.changes))
        self._start_again()

    def log_bytes(self, topic: str) -> int:
        """How much a topic of one segment for each partition has on the disk."""
        disk = self.broker.disk
        paths = [f"{name}/{0:020}.log" for name in disk.list(".") if name.startswith(f"{topic}-")]
        return sum(disk.open(path).size_bytes for path in paths)

    def damage_log(self, topic: str) -> None:
        """Crash, and find that the first batch of each of a topic's logs cannot be read."""
        self.pass_ms(61_000)  # Below a checkpoint that is damage, above it a torn write.
        self.broker.crash()
        disk = self.broker.disk
        for name in disk.list("."):
            if name.startswith(f"{topic}-"):
                file = disk.open(f"{name}/{0:020}.log")
                file.inode.write(30, b"damaged")
                file.inode.sync(len(file.inode.changes))
        self._start_again()

    def set_transaction_version(self, level: int) -> None:
        """UpdateFeatures: the level of transactions that clients are told."""
        update = FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=2
        )
        reply = self.ask(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000), 1)
        assert reply.error_code == 0, reply

    # --- topics -------------------------------------------------------------------------------------

    def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic."""
        create_topic(self, name, partitions, configs)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        reply = self.ask(self.a_deletion(name), 6)
        assert [each.error_code for each in reply.responses] == [0]

    def a_deletion(self, name: str) -> DeleteTopicsRequest:
        """The request, to be sent at any moment."""
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)


class SimLine:
    """One of a client's connections."""

    def __init__(self, world: World, connection: SimConnection) -> None:
        self._world = world
        self._connection = connection

    @property
    def now_ms(self) -> int:
        return self._world.now_ms

    def ask(self, message: Any, version: int) -> Any:
        """Send a request, and wait for its answer."""
        return self.answer(self.begin(message, version))

    def begin(self, message: Any, version: int) -> "asyncio.Task[Any]":
        """Send a request; its answer comes while other things are asked."""
        return self._world.loop.create_task(self._connection.request(message, version))

    def answer(self, begun: "asyncio.Task[Any]") -> Any:
        """Wait for the answer to a request that was begun."""
        return self._world.loop.run_until_complete(begun)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
        self._world.pass_ms(1)

    @property
    def is_open(self) -> bool:
        return self._connection.is_open


def create_topic(
    line: Line, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Make a topic, on any broker."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    reply = line.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert [each.error_code for each in reply.topics] == [0], reply


#: What a control batch of one marker takes.
MARKER_BYTES: Final = HEADER_BYTES + 17
