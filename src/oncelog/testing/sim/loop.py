"""Virtual time: an event loop that never waits.

When nothing is ready the loop jumps to its next timer. Callbacks and tasks belong to the process
that started them, a context variable, so that a crash can end exactly what a broker was doing.
"""

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from oncelog.core.types import Now

T = TypeVar("T")

#: Where simulated wall time begins: some day in 2024.
WALL_START_MS = 1_720_000_000_000


class Stalled(Exception):
    """Everybody waits and no timer is left: the simulation cannot go on."""


class Process:
    """Something that can crash: its tasks end with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.tasks: dict[asyncio.Task[Any], None] = {}


_current: ContextVar[Process | None] = ContextVar("process", default=None)


@contextlib.contextmanager
def as_process(process: Process) -> Iterator[None]:
    """What is started in here belongs to this process."""
    token = _current.set(process)
    try:
        yield
    finally:
        _current.reset(token)


class _VirtualSelector(selectors.BaseSelector):
    """Answers at once, and lets the loop's time pass instead of waiting."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stalled("nothing is ready and no timer is set")
        self.time_s += max(timeout, 0.0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self.failures: list[str] = []
        self.set_task_factory(_make_task)  # type: ignore[arg-type] # the stub names its arguments
        self.set_exception_handler(self._on_exception)

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._virtual.time_s

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        process = _current.get()
        if process is None or process.is_alive:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = _current.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task


def crash(process: Process) -> None:
    """End everything that the process was doing."""
    process.is_alive = False
    for task in list(process.tasks):
        task.cancel()


class SimClock:
    """Wall and monotonic time from the loop; the wall clock can be moved."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.wall_shift_ms = 0

    def now(self) -> Now:
        """This virtual instant."""
        monotonic_ms = int(self._loop.time() * 1000)
        return Now(WALL_START_MS + self.wall_shift_ms + monotonic_ms, monotonic_ms)

    def precise_s(self) -> float:
        """This virtual instant, in seconds."""
        return self._loop.time()


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a simulation to its end."""
    loop = SimLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main(loop))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
