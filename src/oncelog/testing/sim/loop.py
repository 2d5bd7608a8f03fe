"""Virtual time: an event loop that never waits.

When nothing is ready the loop jumps to its next timer. Callbacks and tasks belong to the process
that started them, a context variable, so that a crash can end exactly what a broker was doing. With
a random source, whatever is ready at one moment runs in an order that the seed decides.
"""

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import Context, ContextVar
from random import Random
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

    def forget(self, task: "asyncio.Task[Any]") -> None:
        """A task is done; what became of those that were cut off is nobody's business."""
        if self.is_alive:
            self.tasks.pop(task, None)


_current: ContextVar[Process | None] = ContextVar("process", default=None)


@contextlib.contextmanager
def as_process(process: Process | None) -> Iterator[None]:
    """What is started in here belongs to this process, or to nobody."""
    token = _current.set(process)
    try:
        yield
    finally:
        _current.reset(token)


class _VirtualSelector(selectors.BaseSelector):
    """Answers at once, and lets the loop's time pass instead of waiting."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self.time_s = 0.0
        self._turn = turn

    def select(self, timeout: float | None = None) -> list[Any]:
        self._turn()
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

    def __init__(self, rng: Random | None = None) -> None:
        """`rng` decides in which order ready callbacks run; without it they run as they came."""
        self._virtual = _VirtualSelector(self._turn)
        self._rng = rng
        super().__init__(self._virtual)
        self.failures: list[str] = []
        #: All that ever ran: what a dead one left undone is not collected, and reported, at some
        #: moment that the seed does not decide.
        self.processes: dict[Process, None] = {}
        #: Called at each turn of the loop, before what is ready runs.
        self.on_turn: Callable[[], None] = _nothing
        self.set_task_factory(_make_task)  # type: ignore[arg-type] # the stub names its arguments
        self.set_exception_handler(self._on_exception)

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._virtual.time_s

    def call_at(  # type: ignore[override] # the stub ties the arguments to the callback
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As any loop's; but the timers of a process end with it."""
        process = _current.get() if context is None else context.get(_current)
        if process is not None:
            return super().call_at(when, _if_alive, process, callback, args, context=context)
        return super().call_at(when, callback, *args, context=context)

    def _turn(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined] # a deque; no stub names it
        if self._rng is not None and len(ready) > 1:
            shuffled = list(ready)
            self._rng.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        self.on_turn()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        handle = context.get("handle")
        # What a callback raised is reported outside of the context that it ran in.
        process = _current.get() if handle is None else handle._context.get(_current)
        if process is None or process.is_alive:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")


def _nothing() -> None:
    pass


def _if_alive(process: Process, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
    if process.is_alive:
        callback(*args)


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = _current.get()
    if process is not None:
        assert isinstance(loop, SimLoop), "processes are simulated"
        loop.processes[process] = None
        process.tasks[task] = None
        task.add_done_callback(process.forget)
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


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, rng: Random | None = None) -> T:
    """Run a simulation to its end."""
    loop = SimLoop(rng)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main(loop))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
