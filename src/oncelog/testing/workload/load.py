"""Writers and readers that go on through kills, and record all they asked for and learnt."""

import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from oncelog.check import Op, Payload, Read, Recorder, Write, encode_payload
from oncelog.testing.workload import final
from oncelog.testing.workload.final import read_of

TOPIC = "a"
GROUP = "g"
#: How long the last look at everything may take.
FINAL_S = 60.0

#: Clients that look again soon: a broker that was killed is back in half a second.
PATIENT = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 1000,
}


class Load:
    """One run: what all its clients share."""

    def __init__(
        self,
        recorder: Recorder,
        bootstrap: str,
        *,
        run: int,
        partitions: int,
        seed: int,
        topic: str = TOPIC,
    ) -> None:
        self.recorder = recorder
        self.bootstrap = bootstrap
        self.run = run
        self.topic = topic
        self.parts = [f"{topic}:{index}" for index in range(partitions)]
        self.seed = seed
        self.is_over = threading.Event()
        self.failures: list[str] = []
        self.confirmed_count = 0
        self._confirmed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def settings(self, **more: object) -> dict[str, object]:
        """What every client is given."""
        dotted = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.bootstrap, **PATIENT, **dotted}

    def begin(self, *clients: "Client") -> None:
        """Let clients go to work, each in a thread."""
        for client in clients:
            thread = threading.Thread(target=client.guarded, name=type(client).__name__)
            self._threads.append(thread)
            thread.start()

    def confirmed(self) -> None:
        """A send was acknowledged."""
        with self._confirmed:
            self.confirmed_count += 1
            self._confirmed.notify_all()

    def until_confirmed(self, more: int, *, within_s: float = 30.0) -> None:
        """Wait until so many more sends are acknowledged (K5)."""
        with self._confirmed:
            wanted = self.confirmed_count + more
            is_live = self._confirmed.wait_for(lambda: self.confirmed_count >= wanted, within_s)
        assert is_live, f"not {more} more sends were acknowledged within {within_s:g} s"

    def end(self) -> None:
        """Let everyone finish what is under way."""
        self.is_over.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.failures.append(f"{thread.name} does not end")


class Client:
    """Works until the load is over."""

    def __init__(self, load: Load, number: int) -> None:
        self.load = load
        self.recorder = load.recorder
        self.rng = Random(f"{load.seed} {type(self).__name__} {number}")
        self.process = load.recorder.new_process()

    def guarded(self) -> None:
        """Run, and let a failure be seen where the test looks for it."""
        try:
            self.work()
        except BaseException as error:
            self.load.failures.append(f"{type(self).__name__}: {error!r}")
            raise

    def work(self) -> None:
        """What this client does."""
        raise NotImplementedError


class Writer(Client):
    """Sends a few records at a time to one partition; one that is impatient soon gives up."""

    def __init__(self, load: Load, number: int, *, timeout_ms: int, pause_s: float = 0.0) -> None:
        super().__init__(load, number)
        self._timeout_ms = timeout_ms
        self._pause_s = pause_s
        self._sent_count = 0
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer(
            self.load.settings(
                enable_idempotence=True,
                acks="all",
                linger_ms=0,
                message_timeout_ms=self._timeout_ms,
            )
        )

    def work(self) -> None:
        """Send, and wait for each answer."""
        while not self.load.is_over.is_set():
            self._send(self.rng.randrange(len(self.load.parts)), self.rng.randint(1, 5))
            self.load.is_over.wait(self._pause_s)
        self._producer.flush(30)

    def _send(self, partition: int, count: int) -> None:
        part = self.load.parts[partition]
        values = [self.recorder.new_value() for _ in range(count)]
        payloads = [self._payload(index, value) for index, value in enumerate(values)]
        offsets: dict[int, int | None] = {}
        errors: list[str] = []

        def told(index: int, error: KafkaError | None, message: Message) -> None:
            offsets[index] = None if error else message.offset()
            if error:
                errors.append(error.name())

        call = self.recorder.call(self.process, Op.SEND, [Write(part, v) for v in values])
        self._sent_count += 1
        for index, payload in enumerate(payloads):
            self._producer.produce(
                self.load.topic,
                payload,
                partition=partition,
                on_delivery=partial(told, index),
            )
        while len(offsets) < count:
            self._producer.poll(0.05)
        steps = [Write(part, value, offsets[index]) for index, value in enumerate(values)]
        if not errors:
            self.recorder.ok(call, steps)
            self.load.confirmed()
            return
        # A time-out says nothing of what the broker did; whoever goes on is somebody else.
        self.recorder.unknown(call, steps, err=errors[0])
        self.process = self.recorder.new_process()
        self._producer.purge()
        self._producer = self._new_producer()

    def _payload(self, index: int, value: int) -> bytes:
        return encode_payload(
            Payload(
                run=self.load.run,
                process=self.process,
                txn_number=self._sent_count,
                index=index,
                value=value,
            ),
            size_bytes=self.rng.choice((0, 100, 1000)),
        )


class Reader(Client):
    """Reads every partition from its beginning, by assignment, and is never moved."""

    def __init__(self, load: Load, number: int, *, batch: int = 200, pause_s: float = 0.0) -> None:
        """One that is slow gets few records at a time, and pauses after them."""
        super().__init__(load, number)
        self._batch = batch
        self._pause_s = pause_s

    def work(self) -> None:
        """Poll, and write down what was read."""
        consumer = Consumer(
            self.load.settings(group_id=f"reader-{self.process}", auto_offset_reset="error")
        )
        with closing(consumer):
            call = self.recorder.call(self.process, Op.ASSIGN, at=dict.fromkeys(self.load.parts, 0))
            consumer.assign(
                [TopicPartition(self.load.topic, index, 0) for index in range(len(self.load.parts))]
            )
            self.recorder.ok(call)
            while not self.load.is_over.wait(self._pause_s):
                call = self.recorder.call(self.process, Op.POLL)
                self.recorder.ok(call, [self.read_of(consumer.consume(self._batch, timeout=0.2))])

    def read_of(self, messages: Sequence[Message]) -> Read:
        """What was handed over; nobody but retention takes away what a reader stands at."""
        for message in messages:
            error = message.error()
            assert error is None or error.code() != KafkaError._AUTO_OFFSET_RESET, error
        return read_of(messages, run=self.load.run)


class Member(Reader):
    """Reads in a group and commits what it has read, now and then leaving for a while."""

    def work(self) -> None:
        """Join, read and commit, again and again."""
        while not self.load.is_over.is_set():
            self._take_part()
            self.process = self.recorder.new_process()

    def _take_part(self) -> None:
        """One membership, until a commit has an unknown end or the member would like a change."""
        moved: set[str] = set()

        def note(_: Consumer, partitions: list[TopicPartition]) -> None:
            moved.update(self.load.parts[one.partition] for one in partitions)

        consumer = Consumer(
            self.load.settings(
                group_id=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6000,
                heartbeat_interval_ms=300,
            )
        )
        with closing(consumer):
            call = self.recorder.call(self.process, Op.SUBSCRIBE)
            consumer.subscribe([self.load.topic], on_assign=note, on_revoke=note, on_lost=note)
            self.recorder.ok(call)
            for _ in range(self.rng.randint(20, 60)):
                if self.load.is_over.is_set():
                    return
                call = self.recorder.call(self.process, Op.POLL)
                read = self.read_of(consumer.consume(200, timeout=0.1))
                fields: dict[str, Any] = {"moved": sorted(moved)} if moved else {}
                moved.clear()
                self.recorder.ok(call, [read], **fields)
                if read.records and not self._commit(consumer, read):
                    return

    def _commit(self, consumer: Consumer, read: Read) -> bool:
        """Commit what was read; says whether that was confirmed, or certainly refused."""
        offsets = {part: records[-1].offset + 1 for part, records in read.records.items()}
        wanted = [
            TopicPartition(self.load.topic, self.load.parts.index(part), offset)
            for part, offset in offsets.items()
        ]
        call = self.recorder.call(self.process, Op.COMMIT, group=[GROUP, None, offsets])
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self.recorder.unknown(call, err=error.args[0].name())
            return False
        self.recorder.ok(call)
        return True


def ask_for_ends_and_commits(load: Load) -> None:
    """After a restart: where does each partition end, and what has the group committed?"""
    process = load.recorder.new_process()
    consumer = Consumer(load.settings(group_id=GROUP, enable_auto_commit=False))
    with closing(consumer):
        call = load.recorder.call(process, Op.LATEST)
        ends = {
            part: consumer.get_watermark_offsets(TopicPartition(load.topic, index), timeout=10)[1]
            for index, part in enumerate(load.parts)
        }
        load.recorder.ok(call, offsets=ends)
        call = load.recorder.call(process, Op.COMMITTED)
        wanted = [TopicPartition(load.topic, index) for index in range(len(load.parts))]
        found = consumer.committed(wanted, timeout=10)
        offsets = {
            load.parts[one.partition]: one.offset if one.offset >= 0 else None for one in found
        }
        load.recorder.ok(call, group=[GROUP, None, offsets])


def read_everything(load: Load) -> None:
    """The end of the history of one load."""
    settings = load.settings()
    final.read_everything(load.recorder, settings, load.parts, run=load.run, within_s=FINAL_S)
