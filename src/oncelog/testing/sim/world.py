"""A broker that crashes and comes back, and the wire between it and its clients."""

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from oncelog.client.frames import FrameReader, decode_response, encode_request
from oncelog.runtime.config import BrokerConfig
from oncelog.server.broker import BrokerCore
from oncelog.testing.sim.disk import SimDisk
from oncelog.testing.sim.loop import Process, SimClock, SimLoop, as_process, crash
from oncelog.testing.sim.network import Link, Weather


class Disconnected(Exception):
    """The connection is gone; whether a request was carried out is unknown."""


class SimBroker:
    """One broker on a simulated disk; crashes lose what was not synced."""

    def __init__(self, loop: SimLoop, rng: Random, config: BrokerConfig) -> None:
        self._loop = loop
        self._rng = rng
        self._config = config
        self.disk = SimDisk(rng)
        self.clock = SimClock(loop)
        self.notes: list[object] = []
        self._process = Process("broker-0")
        self._core: BrokerCore | None = None
        self._links: list[Link] = []
        self.weather = Weather()
        self.start_count = 0

    async def start(self) -> None:
        """Recover from the disk and serve."""
        self.start_count += 1
        self._process = Process(f"broker-{self.start_count}")
        with as_process(self._process):
            core = BrokerCore(
                self._config,
                self.disk,
                clock=self.clock,
                fresh_id=self._fresh_id,
                note=self.notes.append,
            )
            await self._loop.create_task(core.open())
        core.node.advertised = ("broker", 9092)
        self._core = core

    def crash(self) -> None:
        """Power off, now. But `flush=os` promises nothing then: only the process dies."""
        if self._config.oncelog_flush == "os":
            self.kill()
            return
        self._end()
        self.disk = self.disk.crash()

    def kill(self) -> None:
        """The process dies, and the machine does not: what it wrote stays, synced or not."""
        self._end()
        self.disk = self.disk.reopened()

    def _end(self) -> None:
        crash(self._process)
        self._core = None
        for link in self._links:
            link.cut()
        self._links = []

    async def stop(self) -> None:
        """An orderly stop."""
        if self._core is not None:
            core, self._core = self._core, None
            with as_process(self._process):
                await self._loop.create_task(core.close())
        crash(self._process)

    @property
    def is_up(self) -> bool:
        """Whether somebody listens."""
        return self._core is not None

    @property
    def core(self) -> BrokerCore:
        """The broker that runs now."""
        assert self._core is not None, "the broker runs"
        return self._core

    def connect(self, client: "SimConnection") -> Link:
        """Open a connection, if somebody listens."""
        if self._core is None:
            raise Disconnected("nobody listens")
        if self.weather.cut_off.get(client.client_id, 0.0) > self._loop.time():
            raise Disconnected("the broker is out of reach")
        with as_process(self._process):
            protocol = self._core.new_connection()
        link = Link(
            self._process,
            protocol,
            client,
            self._rng,
            client=client.client_id,
            weather=self.weather,
        )
        self._links = [known for known in self._links if known.is_open]
        self._links.append(link)
        return link

    def links(self, client: str = "") -> list[Link]:
        """The connections of one client, or of all of them, that have not ended."""
        return [link for link in self._links if link.has_client and client in ("", link.client)]

    def cut_some(self) -> None:
        """Cut a random connection."""
        alive = self.links()
        if alive:
            self._rng.choice(alive).cut()

    def _fresh_id(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128))


class SimConnection:
    """A client's connection: real frames, one answer for each request."""

    def __init__(self, broker: SimBroker, client_id: str) -> None:
        self.client_id = client_id
        self._reader = FrameReader()
        self._pending: dict[int, tuple[int, int, asyncio.Future[Any]]] = {}
        self._last_id = 0
        self._is_lost = False
        self._link = broker.connect(self)

    async def request(self, message: Any, version: int, *, timeout_s: float = 30.0) -> Any:
        """Send a request and wait for its answer."""
        future = self.send(message, version)
        timer = asyncio.get_running_loop().call_later(timeout_s, self._give_up, future, timeout_s)
        try:
            return await future
        finally:
            timer.cancel()

    def _give_up(self, future: asyncio.Future[Any], timeout_s: float) -> None:
        if not future.done():
            future.set_exception(Disconnected(f"no answer within {timeout_s} s"))
            self.close()

    def send(self, message: Any, version: int) -> asyncio.Future[Any]:
        """Send a request without waiting; the future has its answer."""
        self.tell(message, version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[self._last_id] = (message.API_KEY, version, future)
        return future

    def tell(self, message: Any, version: int) -> None:
        """Send a request that will not be answered."""
        if not self.is_open:
            raise Disconnected("the connection is closed")
        self._last_id += 1
        self._link.to_broker(
            encode_request(
                message, version=version, correlation_id=self._last_id, client_id=self.client_id
            )
        )

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        for frame in self._reader.feed(data):
            correlation_id = int.from_bytes(frame[:4], "big")
            api_key, version, future = self._pending.pop(correlation_id)
            if not future.done():
                future.set_result(decode_response(frame, api_key=api_key, version=version))

    def awaits(self, correlation_id: int) -> bool:
        """Whether the answer to this request has not come yet."""
        return correlation_id in self._pending

    def lost(self) -> None:
        """The connection is gone."""
        self._is_lost = True
        for _, _, future in self._pending.values():
            if not future.done():
                future.set_exception(Disconnected("the connection was lost"))
                # Whoever sent several may look at the first failure only.
                future.exception()
        self._pending.clear()

    def close(self) -> None:
        """Hang up."""
        self._is_lost = True
        self._link.hang_up()

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return not self._is_lost and self._link.has_client


async def until(
    condition: Callable[[], bool], *, every_s: float = 0.05, within_s: float = 120.0
) -> None:
    """Wait in virtual time until something is true."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - virtual time: looking again costs nothing
                await asyncio.sleep(every_s)
    assert condition(), f"not true within {within_s} virtual seconds"
