"""A listener for those who watch: GET /metrics and GET /healthz, over plain HTTP.

One request for each connection, small and soon, or it is closed: whoever watches the broker must
not be able to hold it up. It knows nothing of what the page says.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

#: A request line with its headers; what is longer is not for us.
MAX_HEAD_BYTES: Final = 8 << 10
#: How long a whole exchange may take.
TIMEOUT_S: Final = 10.0
#: How many may ask at the same time.
MAX_WATCHERS: Final = 32

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
TEXT_TYPE: Final = "text/plain; charset=utf-8"


class MetricsListener:
    """Serves the page that `page` makes."""

    def __init__(self, page: Callable[[], Awaitable[str]]) -> None:
        self._page = page
        self._server: asyncio.Server | None = None
        self._watchers: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises OSError where that is not possible."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the door, and the connections of those who are inside."""
        if self._server is not None:
            self._server.close()
        for task in list(self._watchers):
            task.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        if len(self._watchers) >= MAX_WATCHERS:
            writer.transport.abort()
            return
        self._watchers.add(task)
        try:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(TIMEOUT_S):
                    await self._exchange(reader, writer)
        finally:
            self._watchers.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        writer.write(await self._answer(head))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response("400 Bad Request", "this is not HTTP/1.1\n")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "only GET and HEAD\n", allow="GET, HEAD")
        is_head = method == "HEAD"
        match path:
            case "/metrics":
                return _response("200 OK", await self._page(), METRICS_TYPE, is_head=is_head)
            case "/healthz":
                return _response("200 OK", "ok\n", is_head=is_head)
            case _:
                return _response("404 Not Found", "try /metrics or /healthz\n", is_head=is_head)


def _response(
    status: str, text: str, kind: str = TEXT_TYPE, *, is_head: bool = False, allow: str = ""
) -> bytes:
    body = text.encode()
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if allow:
        lines.append(f"Allow: {allow}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    return head if is_head else head + body
