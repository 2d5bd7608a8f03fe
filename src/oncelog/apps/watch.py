"""Ends transactions that last too long, shortly before the brokers would.

What the brokers end they end by fencing the producer, which from here looks as if another instance had
taken over. What we end ourselves leaves the producer as it was.
"""

import threading
import time
from typing import Final

from oncelog.apps.transaction import Transaction

#: The part of a transaction's time after which it is ended.
_SHARE: Final = 0.8


class Watch:
    """One thread for all open transactions of an app."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` is when the brokers would do it."""
        self._limit_s = timeout_s * _SHARE
        self._changed = threading.Condition()
        #: By when each is to end; all have the same span, so the first is the next.
        self._until: dict[Transaction, float] = {}
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="oncelog-app-watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def add(self, transaction: Transaction) -> None:
        """Watch it from now on."""
        with self._changed:
            self._until[transaction] = time.monotonic() + self._limit_s
            if len(self._until) == 1:
                self._changed.notify()

    def remove(self, transaction: Transaction) -> None:
        """It is over."""
        with self._changed:
            self._until.pop(transaction, None)

    def _run(self) -> None:
        while (late := self._next_late()) is not None:
            late.expire()

    def _next_late(self) -> Transaction | None:
        with self._changed:
            while not self._is_over:
                transaction, until = next(iter(self._until.items()), (None, float("inf")))
                left_s = until - time.monotonic()
                if transaction is not None and left_s <= 0:
                    del self._until[transaction]
                    return transaction
                self._changed.wait(None if transaction is None else left_s)
        return None
