"""`App`: transactional functions and listeners for plain Python services.

app = oncelog.App("localhost:9092", transactional_id="orders")

@app.transactional
def place(order): ...                    # all that it sends, or nothing

@app.listener("orders", group="billing")
def bill(record): ...                    # the same, with the record's offset

app.run()
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from oncelog.apps.clients import Clients
from oncelog.apps.codec import BY_TYPE, Codec
from oncelog.apps.errors import Closed, Misconfigured, NoTransaction
from oncelog.apps.functions import transactional
from oncelog.apps.hooks import Hook
from oncelog.apps.listener import Counts, Handler, Listener
from oncelog.apps.scope import Scope, Sender
from oncelog.apps.sends import GivenHeaders
from oncelog.apps.service import Service
from oncelog.apps.transactions import Transactions
from oncelog.core.delivery import Delivery, delivery_of

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound=Handler)

_LONGEST_NAME: Final = 200
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class App:
    """A service whose every effect on the log is part of a transaction."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        transactional_id: str,
        instance: str | int = 0,
        concurrency: int = 4,
        tries: int = 5,
        transaction_timeout_s: float = 60.0,
        wait_s: float = 30.0,
        stop_timeout_s: float = 30.0,
        codec: Codec[Any] = BY_TYPE,
        settings: Mapping[str, Any] | None = None,
        producer_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is sent before the first use; docs/apps.md explains each parameter."""
        name = f"{transactional_id}-{instance}"
        _check_name("transactional_id", transactional_id)
        _check_name("instance", str(instance))
        _check_at_least("concurrency", concurrency, 0)
        _check_at_least("tries", tries, 1)
        for span, value in [
            ("transaction_timeout_s", transaction_timeout_s),
            ("wait_s", wait_s),
            ("stop_timeout_s", stop_timeout_s),
        ]:
            _check_at_least(span, value, 1)
        clients = Clients(
            bootstrap_servers=bootstrap_servers,
            client_id=name,
            transaction_timeout_s=transaction_timeout_s,
            settings=dict(settings or {}),
            producer_settings=dict(producer_settings or {}),
        )
        self.name = name
        self._tries = tries
        self._stop_timeout_s = stop_timeout_s
        self._codec = codec
        self._transactions = Transactions(clients, name, concurrency=concurrency, wait_s=wait_s)
        self._threads = ThreadPoolExecutor(
            max(1, concurrency), thread_name_prefix=f"oncelog-{name}"
        )
        self._listeners: list[Listener] = []
        self._service: Service | None = None
        self._stopping = threading.Event()

    # --- functions --------------------------------------------------------------------------

    def transactional(self, function: Callable[P, T]) -> Callable[P, T]:
        """Make a function, or a coroutine function, one transaction.

        It returns after the commit. Its own errors abort and reach the caller; what the brokers abort is
        run again. Called inside of another transaction it becomes part of that one.
        """
        return transactional(
            function,
            scope=self.transaction,
            is_joining=lambda: self._transactions.joined() is not None,
            tries=self._tries,
        )

    def transaction(self) -> Scope:
        """`with app.transaction() as tx:`, or `async with`: the block is one transaction."""
        return Scope(self._transactions, self._codec, self._threads)

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
        """Send a record in the transaction of the function or handler that calls this."""
        self._sender().send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            codec=codec,
        )

    def after_commit(self, hook: Hook) -> None:
        """Call a hook once the present transaction is committed, and only then."""
        self._sender().after_commit(hook)

    def _sender(self) -> Sender:
        current = self._transactions.current.get()
        if current is None:
            raise NoTransaction(
                "There is no transaction here: send in a function under @app.transactional, in a "
                "handler under @app.listener, or in a block `with app.transaction():`."
            )
        return Sender(current, self._codec)

    # --- listeners --------------------------------------------------------------------------

    def listener(
        self,
        *topics: str,
        group: str,
        delivery: Delivery | str = Delivery.EXACTLY_ONCE,
        workers: int = 1,
        max_records: int = 500,
        max_seconds: float = 1.0,
        tries: int = 5,
        dead_letters: str | None = None,
        start: str = "earliest",
        settings: Mapping[str, Any] | None = None,
    ) -> Callable[[H], H]:
        """Call a function, or a coroutine function, with every record of some topics."""
        try:
            chosen = delivery_of(delivery)
        except ValueError as error:
            raise Misconfigured(str(error)) from None

        def register(handler: H) -> H:
            if self._service is not None:
                raise Misconfigured("The app runs already: declare its listeners before.")
            self._listeners.append(
                Listener(
                    topics=topics,
                    group=group,
                    handler=handler,
                    delivery=chosen,
                    workers=workers,
                    max_records=max_records,
                    max_seconds=max_seconds,
                    tries=tries,
                    dead_letters=dead_letters,
                    start=start,
                    settings=dict(settings or {}),
                )
            )
            return handler

        return register

    def counts(self) -> dict[str, Counts]:
        """What each listener has done so far, by the name of its handler."""
        service = self._service
        return {
            listener.handler.__name__: Counts() if service is None else service.counts(listener)
            for listener in self._listeners
        }

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over the transactional ids now, instead of at the first use."""
        self._transactions.start()

    def run(self) -> None:
        """Run the listeners until `stop`, SIGTERM or Ctrl-C; what is begun is committed first."""
        with self._own_loop() as loop, self._signals():
            try:
                self._serve(loop).wait()
            finally:
                self._stopping.set()

    async def arun(self) -> None:
        """The same for a service that has a loop: its coroutine handlers run there.

        Cancelling it is the same as `stop`.
        """
        loop = asyncio.get_running_loop()
        service = await asyncio.to_thread(self._serve, loop)
        waiting = asyncio.ensure_future(asyncio.to_thread(service.wait))
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            self.stop()
            await waiting
            raise
        finally:
            self._stopping.set()

    def stop(self) -> None:
        """Let the listeners finish what they have begun, and end; may be called from anywhere."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, and begin no more transactions."""
        self.stop()
        self._transactions.close()
        self._threads.shutdown(wait=True)

    def __enter__(self) -> "App":
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> "App":
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.to_thread(self.close)

    def _serve(self, loop: asyncio.AbstractEventLoop | None) -> Service:
        if not self._listeners:
            raise Misconfigured(f"The app {self.name} has no listener: there is nothing to run.")
        if self._service is not None:
            raise Closed(f"The app {self.name} has run already: make a new one.")
        self._transactions.start()
        self._service = Service(
            self._transactions,
            self._listeners,
            loop=loop,
            stopping=self._stopping,
            stop_timeout_s=self._stop_timeout_s,
        )
        self._service.start()
        return self._service

    @contextmanager
    def _own_loop(self) -> Iterator[asyncio.AbstractEventLoop | None]:
        """A loop in a thread of its own, if a handler needs one."""
        if not any(listener.is_async for listener in self._listeners):
            yield None
            return
        loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=loop.run_forever, name=f"oncelog-{self.name}-loop", daemon=True
        )
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals stop the app; only the main thread may say so."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_name(what: str, name: str) -> None:
    if not name or len(name) > _LONGEST_NAME or not name.isprintable() or " " in name:
        raise Misconfigured(
            f"{what}={name!r} is no name: 1 to {_LONGEST_NAME} printable characters without blanks."
        )


def _check_at_least(what: str, value: float, least: int) -> None:
    if not least <= value < 1e6:
        raise Misconfigured(f"{what}={value} is out of range: at least {least}.")
