"""The listeners of an app at work: their workers, each in a thread, until told to stop."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer

from oncelog.apps.calls import Calls
from oncelog.apps.clients import Complaints
from oncelog.apps.errors import NotStopped
from oncelog.apps.listener import Counts, Listener
from oncelog.apps.rounds import AtLeastOnce, AtMostOnce, ExactlyOnce, Rounds
from oncelog.apps.slot import Slot
from oncelog.apps.source import AheadOf, Direct, Source
from oncelog.apps.transactions import Transactions
from oncelog.apps.worker import Worker
from oncelog.core.delivery import Delivery

_STEP_S: Final = 0.5


class Service:
    """Started once; the first worker that fails stops all."""

    def __init__(
        self,
        transactions: Transactions,
        listeners: Sequence[Listener],
        *,
        loop: asyncio.AbstractEventLoop | None,
        stopping: threading.Event,
        stop_timeout_s: float,
    ) -> None:
        """Coroutines are run on `loop`; a set `stopping` ends it all."""
        self._transactions = transactions
        self._listeners = listeners
        self._loop = loop
        self._stopping = stopping
        self._stop_timeout_s = stop_timeout_s
        self._lock = threading.Lock()
        self._workers: list[tuple[Listener, Worker]] = []
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None

    def start(self) -> None:
        """Take over the ids that workers need, and let them work."""
        wanted = [each for each in self._listeners for _ in range(each.workers)]
        count = sum(each.delivery is Delivery.EXACTLY_ONCE for each in wanted)
        slots = iter(self._transactions.pool.open(count))
        for listener in wanted:
            slot = next(slots) if listener.delivery is Delivery.EXACTLY_ONCE else None
            worker = self._worker(listener, slot)
            self._workers.append((listener, worker))
            name = f"oncelog-{listener.handler.__name__}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
            self._threads.append(thread)
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Until all have stopped; whatever ended one of them is raised."""
        deadline = float("inf")
        while any(thread.is_alive() for thread in self._threads):
            if self._stopping.wait(_STEP_S):
                deadline = min(deadline, time.monotonic() + self._stop_timeout_s)
                for thread in self._threads:
                    thread.join(max(0.0, deadline - time.monotonic()))
                if time.monotonic() >= deadline:
                    break
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if self._error is not None:
            raise self._error
        if late:
            raise NotStopped(
                f"{', '.join(late)} did not stop within {self._stop_timeout_s:g} s, since a handler "
                f"does not return. What it did is aborted by the brokers."
            )

    def counts(self, listener: Listener) -> Counts:
        """What the workers of a listener have done."""
        return sum((w.counts for owner, w in self._workers if owner is listener), start=Counts())

    def _run(self, worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
            self._stopping.set()

    def _worker(self, listener: Listener, slot: Slot | None) -> Worker:
        clients = self._transactions.clients
        consumer = clients.consumer(
            listener.group,
            start=listener.start,
            settings=listener.settings,
            complaints=Complaints(listener.name),
        )
        source: Source = Direct(consumer, listener.name)
        if listener.delivery is Delivery.AT_MOST_ONCE:
            source = AheadOf(consumer, listener.name, listener.max_records)
        loop = self._loop if listener.is_async else None
        return Worker(
            listener,
            consumer=consumer,
            source=source,
            rounds=self._rounds(listener, consumer, slot),
            calls=Calls(listener.handler, self._transactions.current, loop),
            stopping=self._stopping,
        )

    def _rounds(self, listener: Listener, consumer: Consumer, slot: Slot | None) -> Rounds:
        if slot is not None:
            return ExactlyOnce(self._transactions, slot, consumer, listener.group)
        wait_s = self._transactions.wait_s
        producer = self._transactions.clients.idempotent(Complaints(listener.name))
        if listener.delivery is Delivery.AT_MOST_ONCE:
            return AtMostOnce(producer, wait_s=wait_s)
        return AtLeastOnce(producer, consumer, wait_s=wait_s)
