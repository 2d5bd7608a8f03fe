"""Calling a handler: a function in the worker's thread, a coroutine on the app's loop."""

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, cast

from oncelog.apps.errors import Closed
from oncelog.apps.listener import Handler
from oncelog.apps.record import Record
from oncelog.apps.sends import Sends

_STEP_S: Final = 1.0


class Calls:
    """Calls one handler; what it sends goes where the call says."""

    def __init__(
        self,
        handler: Handler,
        current: ContextVar[Sends | None],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        """`loop` runs in another thread; a handler that is no coroutine function needs none."""
        self._handler = handler
        self._current = current
        self._loop = loop

    def __call__(self, record: Record, sends: Sends) -> None:
        """Returns when the handler has."""
        if self._loop is None:
            self._sync(record, sends)
        else:
            self._wait(self._async(record, sends), self._loop)

    def _sync(self, record: Record, sends: Sends) -> None:
        token = self._current.set(sends)
        try:
            self._handler(record)
        finally:
            self._current.reset(token)

    async def _async(self, record: Record, sends: Sends) -> None:
        self._current.set(sends)  # in the context of this task, which ends with it
        await cast(Awaitable[None], self._handler(record))  # it is a coroutine function

    def _wait(self, call: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
        future = asyncio.run_coroutine_threadsafe(call, loop)
        while not future.done():
            try:
                future.result(_STEP_S)
            except TimeoutError:
                # Its own, or ours: then we wait on, unless nobody runs it any more.
                if not future.done() and not loop.is_running():
                    raise Closed("The loop that the handler ran on has ended.") from None
        future.result()
