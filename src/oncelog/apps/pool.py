"""The transactional ids of an app: as many transactions at a time as there are ids.

The names are stable, `orders-0-0`, `orders-0-1`, and all of them are taken over when the app starts. So
what an earlier life left open has ended before this one begins, and an older instance that still lives
is fenced in all that it does. That one stops; nobody is ever fenced back.
"""

import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LeaseTimeout
from typing import Final

from oncelog.apps.clients import Clients
from oncelog.apps.errors import Busy, Closed, Fenced, Misconfigured
from oncelog.apps.orphans import fence_orphans
from oncelog.apps.slot import Slot

#: How many producers are opened at a time.
_AT_ONCE: Final = 8


class Pool:
    """Leases slots, first come, first served."""

    def __init__(self, clients: Clients, prefix: str, *, wait_s: float) -> None:
        """`prefix` is what all names begin with."""
        self._clients = clients
        self._prefix = prefix
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._size = 0
        self._free: list[Slot] = []
        self._waiting: deque[Future[Slot]] = deque()
        self._fenced: Fenced | None = None
        self._is_closed = False
        self._process = os.getpid()

    @property
    def fenced(self) -> Fenced | None:
        """Why this instance must stop, if another has taken over."""
        return self._fenced

    def open(self, count: int) -> list[Slot]:
        """Take over so many more ids; they are leased to the caller."""
        numbers = range(self._size, self._size + count)
        slots = [self._slot(number) for number in numbers]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="oncelog-app-start") as threads:
            others = threads.submit(
                fence_orphans, self._clients, f"{self._prefix}-", numbers.stop, wait_s=self._wait_s
            )
            for opened in [threads.submit(slot.open) for slot in slots]:
                opened.result()
            others.result()
        self._size += count
        return slots

    def _slot(self, number: int) -> Slot:
        name = f"{self._prefix}-{number}"
        return Slot(self._clients, name, number=number, wait_s=self._wait_s, on_fenced=self._fence)

    def _fence(self, error: Fenced) -> None:
        with self._lock:
            self._fenced = self._fenced or error
            waiting = list(self._waiting)
            self._waiting.clear()
        for each in waiting:
            if each.set_running_or_notify_cancel():
                each.set_exception(_again(error))

    def lease(self) -> Future[Slot]:
        """A slot, now or when one is free; cancel it, or give the slot back."""
        future: Future[Slot] = Future()
        with self._lock:
            self._check()
            if self._free:
                # The lowest number: two instances under one name meet soon, and few producers are busy.
                slot = min(self._free, key=lambda each: each.number)
                self._free.remove(slot)
                future.set_running_or_notify_cancel()
                future.set_result(slot)
            else:
                self._waiting.append(future)
        return future

    def take(self) -> Slot:
        """A slot, waiting for it for a bounded time."""
        future = self.lease()
        try:
            return future.result(self._wait_s)
        except LeaseTimeout:
            self.give_back(future)
            raise self.busy() from None

    def give_back(self, future: "Future[Slot]") -> None:
        """Nobody waits for this lease any more."""
        if not future.cancel() and future.exception() is None:
            self.release(future.result())

    def release(self, slot: Slot) -> None:
        """Whoever waits longest gets it."""
        with self._lock:
            while self._waiting:
                future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    future.set_result(slot)
                    return
            self._free.append(slot)

    def busy(self) -> Busy:
        """What to tell whoever waited in vain."""
        return Busy(
            f"All {self._size} producers of {self._prefix} were in use for {self._wait_s:g} s: raise "
            f"concurrency, or make transactions shorter."
        )

    def close(self) -> None:
        """No more leases; what is leased is ended by its owner."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for slot in free:
            slot.spoil()

    def _check(self) -> None:
        if self._is_closed:
            raise Closed(f"The app {self._prefix} was closed.")
        if self._fenced is not None:
            raise _again(self._fenced) from self._fenced
        if os.getpid() != self._process:
            raise Misconfigured(
                f"The app {self._prefix} was started in another process, before a fork: start it in "
                f"the process that uses it, with an instance= of its own."
            )


def _again(error: Fenced) -> Fenced:
    # An exception that is raised twice would gather the tracebacks of both.
    return Fenced(str(error))
