"""A cluster of brokers behind a list of addresses: metadata, routing, and patience.

A request goes to any broker, to the controller, to a partition's leader or to a coordinator. What
fails for a reason that passes (a leader moved, a coordinator still reads its log) is asked again
with growing pauses until the time is up.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from oncelog.client.addresses import Address, parse_bootstrap
from oncelog.client.connection import CONNECT_TIMEOUT_S, Connection
from oncelog.client.errors import (
    ClientError,
    Disconnected,
    NoReply,
    Refused,
    Unreachable,
)
from oncelog.client.settings import ClientSettings
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

# Answers of other brokers than ours, which never give them.
_LEADER_NOT_AVAILABLE: Final = 5
_NETWORK_EXCEPTION: Final = 13
_NOT_CONTROLLER: Final = 41

#: What passes by itself. The request has changed nothing, so it may be sent again.
PASSING: Final = frozenset(
    {
        _LEADER_NOT_AVAILABLE,
        _NETWORK_EXCEPTION,
        _NOT_CONTROLLER,
        int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        int(ErrorCode.NOT_COORDINATOR),
        int(ErrorCode.FENCED_LEADER_EPOCH),
        int(ErrorCode.UNKNOWN_LEADER_EPOCH),
    }
)

#: How long brokers may take to be started again before a job gives up on them.
RESTART_S: Final = 15.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates, as FindCoordinator numbers it."""

    GROUP = 0
    TRANSACTION = 1


class Cluster:
    """Open one with `async with await Cluster.connect(settings)`, or with `Cluster.open`."""

    def __init__(self, settings: ClientSettings) -> None:
        """Nothing is connected yet, but the files that the settings name are read."""
        self._addresses = parse_bootstrap(settings.bootstrap_servers)
        self._client_id = settings.client_id
        self._timeout = settings.timeout_s
        security = settings.security
        self._tls = None if security.tls is None else security.tls.context()
        self._credentials = security.credentials
        self._brokers: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._connecting = asyncio.Lock()

    @classmethod
    async def connect(cls, settings: ClientSettings, *, wait_s: float = 0.0) -> "Cluster":
        """Reach one of the brokers and learn of the others.

        `wait_s` is for those who would rather wait than fail while brokers are started again.
        """
        cluster = cls(settings)
        try:
            await cluster._first_metadata(asyncio.get_running_loop().time() + wait_s)
        except BaseException as error:
            await cluster.close()
            if isinstance(error, Disconnected) and settings.security.credentials is None:
                # Kafka hangs up, without a word, on requests before a login that it wants.
                hint = "If it wants a user, set security.protocol to SASL_SSL or SASL_PLAINTEXT."
                raise Disconnected(f"{error} {hint}") from error
            raise
        return cluster

    @classmethod
    async def open(
        cls, bootstrap: str, *, client_id: str = "oncelog", timeout: float = 30.0
    ) -> "Cluster":
        """Connect without TLS and without a user; `timeout` is in seconds, for each call."""
        return await cls.connect(
            ClientSettings(bootstrap_servers=bootstrap, client_id=client_id, timeout_s=timeout)
        )

    async def _first_metadata(self, deadline: float) -> None:
        while True:
            try:
                await self.metadata(())
                return
            except Unreachable:
                if asyncio.get_running_loop().time() + _LONGEST_PAUSE_S > deadline:
                    raise
            await asyncio.sleep(_LONGEST_PAUSE_S / 2)

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up on every broker."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    # --- whom to ask ---

    async def any(self) -> Connection:
        """A connection to whichever broker answers first, those that we know already before all."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        problem: ClientError = Unreachable("No broker is known.")
        for address in dict.fromkeys((*self._brokers.values(), *self._addresses)):
            try:
                return await self._connect(address)
            except (Unreachable, Disconnected, NoReply) as error:
                problem = error
        raise problem

    async def node(self, node_id: int) -> Connection:
        """A connection to one broker."""
        address = self._brokers.get(node_id)
        if address is None:
            raise Unreachable(f"Broker {node_id} is not in the cluster's metadata.")
        return await self._connect(address)

    async def controller(self) -> Connection:
        """The broker that creates and deletes topics; any broker where none is named."""
        reply = await self.metadata(())
        if reply.controller_id in self._brokers:
            return await self.node(reply.controller_id)
        return await self.any()

    async def leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Which broker leads which of the partitions; each must have a leader."""
        wanted = sorted(set(partitions))
        reply = await self.metadata(sorted({partition.topic for partition in wanted}))
        leader_of = {}
        for topic in reply.topics:
            raise_for(topic.error_code, f"Topic {topic.name}")
            for found in topic.partitions:
                leader_of[TopicPartition(topic.name or "", found.partition_index)] = found
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            entry = leader_of.get(partition)
            if entry is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {partition}")
            if entry.leader_id not in self._brokers:
                raise Refused(_LEADER_NOT_AVAILABLE, f"Partition {partition}")
            by_leader.setdefault(entry.leader_id, []).append(partition)
        return by_leader

    async def everyone(self) -> list[tuple[int, Connection]]:
        """Every broker of the cluster, by number."""
        await self.metadata(())
        return [(node_id, await self.node(node_id)) for node_id in sorted(self._brokers)]

    async def coordinator(self, kind: CoordinatorKind, key: str) -> Connection:
        """The broker that coordinates a group or a transactional id."""
        return await self.node(await self.coordinator_id(kind, key))

    async def coordinator_id(self, kind: CoordinatorKind, key: str) -> int:
        """The number of that broker."""
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            node_id = await self._find_coordinator(kind, key)
            self._coordinators[kind, key] = node_id
        return node_id

    async def metadata(
        self, topics: Sequence[str] | None, *, allow_auto_topic_creation: bool = False
    ) -> MetadataResponse:
        """Ask about some topics, none, or all (`None`), and remember the brokers."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        message = MetadataRequest(
            topics=wanted, allow_auto_topic_creation=allow_auto_topic_creation
        )
        connection = await self.any()
        reply: MetadataResponse = await connection.request(message, timeout=self._timeout)
        self._brokers = {b.node_id: (b.host, b.port) for b in reply.brokers}
        return reply

    # --- asking ---

    async def ask(
        self,
        message: Any,
        whom: Callable[[], Awaitable[Connection]] | None = None,
        *,
        at_most: int | None = None,
        is_repeatable: bool = True,
    ) -> Any:
        """Send a request to `any`, or to whom `whom` says, and wait out what passes by itself.

        Not repeatable is what must not be done twice: after a lost connection nobody knows whether
        it was done, so that error goes to the caller.
        """

        async def attempt() -> Any:
            connection = await (whom or self.any)()
            return await connection.request(message, at_most=at_most, timeout=self._timeout)

        return await self.patiently(attempt, is_repeatable=is_repeatable)

    async def patiently(
        self, attempt: Callable[[], Awaitable[T]], *, is_repeatable: bool = True
    ) -> T:
        """Try until it succeeds, fails for good, or the time is up."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        pause = _FIRST_PAUSE_S
        while True:
            is_last = asyncio.get_running_loop().time() + pause > deadline
            try:
                reply = await attempt()
                if is_last or PASSING.isdisjoint(error_codes(reply)):
                    return reply
            except Refused as error:
                if is_last or error.code not in PASSING:
                    raise
            except Unreachable:
                if is_last:
                    raise
            except Disconnected as error:
                if not is_repeatable:
                    raise Disconnected(f"{error} Whether it was done is unknown.") from error
                if is_last:
                    raise
            self._coordinators.clear()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    # --- the inside ---

    async def _connect(self, address: Address) -> Connection:
        async with self._connecting:  # two callers at once share one connection
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = self._connections[address] = await Connection.open(
                    *address,
                    client_id=self._client_id,
                    timeout=min(self._timeout, CONNECT_TIMEOUT_S),
                    tls=self._tls,
                    credentials=self._credentials,
                )
            return connection

    async def _find_coordinator(self, kind: CoordinatorKind, key: str) -> int:
        # Versions before 4 carry one key, later ones a list of them: fill in both.
        message = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        connection = await self.any()
        reply: FindCoordinatorResponse = await connection.request(message, timeout=self._timeout)
        found = reply.coordinators[0] if reply.coordinators else reply
        raise_for(found.error_code, f"The coordinator of {key}", found.error_message)
        self._brokers.setdefault(found.node_id, (found.host, found.port))
        return found.node_id


def raise_for(code: int, subject: str, detail: str | None = None) -> None:
    """Raise `Refused` for any code but 0."""
    if code:
        raise Refused(code, subject, detail)


def error_codes(reply: object) -> Iterator[int]:
    """Every error code in a response or a list of them, at whatever depth, 0 left out."""
    if isinstance(reply, list | tuple):
        for item in reply:
            yield from error_codes(item)
    if not dataclasses.is_dataclass(reply):
        return
    for field in dataclasses.fields(reply):
        value = getattr(reply, field.name)
        if field.name == "error_code":
            if value:
                yield value
        else:
            yield from error_codes(value)
