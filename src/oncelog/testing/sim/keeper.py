"""Whoever starts the broker again after whatever ended it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from oncelog.core.errors import BrokerError
from oncelog.testing.sim.steps import Step, Steps
from oncelog.testing.sim.world import SimBroker

#: How long after a start that failed the next is tried.
RETRY_S: Final = 0.3
#: A broker that still does not start after so many tries never will.
TRIES: Final = 100


class NeverStarted(Exception):
    """The broker does not start any more."""


class Keeper:
    """Keeps one broker running."""

    def __init__(self, broker: SimBroker, steps: Steps) -> None:
        self._broker = broker
        self._steps = steps
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the broker for the first time."""
        self._begin(self._start_after(0.0))

    def end(self, how: Callable[[], None], *, down_s: float, again_after: int = 0) -> None:
        """End the broker now and start it later; `again_after` steps of the disk end it once more."""
        if self._work is not None:
            self._work.cancel()
        how()
        if again_after:
            self._steps.after(
                Step.DISK, again_after, lambda: self.end(self._broker.crash, down_s=down_s)
            )
        self._begin(self._start_after(down_s))

    def stop(self, *, down_s: float, cut_after: int = 0) -> None:
        """Stop the broker in order and start it later; `cut_after` steps of the disk cut that short."""
        if not self._broker.is_up:
            return
        if cut_after:
            self._steps.after(
                Step.DISK, cut_after, lambda: self.end(self._broker.crash, down_s=down_s)
            )
        self._begin(self._stop_and_start(down_s))

    async def settle(self) -> None:
        """Wait until the broker is up."""
        while self._work is not None and not self._work.done():
            await asyncio.wait([self._work])
        if self._work is not None and not self._work.cancelled():
            self._work.result()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._work is not None:
            self._work.cancel()
        self._work = asyncio.get_running_loop().create_task(work)

    async def _stop_and_start(self, down_s: float) -> None:
        try:
            await self._broker.stop()
        except (OSError, BrokerError):
            pass  # An orderly stop that fails is none.
        if self._work is asyncio.current_task():
            self._broker.kill()
            await self._start_after(down_s)

    async def _start_after(self, down_s: float) -> None:
        await asyncio.sleep(down_s)
        why: Exception | None = None
        for _ in range(TRIES):
            try:
                await self._broker.start()
            except (OSError, BrokerError) as error:
                if self._work is not asyncio.current_task():
                    return  # It was ended while it started, and somebody else sees to it.
                # No room, or a disk that fails: the next start finds what this one left.
                why = error
                self._broker.kill()
                await asyncio.sleep(RETRY_S)
            else:
                return
        raise NeverStarted(f"the broker failed to start {TRIES} times, the last time with: {why}")
