"""Producer ids: reserved in blocks, so that one commit serves a thousand producers.

A block is in the metadata log before any id of it is handed out: ids never repeat, whatever crashes.
"""

import asyncio
from collections.abc import Awaitable, Callable

from oncelog.core.metadata.shard import PRODUCER_ID_BLOCK


class ProducerIdSource:
    """Hands out ids that nobody has had before."""

    def __init__(self, allocate_block: Callable[[], Awaitable[int]]) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """A fresh id."""
        while self._next == self._end:
            # One block is enough for all who wait here.
            async with self._lock:
                if self._next == self._end:
                    first = await self._allocate_block()
                    self._next, self._end = first, first + PRODUCER_ID_BLOCK
        self._next += 1
        return self._next - 1
