"""The transactions of an app: each begins on a leased slot and gives it back when it has ended."""

import threading
from contextlib import ExitStack
from contextvars import ContextVar

from oncelog.apps.clients import Clients
from oncelog.apps.errors import Aborted, Fenced
from oncelog.apps.pool import Pool
from oncelog.apps.sends import Sends
from oncelog.apps.slot import Slot
from oncelog.apps.transaction import Transaction
from oncelog.apps.watch import Watch


class Transactions:
    """Begins and ends them, in any thread."""

    def __init__(self, clients: Clients, prefix: str, *, concurrency: int, wait_s: float) -> None:
        """`concurrency` is how many functions may be in a transaction at a time."""
        self.clients = clients
        self.wait_s = wait_s
        self.concurrency = concurrency
        #: What `app.send` belongs to, in this thread or task.
        self.current: ContextVar[Sends | None] = ContextVar(f"oncelog-{prefix}", default=None)
        self.pool = Pool(clients, prefix, wait_s=wait_s)
        self._watch = Watch(clients.transaction_timeout_s)
        self._running = ExitStack()
        self._starting = threading.Lock()
        self._is_started = False

    @property
    def fenced(self) -> Fenced | None:
        """Why the app must stop, if another instance has taken over."""
        return self.pool.fenced

    def start(self) -> None:
        """Take over the ids; calls after the first do nothing."""
        with self._starting:
            if not self._is_started:
                for slot in self.pool.open(self.concurrency):
                    self.pool.release(slot)
                self._running.enter_context(self._watch)
                self._is_started = True

    def close(self) -> None:
        """Begin no more; what is open is ended by its owner."""
        with self._starting:
            self.pool.close()
            self._running.close()

    def joined(self) -> Transaction | None:
        """The transaction that a call made here becomes part of, if there is one."""
        current = self.current.get()
        return current if isinstance(current, Transaction) and not current.is_over else None

    def begin(self) -> Transaction:
        """Begin one on a slot of the pool."""
        self.start()
        return self.begin_leased(self.pool.take())

    def begin_leased(self, slot: Slot) -> Transaction:
        """Begin one on a slot that is leased for it."""
        try:
            return self.begin_on(slot)
        except BaseException:
            self.pool.release(slot)
            raise

    def begin_on(self, slot: Slot) -> Transaction:
        """Begin one on a slot that the caller keeps."""
        transaction = Transaction(slot)
        self._watch.add(transaction)
        return transaction

    def end(self, transaction: Transaction, error: BaseException | None) -> None:
        """Commit it, or abort it because of an error; its slot is free again."""
        try:
            if error is None:
                transaction.commit()
            else:
                fatal = transaction.abort()
                # The error said that the brokers had ended it, and now we know why.
                if fatal is not None and isinstance(error, Aborted):
                    raise fatal from error
        finally:
            self.forget(transaction)
            self.pool.release(transaction.slot)

    def forget(self, transaction: Transaction) -> None:
        """It has ended."""
        self._watch.remove(transaction)
