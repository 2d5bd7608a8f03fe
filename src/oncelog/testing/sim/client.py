"""What all simulated clients have in common: a connection, patience, and being stopped for a while."""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from oncelog.check.payload import Payload, encode_payload
from oncelog.check.recorder import Recorder
from oncelog.core.records import Record as LogRecord
from oncelog.testing.sim.world import Disconnected, SimBroker, SimConnection
from oncelog.wire.errors import ErrorCode

#: Answers after which a client asks the same once more.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Part = tuple[str, int]


class Refused(Exception):
    """The broker said no where it has no reason to."""


class Admitted(Exception):
    """The broker said yes where it has to say no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the clients of a run share."""

    broker: SimBroker
    recorder: Recorder
    #: The number of the run, which every value carries.
    run: int

    def record(self, *, process: int, number: int, index: int, value: int) -> LogRecord:
        """A record that tells where it came from."""
        payload = Payload(
            run=self.run, process=process, txn_number=number, index=index, value=value
        )
        return LogRecord(0, self.broker.clock.now().wall_ms, None, encode_payload(payload))


class Client:
    """Keeps a connection, opening it again when it breaks."""

    def __init__(self, stage: Stage, name: str, rng: Random, *, patience_s: float = 5.0) -> None:
        self._stage = stage
        self._recorder = stage.recorder
        self._rng = rng
        #: How long it waits for an answer before it hangs up.
        self._patience_s = patience_s
        self._connection: SimConnection | None = None
        self._stopped_until = 0.0
        self.name = name

    def stop_for(self, seconds: float) -> None:
        """Do nothing for a while, like a process that was sent a SIGSTOP."""
        self._stopped_until = asyncio.get_running_loop().time() + seconds

    async def ask(self, message: Any, version: int, *, more_s: float = 0.0) -> Any:
        """Send a request and wait for its answer, `more_s` longer than usual."""
        await self.while_stopped()
        try:
            return await self.connection().request(
                message, version, timeout_s=self._patience_s + more_s
            )
        finally:
            await self.while_stopped()

    async def answer(self, future: asyncio.Future[Any]) -> Any:
        """Wait for the answer to what was sent, as long as patience lasts."""
        try:
            async with asyncio.timeout(self._patience_s):
                return await future
        except TimeoutError:
            self.connection().close()
            raise Disconnected(f"no answer within {self._patience_s} s") from None

    def connection(self) -> SimConnection:
        """The connection, or a new one."""
        if self._connection is None or not self._connection.is_open:
            self._connection = SimConnection(self._stage.broker, self.name)
        return self._connection

    async def while_stopped(self) -> None:
        """Wait as long as it is stopped."""
        left_s = self._stopped_until - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def pause(self) -> None:
        """Back off as clients do."""
        await asyncio.sleep(self._rng.uniform(0.02, 0.2))


def part_name(part: Part) -> str:
    """As a history writes it."""
    return f"{part[0]}:{part[1]}"
