"""Virtual time: an event loop that never waits.

When nothing is ready the loop jumps to its next timer. Callbacks and tasks belong to the process
that started them, a context variable, so that a crash can end exactly what a broker was doing. With
a random source, whatever is ready at one moment runs in an order that the seed decides.
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
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


class _Handle:
    """A callback that is to run, perhaps at some time, unless it is cancelled."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process", "when_s")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        when_s: float = 0.0,
        process: Process | None = None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.when_s = when_s
        #: With whom it ends.
        self.process = process
        self.is_cancelled = False

    def cancel(self) -> None:
        """It will not run."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it will not run."""
        return self.is_cancelled

    def when(self) -> float:
        """At what virtual time it runs."""
        return self.when_s


class SimLoop(asyncio.BaseEventLoop):
    """An event loop on virtual time.

    It runs callbacks and timers and nothing else, with a queue of its own: most of what a simulation
    does passes through here, and a loop that waits for nobody can be a lot simpler than asyncio's.
    """

    def __init__(self, rng: Random | None = None) -> None:
        """`rng` decides in which order ready callbacks run; without it they run as they came."""
        self._is_running = False
        super().__init__()
        self._rng = rng
        self._time_s = 0.0
        self._soon: list[_Handle] = []
        #: With their times and numbers: what is due at one moment runs in the order that it was set.
        self._timers: list[tuple[float, int, _Handle]] = []
        self._timer_count = 0
        self.failures: list[str] = []
        #: All that ever ran: what a dead one left undone is not collected, and reported, at some
        #: moment that the seed does not decide.
        self.processes: dict[Process, None] = {}
        #: Called at each turn of the loop, before what is ready runs.
        self.on_turn: Callable[[], None] = _nothing

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._time_s

    # --- what is to be done -------------------------------------------------------------------------

    def call_soon(  # type: ignore[override] # the stub ties the arguments to the callback
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        """Run it in the next turn."""
        handle = _Handle(callback, args, copy_context() if context is None else context)
        self._soon.append(handle)
        return handle

    def call_at(  # type: ignore[override] # the stub ties the arguments to the callback
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        """Run it at that time, unless the process that asked for it has ended."""
        context = copy_context() if context is None else context
        handle = _Handle(callback, args, context, when, context.get(_current))
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def call_later(  # type: ignore[override] # as above
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        """Run it after so many virtual seconds, unless the process has ended."""
        return self.call_at(self._time_s + delay, callback, *args, context=context)

    def create_task(  # type: ignore[override] # the stub has overloads for each version
        self, coro: Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        """A task belongs to the process that makes it."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, **options)
        process = _current.get()
        if process is not None:
            self.processes[process] = None
            process.tasks[task] = None
            task.add_done_callback(process.forget)
        return task

    # --- doing it -----------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Take turns until somebody stops it."""
        self._is_running = True
        asyncio._set_running_loop(self)
        try:
            while self._is_running:
                self._turn()
        finally:
            self._is_running = False
            asyncio._set_running_loop(None)

    def stop(self) -> None:
        """End after this turn."""
        self._is_running = False

    def is_running(self) -> bool:
        """Whether it takes turns."""
        return self._is_running

    def _turn(self) -> None:
        """Run whatever is ready at this moment, or else at the next one."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
        if not self._soon:
            if not timers:
                raise Stalled("nothing is ready and no timer is set")
            self._time_s = max(self._time_s, timers[0][0])
        while timers and timers[0][0] <= self._time_s:
            self._soon.append(heappop(timers)[2])
        if self._rng is not None and len(self._soon) > 1:
            self._rng.shuffle(self._soon)
        self.on_turn()
        ready, self._soon = self._soon, []
        for handle in ready:
            process = handle.process
            if not handle.is_cancelled and (process is None or process.is_alive):
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    # Reported as of the process that it ran in.
                    handle.context.run(self._failed, "a callback raised", error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody took fails the run."""
        self._failed(context.get("message"), context.get("exception"))

    def _failed(self, message: object, error: object) -> None:
        process = _current.get()
        if process is None or process.is_alive:
            self.failures.append(f"{message}: {error!r}")


def _nothing() -> None:
    pass


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
    """Run a simulation to its end.

    Nothing is collected meanwhile: that takes a tenth of the time, and whatever an object does when
    it goes would happen at some moment that the seed does not decide.
    """
    loop = SimLoop(rng)
    collects = gc.isenabled()
    gc.disable()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main(loop))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        if collects:
            gc.enable()
