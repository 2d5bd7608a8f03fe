"""Group coordinators: one shard for each partition of `__consumer_offsets`.

Replies that have to wait (a join waits for the other members) are tickets here: the shard parks the
command, and a later decision answers it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from oncelog.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
)
from oncelog.core.groups.commands import PARKED, Answer, Command, Reply
from oncelog.core.groups.config import GroupConfig
from oncelog.core.groups.shard import GroupShard
from oncelog.core.markers import Marker
from oncelog.core.types import OFFSETS_TOPIC, partition_for
from oncelog.runtime.clock import Clock
from oncelog.runtime.host import ShardHost
from oncelog.runtime.partition import Partition


class GroupCoordinator:
    """All groups of this broker."""

    def __init__(self, config: GroupConfig, clock: Clock, note: Callable[[object], None]) -> None:
        self._config = config
        self._clock = clock
        self._note = note
        self._shards: dict[int, GroupShard] = {}
        self._hosts: dict[int, ShardHost[Command, Reply, Answer]] = {}
        self._tickets: dict[int, asyncio.Future[Reply]] = {}
        self._last_ticket = 0

    def open(self, partition: Partition) -> None:
        """Take over a partition of the offsets topic: replay it and begin to serve its groups."""
        index = partition.topic_partition.partition
        if index in self._hosts or partition.offline is not None:
            return
        shard = GroupShard(self._config)
        host: ShardHost[Command, Reply, Answer] = ShardHost(
            shard, partition, clock=self._clock, act=self._answer, note=self._note
        )
        host.replay()
        shard.loaded(self._clock.now())
        host.start_timer()
        self._shards[index] = shard
        self._hosts[index] = host

    def hosts(self) -> list[ShardHost[Command, Reply, Answer]]:
        """The shards at work, in order."""
        return [host for _, host in sorted(self._hosts.items())]

    @property
    def is_open(self) -> bool:
        """Whether the offsets topic exists."""
        return bool(self._hosts)

    def count_by_state(self) -> dict[str, int]:
        """How many groups are in which state, as memory has it: whoever watches does not wait."""
        counts: Counter[str] = Counter()
        for shard in self._shards.values():
            counts.update(shard.count_by_state())
        return dict(counts)

    def _host(self, group_id: str, partition_count: int) -> ShardHost[Command, Reply, Answer]:
        if partition_count == 0:
            raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} does not exist yet")
        host = self._hosts.get(partition_for(group_id, partition_count))
        if host is None:
            raise NotCoordinator(f"the group {group_id!r} is not coordinated here")
        return host

    async def submit(self, group_id: str, command: Command, *, partition_count: int) -> Reply:
        """Ask the shard that owns the group."""
        return await self._ask(self._host(group_id, partition_count), command)

    async def submit_to_all(self, command: Command) -> list[Reply]:
        """Ask every shard, in order."""
        return [await self._ask(host, command) for _, host in sorted(self._hosts.items())]

    async def submit_parked(
        self,
        group_id: str,
        command: Callable[[int], Command],
        *,
        partition_count: int,
        wait_ms: int,
    ) -> Reply:
        """Ask with a ticket, and wait for the answer if it does not come at once."""
        host = self._host(group_id, partition_count)
        self._last_ticket += 1
        ticket = self._last_ticket
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._tickets[ticket] = future
        try:
            reply = await self._ask(host, command(ticket))
            if reply is not PARKED:
                return reply
            async with asyncio.timeout(wait_ms / 1000):
                return await future
        except TimeoutError:
            raise CoordinatorNotAvailable(f"the group {group_id!r} did not settle") from None
        finally:
            self._tickets.pop(ticket, None)

    def write_marker(self, index: int, marker: Marker, *, transaction_version: int) -> int:
        """Decide the pending offsets of a producer; returns the end of the log to wait for."""
        host = self._hosts.get(index)
        if host is None:
            raise NotCoordinator(f"{OFFSETS_TOPIC}-{index} is not open here")
        return host.write_marker(marker, transaction_version=transaction_version)

    async def _ask(self, host: ShardHost[Command, Reply, Answer], command: Command) -> Reply:
        try:
            return await host.submit(command)
        except KafkaStorageError as error:
            raise NotCoordinator(str(error)) from error

    def _answer(self, effect: Answer) -> None:
        future = self._tickets.get(effect.ticket)
        if future is None or future.done():
            return
        if isinstance(effect.outcome, BrokerError):
            future.set_exception(effect.outcome)
        else:
            future.set_result(effect.outcome)

    def close(self) -> None:
        """Stop the timers and send everybody who waits away."""
        for host in self._hosts.values():
            host.close()
        for future in self._tickets.values():
            if not future.done():
                future.set_exception(NotCoordinator("the broker is stopping"))
        self._hosts = {}
