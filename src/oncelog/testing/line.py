"""One client's connection through the proxy: frames in both directions, and what happens to them.

Frames are taken from a socket as they come and passed on in order, each when it is due: a delay holds
up what is behind it no longer than itself, as a long wire would.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from oncelog.client.addresses import Address
from oncelog.client.errors import BadReply
from oncelog.client.frames import FrameReader
from oncelog.testing.faults import (
    Cut,
    Delay,
    Effect,
    HalfClose,
    Hold,
    Lose,
    Moment,
    NetworkFault,
    Peer,
    Repeat,
    RequestFault,
    Side,
    Trickle,
)
from oncelog.testing.injection import Injection
from oncelog.wire.frame import BadFrame, RequestHeader

READ_BYTES: Final = 1 << 16
#: Frames that wait for their moment in one direction of a connection; then its peer waits too.
WAITING_MAX: Final = 64
#: How long the reply to a request that was held is waited for before the client's end is passed on.
HELD_REPLY_S: Final = 5.0
TRICKLE_STEP_S: Final = 0.05
#: How long a peer may take to read what it was sent before the end.
CLOSE_S: Final = 1.0


class Active:
    """A fault in force, as the network sees it."""

    def __init__(self, injection: Injection[NetworkFault]) -> None:
        self.injection = injection
        self.over = asyncio.Event()


class Network(Protocol):
    """What a line asks the proxy."""

    @property
    def flow(self) -> asyncio.Event:
        """Set while bytes pass at all."""

    def struck_by(self, request: RequestHeader) -> list[Active]:
        """The faults that happen to this request, counted."""


@dataclass(frozen=True, slots=True)
class _Pace:
    """So many bytes a second, while the fault lasts."""

    bytes_per_second: int
    active: Active


@dataclass(slots=True)
class _Struck:
    """The effects on one request and its reply."""

    strikes: list[tuple[Active, Effect]] = field(default_factory=list)
    correlation_id: int | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    is_copy: bool = False

    def delay_s(self, side: Side) -> float:
        """How long the frame of this side takes."""
        return sum(
            active.injection.draw(effect.seconds)
            for active, effect in self.strikes
            if isinstance(effect, Delay) and effect.side is side
        )

    def pace(self, side: Side) -> "_Pace | None":
        """How slowly the frame of this side arrives; None at once."""
        paces = [
            _Pace(effect.bytes_per_second, active)
            for active, effect in self.strikes
            if isinstance(effect, Trickle) and effect.side is side
        ]
        return min(paces, key=lambda pace: pace.bytes_per_second, default=None)

    def has(self, wanted: Effect) -> bool:
        """Whether this happens to it."""
        return any(effect == wanted for _, effect in self.strikes)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame on its way, its size in front."""

    data: bytes
    struck: _Struck
    due_at_s: float


class _Reset(Exception):
    """The connection ends here, for both sides."""


class Line:
    """A client's connection and its counterpart to the broker."""

    def __init__(
        self, network: Network, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._network = network
        self._from_client = reader
        self._to_client = writer
        self._requests: asyncio.Queue[_Frame | None] = asyncio.Queue(WAITING_MAX)
        self._replies: asyncio.Queue[_Frame | None] = asyncio.Queue(WAITING_MAX)
        #: Requests that the broker has and has not answered, oldest first.
        self._pending: deque[_Struck] = deque()
        self._is_cut = asyncio.Event()
        #: The fault since which the client hears nothing.
        self.silenced_by: Active | None = None

    def reset(self) -> None:
        """End the connection at once, on both sides."""
        self._is_cut.set()

    async def serve(self, target: Address | None) -> None:
        """Pass frames until one side has ended."""
        ends = [self._to_client]
        try:
            with contextlib.suppress(OSError):
                await self._join(target, ends)
        finally:
            for writer in ends:
                await _end(writer, at_once=self._is_cut.is_set())

    async def _join(self, target: Address | None, ends: list[asyncio.StreamWriter]) -> None:
        cut = asyncio.ensure_future(self._is_cut.wait())
        tasks: list[asyncio.Future[Any]] = [cut, asyncio.ensure_future(self._network.flow.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if target is None or cut.done():
                return
            from_broker, to_broker = await asyncio.open_connection(*target)
            ends.append(to_broker)
            passing = [
                asyncio.ensure_future(self._pass_requests(to_broker)),
                asyncio.ensure_future(self._pass_replies()),
            ]
            tasks += passing
            tasks.append(asyncio.ensure_future(self._take_requests()))
            tasks.append(asyncio.ensure_future(self._take_replies(from_broker)))
            await asyncio.wait([cut, *passing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            if any(isinstance(each, _Reset) for each in ended):
                self.reset()

    # --- from the client to the broker ------------------------------------------------------------

    async def _take_requests(self) -> None:
        frames, last_due_s = FrameReader(), 0.0
        try:
            while data := await self._from_client.read(READ_BYTES):
                for frame in frames.feed(data):
                    struck = self._strike(frame)
                    last_due_s = max(last_due_s, _now_s() + struck.delay_s(Side.REQUEST))
                    await self._requests.put(_Frame(_sized(frame), struck, last_due_s))
        except (OSError, BadReply):
            pass  # It is not Kafka that is spoken, or the client is gone.
        await self._requests.put(None)

    def _strike(self, frame: memoryview) -> _Struck:
        try:
            header = RequestHeader(frame)
        except BadFrame:
            return _Struck()
        struck = _Struck(correlation_id=header.correlation_id)
        for active in self._network.struck_by(header):
            fault = active.injection.fault
            assert isinstance(fault, RequestFault), "only these are for requests"
            struck.strikes.append((active, fault.effect))
        return struck

    async def _pass_requests(self, to_broker: asyncio.StreamWriter) -> None:
        while (frame := await self._requests.get()) is not None:
            await self._until(frame.due_at_s)
            await self._pass_request(frame, to_broker)

    async def _pass_request(self, frame: _Frame, to_broker: asyncio.StreamWriter) -> None:
        struck = frame.struck
        is_held = False
        for active, effect in struck.strikes:
            match effect:
                case Hold():
                    is_held = True
                    await active.over.wait()
                case Cut(Moment.BEFORE):
                    raise _Reset
                case Cut(Moment.WITHIN_REQUEST):
                    to_broker.write(_half(frame.data))
                    await to_broker.drain()
                    raise _Reset
                case _:
                    pass
        self._pending.append(struck)
        await _write(to_broker, frame.data, struck.pace(Side.REQUEST))
        if struck.has(Repeat()):
            self._pending.append(_Struck(correlation_id=struck.correlation_id, is_copy=True))
            await _write(to_broker, frame.data, None)
        for active, effect in struck.strikes:
            match effect:
                case HalfClose(Peer.BROKER):
                    to_broker.write_eof()
                case HalfClose(Peer.CLIENT):
                    self._to_client.write_eof()
                    self.silenced_by = active
                case _:
                    pass
        if is_held:
            # Its client may be gone: the broker shall have carried it out before it hears of that.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(struck.answered.wait(), HELD_REPLY_S)

    # --- from the broker to the client ------------------------------------------------------------

    async def _take_replies(self, from_broker: asyncio.StreamReader) -> None:
        frames, last_due_s = FrameReader(), 0.0
        try:
            while data := await from_broker.read(READ_BYTES):
                for frame in frames.feed(data):
                    struck = self._asked(int.from_bytes(frame[:4], "big", signed=True))
                    struck.answered.set()
                    last_due_s = max(last_due_s, _now_s() + struck.delay_s(Side.REPLY))
                    await self._replies.put(_Frame(_sized(frame), struck, last_due_s))
        except (OSError, BadReply):
            pass
        await self._replies.put(None)

    def _asked(self, correlation_id: int) -> _Struck:
        """The request that is answered; those before it have no answer (acks=0)."""
        if any(each.correlation_id == correlation_id for each in self._pending):
            while (oldest := self._pending.popleft()).correlation_id != correlation_id:
                pass
            return oldest
        return _Struck()

    async def _pass_replies(self) -> None:
        while (frame := await self._replies.get()) is not None:
            await self._until(frame.due_at_s)
            await self._pass_reply(frame)

    async def _pass_reply(self, frame: _Frame) -> None:
        for active, effect in frame.struck.strikes:
            match effect:
                case Lose():
                    self.silenced_by = active
                case Cut(Moment.AFTER):
                    raise _Reset
                case Cut(Moment.WITHIN_REPLY):
                    self._to_client.write(_half(frame.data))
                    await self._to_client.drain()
                    raise _Reset
                case _:
                    pass
        if self.silenced_by is None and not frame.struck.is_copy:
            await _write(self._to_client, frame.data, frame.struck.pace(Side.REPLY))

    async def _until(self, due_at_s: float) -> None:
        if (wait_s := due_at_s - _now_s()) > 0:
            await asyncio.sleep(wait_s)
        await self._network.flow.wait()


async def _end(writer: asyncio.StreamWriter, *, at_once: bool) -> None:
    """Close, and see to it that nothing is left: what the peer does not read is dropped."""
    if at_once:
        writer.transport.abort()
    else:
        writer.close()
    with contextlib.suppress(OSError):
        try:
            await asyncio.wait_for(writer.wait_closed(), CLOSE_S)
        except TimeoutError:
            writer.transport.abort()


async def _write(writer: asyncio.StreamWriter, data: bytes, pace: _Pace | None) -> None:
    while pace is not None and data and not pace.active.over.is_set():
        step = max(1, int(pace.bytes_per_second * TRICKLE_STEP_S))
        writer.write(data[:step])
        await writer.drain()
        await asyncio.sleep(step / pace.bytes_per_second)
        data = data[step:]
    writer.write(data)
    await writer.drain()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _sized(frame: memoryview) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _half(data: bytes) -> bytes:
    """More than the size and the header, less than the whole, where there is so much."""
    return data[: max(1, len(data) * 2 // 3)]
