"""A broker of a few lines that answers what a test tells it to, over a real socket."""

import asyncio
import functools
import ssl
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from oncelog.wire.codec import decode, encode, is_flexible, skip_tags
from oncelog.wire.messages import request_class, response_class
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.wire.messages.index import NAMES
from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

#: A larger frame makes the broker hang up, as it does a real one.
FRAME_MAX_BYTES = 100 * 1024 * 1024

#: Given a request and its version: a response, or None to stay silent.
Answer = Callable[[Any, int], Any]


def running(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Let a coroutine be a test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), timeout=30))

    return run


class FakeBroker:
    """Answers ApiVersions and Metadata by itself; the rest is `answers`, by API key."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.answers: dict[int, Answer] = {18: self.api_versions, 3: self.metadata}
        self.versions = {key: request_class(key).VERSIONS for key in NAMES}
        self.topics: list[Any] = []
        #: Every request that came: the message and its version.
        self.seen: list[tuple[Any, int]] = []
        self.client_ids: set[str] = set()
        self.port = 0
        self.connection_count = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def api_versions(self, request: Any, version: int) -> Any:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=found[0], max_version=found[-1])
                for key, found in self.versions.items()
            ]
        )

    def metadata(self, request: Any, version: int) -> Any:
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(
            brokers=[broker], cluster_id="fake", controller_id=1, topics=self.topics
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            if size > FRAME_MAX_BYTES:
                return
            frame = await reader.readexactly(size)
            reply = await self._reply(frame)
            if isinstance(reply, Exception):
                return
            if reply is not None:
                writer.write(len(reply).to_bytes(4, "big") + reply)
                await writer.drain()

    async def _reply(self, frame: bytes) -> bytes | Exception | None:
        api_key, version, correlation_id, name_size = struct.unpack_from(">hhih", frame)
        self.client_ids.add(frame[10 : 10 + name_size].decode())
        cls = request_class(api_key)
        position = 10 + name_size
        if is_flexible(cls, version):
            position = skip_tags(memoryview(frame), position)
        request = decode(cls, version, frame, position)
        self.seen.append((request, version))
        answer = self.answers[api_key](request, version)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None or isinstance(answer, Exception):
            return answer
        header = struct.pack(">i", correlation_id)
        if isinstance(answer, bytes):
            return header + answer
        if api_key != 18 and is_flexible(response_class(api_key), version):
            header += b"\0"
        return header + encode(answer, version)
