"""An event loop of its own for code that is not asynchronous: Spark's driver, its tasks, callbacks."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """A loop in a thread, which ends with the process or with `close`."""

    def __init__(
        self, make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    ) -> None:
        """The loop starts at once."""
        self._loop = make()
        self._thread = threading.Thread(target=self._loop.run_forever, name="oncelog", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin something on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on the loop and wait; an interrupt of the caller ends it there as well."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, and end the loop."""
        if self._loop.is_closed():
            return
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
