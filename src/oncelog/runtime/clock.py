"""Where time comes from: the loop for spans, the wall clock for what is stored."""

import asyncio
import time
from typing import Protocol

from oncelog.core.types import Now


class Clock(Protocol):
    """A source of instants."""

    def now(self) -> Now:
        """This instant."""

    def precise_s(self) -> float:
        """Seconds since some moment, fine enough to measure a commit in memory."""


class LoopClock:
    """The running loop's time and the machine's."""

    def now(self) -> Now:
        """This instant."""
        monotonic_ms = int(asyncio.get_running_loop().time() * 1000)
        return Now(int(time.time() * 1000), monotonic_ms)

    def precise_s(self) -> float:
        """Seconds since some moment; a loop's own time stands still while its callbacks run."""
        return time.perf_counter()
