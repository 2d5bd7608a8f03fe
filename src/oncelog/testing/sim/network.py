"""A network of connections that delay, hold back, cut and forget.

Order is kept inside one connection and nowhere else. The broker's end is the real `Connection`; the
other end is whatever a simulated client is made of. A client that hangs up is gone at once, but what
it sent still arrives, perhaps long after; a connection that is cut loses what is on its way.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from oncelog.testing.sim.loop import Process, as_process

#: Into so many pieces one message may fall.
MOST_PIECES: Final = 16
#: Requests that a network may deliver once more although their sender has gone, by API key: all
#: that say whose they are. A late copy of any other does just what it says (OffsetCommit).
REPEATABLE: Final = frozenset({0, 22, 24, 25, 26, 28})
#: So many of the last requests of a connection may come again.
REPEATED: Final = 3


class Peer(Protocol):
    """The client's end."""

    def received(self, data: bytes) -> None:
        """Bytes have come from the broker."""

    def awaits(self, correlation_id: int) -> bool:
        """Whether the answer to this request has not come yet."""

    def lost(self) -> None:
        """The connection is gone."""


@dataclass(slots=True)
class Weather:
    """How the network is at the moment, for everybody."""

    #: How long a message takes, at most.
    max_delay_s: float = 0.005
    #: Messages arrive in pieces of this size; None: whole.
    piece_bytes: int | None = None
    #: Whether the last requests of those who hang up come again.
    repeats: bool = False
    #: Clients that are cut off, and until when: nothing gets through, all of it arrives afterwards.
    cut_off: dict[str, float] = field(default_factory=dict)
    #: Called whenever bytes arrive at the broker or leave it.
    on_step: Callable[[], None] = lambda: None


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
        """End the connection, once what was sent has arrived."""
        self._link.close_by_broker()

    def abort(self) -> None:
        """End the connection."""
        self._link.cut()

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return not self._link.is_open


class _Lane:
    """One direction of a connection: what is sent arrives later, in order. None is the end."""

    def __init__(self, arrive: Callable[[bytes | None], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrive = arrive
        self._queue: deque[tuple[float, bytes | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_at = 0.0
        #: What is sent is lost from now on.
        self.is_mute = False

    def send(self, data: bytes | None, at: float) -> None:
        """Let it arrive at that time, or as soon as all before it has."""
        if self.is_mute:
            return
        self._last_at = max(self._last_at, at)
        self._queue.append((self._last_at, data))
        if self._timer is None:
            self._timer = self._loop.call_at(self._last_at, self._next)

    def hold(self, until: float) -> None:
        """Whatever is on its way stays there until then."""
        self._last_at = max(self._last_at, until)
        self._queue = deque((max(at, until), data) for at, data in self._queue)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._queue[0][0], self._next)

    def head(self) -> bytes | None:
        """What would arrive next."""
        return self._queue[0][1] if self._queue else None

    def clear(self) -> None:
        """What is on its way is lost."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        _, data = self._queue.popleft()
        self._timer = None
        if self._queue:
            self._timer = self._loop.call_at(self._queue[0][0], self._next)
        self._arrive(data)


class Link:
    """One connection between a client and a broker process."""

    def __init__(
        self,
        process: Process,
        protocol: asyncio.BufferedProtocol,
        peer: Peer,
        rng: Random,
        *,
        client: str = "",
        weather: Weather | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._protocol = protocol
        self._peer = peer
        self._rng = rng
        self._weather = weather or Weather()
        self._inbound = _Lane(self._arrive)
        self._outbound = _Lane(self._hand_over)
        self._waiting: deque[bytes | None] = deque()
        self._sent: deque[bytes] = deque(maxlen=REPEATED)
        self.client = client
        self.is_open = True
        self.is_paused = False
        self._has_client = True
        with as_process(process):
            protocol.connection_made(SimTransport(self))

    @property
    def has_client(self) -> bool:
        """Whether somebody is at the other end."""
        return self.is_open and self._has_client

    # --- what both ends do --------------------------------------------------------------------------

    def to_broker(self, data: bytes) -> None:
        """The client sends."""
        if int.from_bytes(data[4:6], "big") in REPEATABLE:
            self._sent.append(data)
        for piece in self._pieces(data):
            self._inbound.send(piece, self._arrival())

    def to_client(self, data: bytes) -> None:
        """The broker sends."""
        if self._process.is_alive and self._has_client:
            self._weather.on_step()
        if self._process.is_alive and self._has_client:
            for piece in self._pieces(data):
                self._outbound.send(piece, self._arrival())

    def hang_up(self) -> None:
        """The client goes; what it sent still arrives, and perhaps a part of it twice."""
        if not self.has_client:
            return
        self._has_client = False
        self._outbound.clear()
        self._loop.call_soon(self._peer.lost)
        if self._weather.repeats:
            # Not what was answered: inside of a connection nothing overtakes what was sent later.
            for data in self._sent:
                if not self._peer.awaits(int.from_bytes(data[8:12], "big")):
                    continue
                self._inbound.send(data, self._loop.time() + self._rng.uniform(0, 3))
        self._inbound.send(None, self._arrival())

    def close_by_broker(self) -> None:
        """The broker goes, after what it sent."""
        if not self.is_open:
            return
        self._end_at_broker()
        if self._has_client:
            self._outbound.send(None, self._arrival())

    # --- what the network does ----------------------------------------------------------------------

    def cut(self) -> None:
        """Both ends lose the connection; what is on its way is lost."""
        if not self.is_open:
            return
        self._inbound.clear()
        self._outbound.clear()
        self._end_at_broker()
        if self._has_client:
            self._has_client = False
            self._loop.call_soon(self._peer.lost)

    def reset(self) -> None:
        """As `cut`, but a part of what was on its way to the broker arrives before."""
        head = self._inbound.head()
        if head and self.is_open and self._process.is_alive:
            self._arrive(head[: self._rng.randint(1, len(head))])
        self.cut()

    def mute(self, *, inbound: bool, outbound: bool) -> None:
        """What is sent from now on is lost, and neither end is told."""
        self._inbound.is_mute = self._inbound.is_mute or inbound
        self._outbound.is_mute = self._outbound.is_mute or outbound

    def hold(self, until: float) -> None:
        """Nothing arrives before that time."""
        self._inbound.hold(until)
        self._outbound.hold(until)

    def _arrival(self) -> float:
        weather = self._weather
        at = self._loop.time() + self._rng.uniform(0, weather.max_delay_s)
        return max(at, weather.cut_off.get(self.client, 0.0)) if weather.cut_off else at

    def _pieces(self, data: bytes) -> list[bytes]:
        size = self._weather.piece_bytes
        if size is None or len(data) <= size:
            return [data]
        size = max(size, -(-len(data) // MOST_PIECES))
        return [data[start : start + size] for start in range(0, len(data), size)]

    # --- arriving -----------------------------------------------------------------------------------

    def _arrive(self, data: bytes | None) -> None:
        self._weather.on_step()
        self._waiting.append(data)
        self.deliver_waiting()

    def deliver_waiting(self) -> None:
        """Hand what has arrived to the broker, as long as it reads."""
        while self._waiting and self.is_open and not self.is_paused and self._process.is_alive:
            data = self._waiting.popleft()
            if data is None:
                self._end_at_broker()
            else:
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

    def _hand_over(self, data: bytes | None) -> None:
        if not self._has_client:
            return
        if data is None:
            self._has_client = False
            self._peer.lost()
        else:
            self._peer.received(data)

    def _end_at_broker(self) -> None:
        self.is_open = False
        if self._process.is_alive:
            with as_process(self._process):
                self._loop.call_soon(self._protocol.connection_lost, None)
