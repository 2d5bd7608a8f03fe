"""A TCP proxy that delays, holds, cuts, resets and repeats what passes between clients and a broker.

It runs on a loop in a thread of its own, so that any client may use it. Its settings are plain
attributes and take effect with the next bytes that pass.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self

Span = tuple[float, float]


class Proxy:
    """Listens on a port of its own and passes everything on to `target_port`."""

    def __init__(self, target_port: int = 0, *, seed: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        #: How long each piece of a request or reply is on its way.
        self.delay_s: Span = (0.0, 0.0)
        #: How likely each piece is cut at a random byte, and its connection with it.
        self.reset_share = 0.0
        #: How long a connection lives.
        self.life_s: Span | None = None
        #: Whether nobody gets through: new connections are closed as they come.
        self.is_down = False
        #: Whether replies are swallowed: the client waits, the broker has done its work.
        self.swallows_replies = False
        #: Whether each request reaches the broker twice; the second reply is thrown away.
        self.repeats_requests = False
        self.reset_count = 0
        self._rng = Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self._in_loop(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._in_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def address(self) -> str:
        """What clients are given."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End every connection now, on both sides."""
        self._in_loop(self._cut())

    # --- in the loop ----------------------------------------------------------------------------

    def _in_loop(self, action: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(10)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # the transports say goodbye to their sockets

    async def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._tasks.add(task)
        writers = [writer]
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if not self.is_down:
                    await self._join(reader, writer, writers)
        finally:
            for one in writers:
                one.transport.abort()
            self._writers.difference_update(writers)
            self._tasks.discard(task)

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        writers: list[asyncio.StreamWriter],
    ) -> None:
        self._writers.add(writer)
        replies, upstream = await asyncio.open_connection("127.0.0.1", self.target_port)
        writers.append(upstream)
        targets = [upstream]
        pumps = [self._pump(replies, [writer], is_reply=True)]
        if self.repeats_requests:
            echoes, twin = await asyncio.open_connection("127.0.0.1", self.target_port)
            writers.append(twin)
            targets.append(twin)
            pumps.append(self._pump(echoes, [], is_reply=True))
        self._writers.update(writers)
        pumps.append(self._pump(reader, targets, is_reply=False))
        if self.life_s is not None:
            pumps.append(asyncio.sleep(self._rng.uniform(*self.life_s)))
        tasks = [asyncio.ensure_future(pump) for pump in pumps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, targets: list[asyncio.StreamWriter], *, is_reply: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            if self.delay_s[1]:
                await asyncio.sleep(self._rng.uniform(*self.delay_s))
            if is_reply and self.swallows_replies:
                continue
            is_reset = self._rng.random() < self.reset_share
            if is_reset:
                data = data[: self._rng.randrange(len(data))]
            for target in targets:
                target.write(data)
                await target.drain()
            if is_reset:
                self.reset_count += 1
                return
