"""One client's connection: frames in, responses out, in order.

Requests are begun in the order in which they arrive. A request whose work is done when its handler
returns (Produce) lets the next one begin while its reply still waits for the disk; any other is
finished first. Replies leave in the order of the requests. Everything that a client can make us
keep is bounded: what it sent and we have not begun, what we answered and it has not read.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from oncelog.api.api_versions import unsupported
from oncelog.api.registry import APIS, Api, Deferred, RequestContext, handler
from oncelog.core.errors import BrokerError, ConnectionSuperseded, UnknownServerError
from oncelog.runtime.node import Node
from oncelog.wire.codec import Buffer, DecodeError, decode, encode_chunks, is_flexible, join_small
from oncelog.wire.errors import error_code
from oncelog.wire.frame import BadFrame, FrameReader, RequestHeader, response_prefix
from oncelog.wire.messages import request_class, response_class
from oncelog.wire.messages.api_versions import ApiVersionsResponse

log = logging.getLogger("oncelog.connection")

PRODUCE: Final = 0
API_VERSIONS: Final = 18
#: Only Produce has a reason to be large; decoded, a request takes a multiple of its size.
MAX_OTHER_BYTES: Final = 16 << 20
#: Above this much unread output a client's requests are left unread too.
WRITE_BUFFER_BYTES: Final = 8 << 20

#: A reply: None while it is not there yet, an empty list where none is sent (acks=0).
Reply = list[Buffer] | None


class _Slot:
    """The place of a reply in the order of replies."""

    __slots__ = ("reply",)

    def __init__(self) -> None:
        self.reply: Reply = None


class Connection(asyncio.BufferedProtocol):
    """Speaks with one client."""

    def __init__(
        self,
        node: Node,
        *,
        opened: Callable[["Connection"], bool],
        closed: Callable[["Connection"], None],
    ) -> None:
        self._node = node
        self._requests = node.metrics.requests
        self._opened = opened
        self._closed = closed
        self._frames = FrameReader(node.config.socket_request_max_bytes)
        self._waiting: deque[Buffer] = deque()
        self._slots: deque[_Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._task: asyncio.Task[None] | None = None
        self._replies: set[asyncio.Task[None]] = set()
        self._is_busy = False
        self._is_paused = False
        self._stall: asyncio.TimerHandle | None = None
        self._half: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self.active_at = 0.0
        #: Connections are counted as they are accepted.
        self.number = 0

    # --- the transport's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here."""
        # uvloop's transports have the methods but not the base class.
        stream = cast(asyncio.Transport, transport)
        self._transport = stream
        peer = stream.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        stream.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.active_at = asyncio.get_running_loop().time()
        if not self._opened(self):
            stream.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self.active_at = asyncio.get_running_loop().time()
        try:
            frames = self._frames.received(nbytes)
        except BadFrame as error:
            self._drop(error)
            return
        if frames or self._half is None:
            self._waiting.extend(frames)
            self._watch_half_frame()
        self._pump()

    def eof_received(self) -> bool:
        """The client sends no more: what it asked for is still answered by closing."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it sent and we did not begin is never begun."""
        self._transport = None
        self._waiting.clear()
        self._slots.clear()
        for timer in (self._stall, self._half):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
        for task in self._replies:
            task.cancel()
        self._closed(self)

    def pause_writing(self) -> None:
        """The client does not read fast enough: neither do we, and not for ever."""
        timeout_s = self._node.config.oncelog_write_stall_timeout_ms / 1000
        self._stall = asyncio.get_running_loop().call_later(timeout_s, self._give_up)
        self._regulate()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self._regulate()
        self._pump()

    def _give_up(self) -> None:
        self._drop(BadFrame("the client does not read its replies"))

    def _watch_half_frame(self) -> None:
        """A frame that has begun must end in time, or its sender only holds our memory.

        The time begins with the frame, not with its newest bytes, and stands still while it is we
        who do not read.
        """
        if self._half is not None:
            self._half.cancel()
            self._half = None
        if self._frames.is_midway and not self._is_paused:
            timeout_s = self._node.config.oncelog_half_frame_timeout_ms / 1000
            self._half = asyncio.get_running_loop().call_later(timeout_s, self._half_expired)

    def _half_expired(self) -> None:
        self._drop(BadFrame("a request did not arrive in time"))

    def _regulate(self) -> None:
        """Read from the client only while there is room for what it may send."""
        if self._transport is None:
            return
        too_many = len(self._slots) + len(self._waiting) >= (
            self._node.config.oncelog_queued_requests_max
        )
        must_pause = too_many or self._stall is not None
        if must_pause and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
            self._watch_half_frame()
        elif self._is_paused and not must_pause:
            self._is_paused = False
            self._transport.resume_reading()
            self._watch_half_frame()

    def _drop(self, error: Exception) -> None:
        log.info("connection closed", extra={"fields": {"peer": self._peer, "why": str(error)}})
        if self._transport is not None:
            self._transport.abort()

    # --- requests -----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin as many requests as may be under way."""
        limit = self._node.config.oncelog_queued_requests_max
        while (
            self._waiting
            and not self._is_busy
            and self._transport is not None
            and self._stall is None
            and len(self._slots) < limit
        ):
            self._begin(self._waiting.popleft())
        self._regulate()

    def _begin(self, frame: Buffer) -> None:
        slot = _Slot()
        self._slots.append(slot)
        try:
            header = RequestHeader(frame)
            api = APIS.get(header.api_key)
            if api is None:
                raise BadFrame(f"API key {header.api_key} is not served")
            if not api.first <= header.version <= api.last:
                self._refuse_version(header, slot)
                return
            if len(frame) > MAX_OTHER_BYTES and api.key != PRODUCE:
                raise BadFrame(f"a {api.name} request of {len(frame)} bytes")
            self._requests[api.key] += 1
            request = self._decode(header, frame)
        except (BadFrame, DecodeError) as error:
            self._drop(error)
            return
        context = RequestContext(api.key, header.version, header.client_id, self._peer, self.number)
        self._call(api, header, request, context, slot)

    def _decode(self, header: RequestHeader, frame: Buffer) -> Any:
        cls = request_class(header.api_key)
        if is_flexible(cls, header.version):
            header.skip_tags(frame)
        return decode(cls, header.version, frame, header.body_start)

    def _refuse_version(self, header: RequestHeader, slot: _Slot) -> None:
        if header.api_key != API_VERSIONS:
            raise BadFrame(f"API {header.api_key} version {header.version} is not served")
        # KIP-511: a client that is newer than we are learns what we speak from a version 0 reply.
        self._fill(slot, _encode(unsupported(), header.correlation_id, 0))

    def _call(
        self, api: Api, header: RequestHeader, request: Any, context: RequestContext, slot: _Slot
    ) -> None:
        """Run the handler; what it leaves to wait for goes on in a task."""
        try:
            result = handler(api.key)(self._node, request, context)
        except BrokerError as error:
            self._fail(header, request, slot, error)
            return
        except ConnectionSuperseded as error:
            self._drop(error)
            return
        except Exception as error:  # The top of the connection: nothing gets past it.
            log.exception("request failed", extra={"fields": {"api": api.name}})
            self._fail(header, request, slot, UnknownServerError(str(error)))
            return
        has_acted = api.acts_at_once and not isinstance(result, Deferred)
        if isinstance(result, Deferred):
            result = result.work
        if not inspect.isawaitable(result):
            self._fill(slot, self._reply_to(header, request, result))
            return
        task = asyncio.get_running_loop().create_task(
            self._finish(result, header, request, slot, api, has_acted=has_acted)
        )
        task.add_done_callback(partial(self._forget, result))
        if has_acted:
            self._replies.add(task)
        else:
            self._is_busy = True
            self._task = task

    def _forget(self, result: Awaitable[Any], task: "asyncio.Task[None]") -> None:
        self._replies.discard(task)
        if task.cancelled() and inspect.iscoroutine(result):
            # A client that hangs up at once ends the task before it has begun to await.
            result.close()

    async def _finish(
        self,
        result: Awaitable[Any],
        header: RequestHeader,
        request: Any,
        slot: _Slot,
        api: Api,
        *,
        has_acted: bool,
    ) -> None:
        try:
            reply = self._reply_to(header, request, await result)
            self._fill(slot, reply)
        except BrokerError as error:
            self._fail(header, request, slot, error)
        except ConnectionSuperseded as error:
            self._drop(error)
        except Exception as error:  # The top of the connection: nothing gets past it.
            log.exception("request failed", extra={"fields": {"api": api.name}})
            self._fail(header, request, slot, UnknownServerError(str(error)))
        finally:
            if not has_acted:
                self._is_busy = False
                self._task = None
        self._pump()
        self._close_if_done()

    def _reply_to(self, header: RequestHeader, request: Any, response: Any) -> list[Buffer]:
        if header.api_key == PRODUCE and request.acks == 0:
            return self._reply_to_acks_0(response)
        return _encode(response, header.correlation_id, header.version)

    def _reply_to_acks_0(self, response: Any) -> list[Buffer]:
        """Nobody waits for this reply; an error is told the only way there is, by closing."""
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    self._drop(BadFrame(f"acks=0: {partition.error_message}"))
        return []

    def _fail(self, header: RequestHeader, request: Any, slot: _Slot, error: BrokerError) -> None:
        """Tell the client in the response's own error field, or by closing where it has none."""
        cls = response_class(header.api_key)
        if "error_code" not in cls.__dataclass_fields__:
            self._drop(error)
            return
        response = cls(error_code=error_code(error))
        self._fill(slot, self._reply_to(header, request, response))

    # --- replies ------------------------------------------------------------------------------------

    def _fill(self, slot: _Slot, reply: list[Buffer]) -> None:
        """A reply is ready: it leaves once all before it have left."""
        slot.reply = reply
        if self._transport is None:
            return
        ready: list[Buffer] = []
        while self._slots and self._slots[0].reply is not None:
            ready += self._slots.popleft().reply or ()
        if ready:
            self._transport.writelines(ready)
        if self._is_paused:
            self._regulate()

    # --- the end ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Finish what is under way, then close; what is not begun is never begun."""
        self._is_stopping = True
        self._waiting.clear()
        if self._transport is not None:
            self._transport.pause_reading()
            self._is_paused = True
        self._close_if_done()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _close_if_done(self) -> None:
        if self._is_stopping and not self._slots and self._transport is not None:
            self._transport.close()


def _encode(response: Any, correlation_id: int, version: int) -> list[Buffer]:
    chunks = encode_chunks(response, version)
    # Clients read the header of this one response before they know what we speak.
    flexible = is_flexible(type(response), version) and not isinstance(
        response, ApiVersionsResponse
    )
    size = sum(map(len, chunks))
    return join_small([response_prefix(correlation_id, size, flexible=flexible), *chunks])
