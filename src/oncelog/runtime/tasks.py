"""Tasks that run beside requests, and their one owner."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Keeps every task that was started here until it ends, or until all are told to."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something from the next turn of the event loop on."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Cancel what still runs, and wait for its end."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
