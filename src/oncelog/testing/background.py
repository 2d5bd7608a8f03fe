"""An event loop in a thread of its own, so that any test may use what lives on it."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

JOIN_TIMEOUT_S: Final = 10.0


class BackgroundLoop:
    """Runs until it is closed; work is handed to it from any other thread."""

    def __init__(self, name: str) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], *, timeout_s: float) -> T:
        """Run a coroutine on the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def close(self) -> None:
        """End the loop and its thread; whatever is still on it is dropped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop that a broker runs on: uvloop where it is installed."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
