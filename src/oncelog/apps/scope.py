"""`with app.transaction() as tx:`, and `async with`."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import Token
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from oncelog.apps.codec import Codec
from oncelog.apps.hooks import Hook
from oncelog.apps.sends import GivenHeaders, Outgoing, Sends
from oncelog.apps.transaction import Transaction
from oncelog.apps.transactions import Transactions

P = ParamSpec("P")
T = TypeVar("T")


class Sender:
    """Sends into one transaction; it may be handed to other threads and tasks."""

    def __init__(self, sends: Sends, codec: Codec[Any]) -> None:
        """`codec` is for what is sent without one of its own."""
        self._sends = sends
        self._codec = codec

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        codec: Codec[Any] | None = None,
    ) -> None:
        """Send a record; it becomes visible with the commit."""
        chosen = codec or self._codec
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        record = Outgoing(
            topic=topic,
            key=None if key is None else chosen.encode(topic, key),
            value=chosen.encode(topic, value),
            headers=tuple((name, v.encode() if isinstance(v, str) else v) for name, v in pairs),
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        self._sends.put(record)

    def after_commit(self, hook: Hook) -> None:
        """Call a hook once the commit is confirmed, and only then."""
        self._sends.after_commit(hook)


class Scope:
    """A block that is one transaction, or part of the one around it."""

    def __init__(self, transactions: Transactions, codec: Codec[Any], threads: Executor) -> None:
        """Whatever may block a loop is done by `threads`."""
        self._transactions = transactions
        self._codec = codec
        self._threads = threads
        self._transaction: Transaction | None = None
        self._is_joined = False
        self._token: Token[Sends | None] | None = None

    # --- with -------------------------------------------------------------------------------

    def __enter__(self) -> Sender:
        return self._join() or self._entered(self._transactions.begin())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (transaction := self._left(error)) is not None:
            self._transactions.end(transaction, error)
            if error is None:
                transaction.hooks.run()

    # --- async with -------------------------------------------------------------------------

    async def __aenter__(self) -> Sender:
        if (joined := self._join()) is not None:
            return joined
        await self._in_thread(self._transactions.start)
        pool = self._transactions.pool
        lease = pool.lease()
        try:
            async with asyncio.timeout(self._transactions.wait_s):
                slot = await asyncio.wrap_future(lease)
        except TimeoutError:
            pool.give_back(lease)
            raise pool.busy() from None
        except asyncio.CancelledError:
            pool.give_back(lease)
            raise
        beginning = self._started(self._transactions.begin_leased, slot)
        try:
            return self._entered(await asyncio.shield(beginning))
        except asyncio.CancelledError:
            # It begins all the same, and nobody is there to end it.
            beginning.add_done_callback(self._end_unused)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (transaction := self._left(error)) is not None:
            # A caller that is cancelled meanwhile does not stop an end that has begun.
            await self._in_thread(self._transactions.end, transaction, error)
            if error is None:
                transaction.hooks.run()

    def _started(self, call: Callable[P, T], *args: P.args, **given: P.kwargs) -> asyncio.Future[T]:
        assert not given, "executors take no keywords"
        work = asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
        # Of what nobody waits for any more nobody needs to hear.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        return work

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        return await asyncio.shield(self._started(call, *args, **given))

    def _end_unused(self, begun: asyncio.Future[Transaction]) -> None:
        if not begun.cancelled() and begun.exception() is None:
            self._started(self._transactions.end, begun.result(), asyncio.CancelledError())

    # --- both -------------------------------------------------------------------------------

    def _join(self) -> Sender | None:
        self._transaction = self._transactions.joined()
        self._is_joined = self._transaction is not None
        return None if self._transaction is None else Sender(self._transaction, self._codec)

    def _entered(self, transaction: Transaction) -> Sender:
        self._transaction = transaction
        self._token = self._transactions.current.set(transaction)
        return Sender(transaction, self._codec)

    def _left(self, error: BaseException | None) -> Transaction | None:
        """The transaction that is to be ended here, unless it belongs to a scope around this one."""
        transaction = self._transaction
        assert transaction is not None, "it was entered"
        if self._is_joined:
            if error is not None:
                transaction.doom(error)
            return None
        assert self._token is not None, "it was entered"
        self._transactions.current.reset(self._token)
        return transaction
