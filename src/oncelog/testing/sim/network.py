"""A network of connections that delay, cut and forget.

Order is kept inside one connection and nowhere else. The broker's end is the real `Connection`; the
other end is whatever a simulated client is made of.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from oncelog.testing.sim.loop import Process, as_process


class Peer(Protocol):
    """The client's end."""

    def received(self, data: bytes) -> None:
        """Bytes have come from the broker."""

    def lost(self) -> None:
        """The connection is gone."""


class SimTransport(asyncio.Transport):
    """The broker's end of a connection, as its protocol sees it."""

    def __init__(self, link: "Link") -> None:
        super().__init__()
        self._link = link

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Where the client is."""
        return ("127.0.0.1", 0) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The simulated network takes everything."""

    def write(self, data: Any) -> None:
        """Send to the client."""
        self._link.to_client(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        """Send to the client."""
        self._link.to_client(b"".join(list_of_data))

    def pause_reading(self) -> None:
        """Hold back what the client sends."""
        self._link.is_paused = True

    def resume_reading(self) -> None:
        """Go on with what the client sent."""
        self._link.is_paused = False
        self._link.deliver_waiting()

    def close(self) -> None:
        """End the connection."""
        self._link.cut()

    def abort(self) -> None:
        """End the connection."""
        self._link.cut()

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return not self._link.is_open


class Link:
    """One connection between a client and a broker process."""

    def __init__(
        self, process: Process, protocol: asyncio.BufferedProtocol, peer: Peer, rng: Random
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._protocol = protocol
        self._peer = peer
        self._rng = rng
        self._inbound_at = 0.0
        self._outbound_at = 0.0
        self._waiting: list[bytes] = []
        self.is_open = True
        self.is_paused = False
        self.max_delay_s = 0.005
        with as_process(process):
            protocol.connection_made(SimTransport(self))

    def to_broker(self, data: bytes) -> None:
        """The client sends."""
        self._inbound_at = self._later(self._inbound_at, self._deliver, data)

    def to_client(self, data: bytes) -> None:
        """The broker sends."""
        if self._process.is_alive:
            self._outbound_at = self._later(self._outbound_at, self._hand_over, data)

    def _later(self, not_before: float, act: Callable[[bytes], None], data: bytes) -> float:
        at = max(not_before, self._loop.time() + self._rng.uniform(0, self.max_delay_s))
        self._loop.call_at(at, act, data)
        return at

    def _deliver(self, data: bytes) -> None:
        self._waiting.append(data)
        self.deliver_waiting()

    def deliver_waiting(self) -> None:
        """Hand what has arrived to the broker, as long as it reads."""
        while self._waiting and self.is_open and not self.is_paused and self._process.is_alive:
            data = self._waiting.pop(0)
            with as_process(self._process):
                self._feed(data)

    def _feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self.is_open:
            buffer = memoryview(self._protocol.get_buffer(len(view)))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            self._protocol.buffer_updated(count)

    def _hand_over(self, data: bytes) -> None:
        if self.is_open:
            self._peer.received(data)

    def cut(self) -> None:
        """Both ends lose the connection; what is on its way is lost."""
        if not self.is_open:
            return
        self.is_open = False
        if self._process.is_alive:
            with as_process(self._process):
                self._loop.call_soon(self._protocol.connection_lost, None)
        self._loop.call_soon(self._peer.lost)
