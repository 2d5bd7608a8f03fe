"""What copiers copy, and what became of it: who writes the input, and who reads the copies."""

import threading
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from oncelog.check import Op, Payload, Recorder, Write, encode_payload
from oncelog.testing.workload.copier import SOURCE, TARGET, TARGET_PARTITIONS, origin_of
from oncelog.testing.workload.final import read_of
from oncelog.testing.workload.load import PATIENT
from oncelog.testing.workload.rest import PROBE_KEY

#: So many records are sent at a time, and so often.
SENT_AT_ONCE: Final = 6
PAUSE_S: Final = 0.015


class Feeder(threading.Thread):
    """Writes the input, a little at a time, and never loses or doubles any of it."""

    def __init__(self, recorder: Recorder, bootstrap: str, *, run: int, partitions: int) -> None:
        super().__init__(name="feeder")
        self._recorder = recorder
        self._run = run
        self._producer = Producer(
            {**PATIENT, "bootstrap.servers": bootstrap, "enable.idempotence": True}
        )
        self.is_over = threading.Event()
        #: What was confirmed, by partition and in order.
        self.values: dict[int, list[int]] = {index: [] for index in range(partitions)}

    def run(self) -> None:
        """Write until it is over."""
        process = self._recorder.new_process()
        number = 0
        while not self.is_over.wait(PAUSE_S):
            self._send(process, number % len(self.values), number)
            number += 1

    def _send(self, process: int, partition: int, number: int) -> None:
        values = [self._recorder.new_value() for _ in range(SENT_AT_ONCE)]
        part = f"{SOURCE}:{partition}"
        call = self._recorder.call(process, Op.SEND, [Write(part, value) for value in values])
        offsets: list[int | None] = []

        def told(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for index, value in enumerate(values):
            payload = Payload(
                run=self._run, process=process, txn_number=number, index=index, value=value
            )
            self._producer.produce(
                SOURCE, encode_payload(payload), partition=partition, on_delivery=told
            )
        assert self._producer.flush(60) == 0
        steps = [Write(part, *pair) for pair in zip(values, offsets, strict=True)]
        self._recorder.ok(call, steps)
        self.values[partition] += values


class CopyReader(threading.Thread):
    """Reads all copies at read_committed while all this goes on."""

    def __init__(self, recorder: Recorder, bootstrap: str, *, run: int, partitions: int) -> None:
        super().__init__(name="reader")
        self._recorder = recorder
        self._run = run
        self._settings = {**PATIENT, "bootstrap.servers": bootstrap}
        self.is_over = threading.Event()
        self.copies = Copies(partitions)

    def run(self) -> None:
        """Read until it is over."""
        process = self._recorder.new_process()
        with closing(_committed_reader(self._settings)) as consumer:
            parts = dict.fromkeys(parts_of(TARGET, TARGET_PARTITIONS), 0)
            call = self._recorder.call(process, Op.ASSIGN, at=parts)
            consumer.assign([TopicPartition(TARGET, n, 0) for n in range(TARGET_PARTITIONS)])
            self._recorder.ok(call)
            while not self.is_over.is_set():
                call = self._recorder.call(process, Op.POLL)
                messages = consumer.consume(500, timeout=0.2)
                self._recorder.ok(call, [read_of(messages, run=self._run)])
                self.copies.add_all(messages)


class Copies:
    """The input values that were found copied, by partition and in order."""

    def __init__(self, partitions: int) -> None:
        self.values: dict[int, list[int]] = {index: [] for index in range(partitions)}

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self.values.values()))

    def add_all(self, messages: Iterable[Message]) -> None:
        """Take in what a reader was handed."""
        for message in messages:
            if message.error() is None:
                self.add(message)

    def add(self, message: Message) -> None:
        """Take in a record, if it is a copy."""
        key = message.key() or b""
        if message.topic() == TARGET and key != PROBE_KEY:
            partition, value = origin_of(key)
            self.values[partition].append(value)


def parts_of(topic: str, count: int) -> tuple[str, ...]:
    """The partitions of a topic, as histories name them."""
    return tuple(f"{topic}:{index}" for index in range(count))


def note_committed(recorder: Recorder, group: str, offsets: dict[str, int]) -> None:
    """Write down what the group of copiers has committed."""
    call = recorder.call(recorder.new_process(), Op.COMMITTED, group=[group, None, {}])
    recorder.ok(call, group=[group, None, offsets])


def _committed_reader(settings: dict[str, Any]) -> Consumer:
    return Consumer(
        {
            **settings,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
    )
