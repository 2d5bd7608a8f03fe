"""A service as users write it, in a process of its own, with a recorder around its producers.

    python -m tests.apps.service BROKER INSTANCE RECORDER DELIVERY STEP SIGNAL TIMEOUT_S

It copies `in` to `out`, in transactions that may last TIMEOUT_S. What it does is written down by whoever
runs the test, and at STEP, the name of one or `-`, it sends itself a signal, once. Nothing of that is in
the app: producers of this process are wrapped.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaException

import oncelog
from oncelog.apps import Record, rounds, slot
from oncelog.apps.producer import GroupOffsets, TransactionalProducer
from oncelog.apps.sends import OnDelivery, Outgoing
from oncelog.check import Payload, decode_payload, encode_payload
from oncelog.testing.workload.recording import RemoteRecorder, writes

RUN: Final = 4711
GROUP: Final = "copiers"
SOURCE: Final = "in"
TARGET: Final = "out"
PARTITIONS: Final = 3
#: Where a service can be told to die, or to do something else that a signal asks for.
STEPS: Final = ("before-send", "after-send", "before-offsets", "before-commit", "after-commit")
SETTINGS: Final = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 200}


class Mine(threading.local):
    """What a worker's thread has of its own: it consumes, handles and produces in one thread."""

    def __init__(self, port: int) -> None:
        self.recorder = RemoteRecorder(port)
        self.process = self.recorder.ask("process")
        self.first: dict[str, int] = {}


def reach(step: str) -> None:
    """Where the signal is sent, if this is the step."""
    if step in signals:
        # To this thread: another one could take it while this one goes on.
        signal.pthread_kill(threading.get_ident(), signals.pop(step))


class Recorded(TransactionalProducer):
    """Writes down what it is about to do, does it, and writes down what came of it.

    Records are held back until they are flushed: the line that announces them stands first.
    """

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._held: list[tuple[Outgoing, OnDelivery]] = []
        self._call: int | None = None
        self._parts: list[str] = []
        self._values: list[int] = []
        self._ending: dict[str, Any] = {}
        self._group: list[Any] = []

    def open(self) -> None:
        call = mine.recorder.ask("call", p=mine.process, op="open", tid=self.transactional_id)
        super().open()
        mine.recorder.ask("ok", call=call)

    def begin(self) -> None:
        super().begin()
        self._held, self._ending, self._group = [], {}, []
        mine.first = {}

    def send(self, record: Outgoing, on_delivery: OnDelivery) -> None:
        self._held.append((record, on_delivery))

    def flush(self) -> bool:
        self._values = [decode_payload(each.value or b"").value for each, _ in self._held]
        self._parts = [f"{each.topic}:{each.partition}" for each, _ in self._held]
        asked = [["w", *pair] for pair in zip(self._parts, self._values, strict=True)]
        self._call = mine.recorder.ask(
            "call", p=mine.process, op="txn", tid=self.transactional_id, steps=asked
        )
        reach("before-send")
        for record, on_delivery in self._held:
            super().send(record, on_delivery)
        is_done = super().flush()
        reach("after-send")
        return is_done

    def send_offsets(self, offsets: GroupOffsets) -> None:
        reach("before-offsets")
        ends = {f"{each.topic}:{each.partition}": each.offset for each in offsets.positions}
        ranges = {part: [mine.first[part], end] for part, end in ends.items()}
        self._group = [offsets.group, None, ranges]
        super().send_offsets(offsets)

    def commit(self) -> None:
        self._ending = {"end": "commit", "tc": time.monotonic_ns(), "group": self._group}
        mine.recorder.ask("ending", call=self._call, **self._ending)
        reach("before-commit")
        try:
            super().commit()
        except KafkaException as raised:
            self._tell("unknown", err=str(raised))
            mine.process = mine.recorder.ask("process")
            raise
        reach("after-commit")
        self._tell("ok")

    def abort(self) -> None:
        if self._call is not None:
            self._ending = {"end": "abort", "tc": time.monotonic_ns()}
            self._tell("fail")
        super().abort()

    def _tell(self, what: str, **fields: str) -> None:
        nowhere: Sequence[None] = [None] * len(self._values)
        steps = writes(zip(self._parts, self._values, nowhere, strict=True))
        mine.recorder.ask(what, call=self._call, steps=steps, **self._ending, **fields)
        self._call = None


def key_of(record: Record) -> bytes:
    """What names the input in its copy: its partition and its value."""
    return b"%d %d" % (record.partition, decode_payload(record.value or b"").value)


def main(servers: str, instance: str, delivery: str, timeout_s: float) -> None:
    rng = Random(instance)
    app = oncelog.App(
        servers,
        transactional_id="copy",
        instance=instance,
        concurrency=0,
        wait_s=20,
        transaction_timeout_s=timeout_s,
    )

    @app.listener(
        SOURCE,
        group=GROUP,
        delivery=delivery,
        workers=2 if delivery == "exactly_once" else 1,
        max_records=20,
        settings=SETTINGS,
    )
    def copy(record: Record) -> None:
        reach("handling")
        mine.first.setdefault(f"{SOURCE}:{record.partition}", record.offset)
        (value,) = mine.recorder.new_values(1)
        payload = Payload(run=RUN, process=mine.process, txn_number=0, index=0, value=value)
        # Not where the input came from: transactions of several workers meet in one partition.
        target = rng.randrange(PARTITIONS)
        app.send(TARGET, encode_payload(payload), key=key_of(record), partition=target)

    app.run()
    app.close()


if __name__ == "__main__":
    servers, instance, port, delivery, step, signal_name, timeout_s = sys.argv[1:]
    signals = {step: signal.Signals[signal_name]}
    logging.basicConfig(level=logging.INFO, format=f"{instance} %(message)s %(fields)s")
    logging.getLogger().handlers[0].addFilter(
        lambda record: record.__dict__.setdefault("fields", "") is not None
    )
    mine = Mine(int(port))
    setattr(slot, "TransactionalProducer", Recorded)  # noqa: B010  # only in this process
    commit_offsets = rounds.commit_offsets

    def dying(consumer: Any, ends: rounds.Ends) -> None:
        if delivery == "at_least_once":
            reach("before-offsets")
        commit_offsets(consumer, ends)

    rounds.commit_offsets = dying
    main(servers, instance, delivery, float(timeout_s))
