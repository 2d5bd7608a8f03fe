"""A fault in force: how often it has happened, and its end."""

import threading
from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from oncelog.testing.faults import Fault, Requests

F = TypeVar("F", bound=Fault)


class FaultDidNotHappen(AssertionError):
    """What the test is about did not take place."""


class Injection(Generic[F]):
    """What `Broker.fault` returns: it counts, it can be waited for, and it ends.

    In a `with` block the fault lasts as long as the block. Safe to use from any thread.
    """

    def __init__(
        self,
        fault: F,
        requests: Requests,
        *,
        on_hit: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_hit` and `on_end` are told of each time that it happens, and of its end."""
        self.fault = fault
        self._requests = requests
        self._rng = Random(requests.seed)
        self._changed = threading.Condition()
        self._seen_count = 0
        self._hits = 0
        self._is_over = False
        self._on_hit = on_hit
        self._on_end = on_end

    # --- for the test -----------------------------------------------------------------------------

    @property
    def hits(self) -> int:
        """How often it has happened."""
        return self._hits

    @property
    def remaining(self) -> int | None:
        """How often it will still happen; None if there is no limit while it lasts."""
        with self._changed:
            return self._remaining()

    @property
    def is_over(self) -> bool:
        """Whether it has been ended."""
        return self._is_over

    def wait(self, hits: int = 1, *, timeout_s: float = 30.0) -> None:
        """Wait until it has happened so often; it is a failure if that takes longer."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout_s):
                raise FaultDidNotHappen(
                    f"{self.fault.name} happened {self._hits} times and not {hits} "
                    f"within {timeout_s:g} s."
                )

    def end(self) -> None:
        """From now on it does not happen any more, and what it held up goes on."""
        with self._changed:
            if self._is_over:
                return
            self._is_over = True
        self._on_end()

    def __enter__(self) -> "Injection[F]":
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    # --- for those who carry it out ---------------------------------------------------------------

    def strikes(self) -> bool:
        """One more that it is for: does it happen to this one? If so, it is counted."""
        with self._changed:
            if self._remaining() == 0:
                return False
            self._seen_count += 1
            if self._seen_count < self._requests.nth:
                return False
            if self._rng.random() >= self._requests.probability:
                return False
            self._hits += 1
            self._changed.notify_all()
        self._on_hit()
        return True

    def draw(self, span: tuple[float, float]) -> float:
        """A number between two, from the fault's own seed."""
        with self._changed:
            return self._rng.uniform(*span)

    def _remaining(self) -> int | None:
        if self._is_over:
            return 0
        times = self._requests.times
        return None if times is None else times - self._hits
