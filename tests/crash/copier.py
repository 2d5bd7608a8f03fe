"""A copier in a process of its own: reads in a group, writes and commits its offsets in transactions.

    python -m tests.crash.copier CLIENT TRANSACTIONAL_ID BROKER RECORDER SEED

It goes on through everything: a transaction that failed is aborted and begun again from the committed
offsets; a producer whose state is not known is replaced by one of the same transactional id. The key
of a copy says which input it is of, and its value is its own, so that it can be told which
transaction it came from.

Members leave the group's generation only between two transactions (they rejoin while they read), and
whoever does not know how a transaction ended opens its id anew before it reads on. So also those
clients are safe that say nothing of the group in their transactions, or do not ask for stable
offsets (aiokafka).
"""

import asyncio
import logging
import sys
import threading
import time
import warnings
from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.check import Payload, encode_payload
from oncelog.check.payload import decode_payload
from tests.crash.recording import RemoteRecorder, writes

T = TypeVar("T")

SOURCE: Final = "in"
TARGET: Final = "out"
#: Fewer than inputs, so that transactions of different copiers meet in one partition.
TARGET_PARTITIONS: Final = 4
GROUP: Final = "copiers"
BATCH: Final = 8
WAIT_S: Final = 30.0
TRANSACTION_TIMEOUT_MS: Final = 10_000
#: Nobody loses its place in the group only because the machine is slow.
SESSION_TIMEOUT_MS: Final = 30_000


class Input(NamedTuple):
    """A record that is to be copied."""

    partition: int
    offset: int
    value: bytes


class Client(Protocol):
    """What the copier needs of a library; any call may raise."""

    def open(self) -> None:
        """Get an identity for the transactional id; whatever was open under it has ended."""

    def read(self) -> Sequence[Input]:
        """Some records, or none."""

    def begin(self) -> None:
        """Open a transaction."""

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> Sequence[int | None]:
        """Write (partition, key, value), and wait; answers their offsets."""

    def send_offsets(self, ends: Mapping[int, int]) -> None:
        """The input is consumed up to here."""

    def commit(self) -> None:
        """End the transaction; returns when that is confirmed."""

    def abort(self) -> None:
        """End the transaction; returns when that is confirmed."""

    def rewind(self) -> None:
        """Go back to the committed offsets."""

    def done(self) -> None:
        """Nothing is under way: partitions may be given up."""

    def close(self) -> None:
        """Leave in order."""


# --- confluent-kafka ------------------------------------------------------------------------


class Confluent:
    """librdkafka; one that is impatient often does not wait for the end of its commit."""

    def __init__(self, bootstrap: str, tid: str, *, is_patient: bool = True) -> None:
        import confluent_kafka

        self._kafka = confluent_kafka
        self._tid = tid
        self._rng = None if is_patient else Random(tid)
        self._common = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            # With one broker there is nowhere else to go; and offsets for a coordinator that is
            # away for a moment would hang (librdkafka issue 5511).
            "metadata.recovery.strategy": "none",
        }
        self._producer: Any = None
        self._consumer = confluent_kafka.Consumer(
            {
                **self._common,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 300,
            }
        )
        self._consumer.subscribe([SOURCE])

    def open(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = self._kafka.Producer(
            {
                **self._common,
                "transactional.id": self._tid,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        self._patiently(self._producer.init_transactions, 2.0)

    def _patiently(self, call: Any, timeout_s: float, *given: Any) -> None:
        """Again and again, as the library asks for: what was begun goes on."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                call(*given, timeout_s)
                return
            except self._kafka.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def read(self) -> Sequence[Input]:
        messages: list[Any] = self._consumer.consume(BATCH, timeout=0.2)
        return [
            Input(message.partition(), message.offset(), message.value())
            for message in messages
            if not message.error()
        ]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> Sequence[int | None]:
        offsets: dict[bytes, int | None] = {}

        def told(error: Any, message: Any) -> None:
            if error is None:
                offsets[message.value()] = message.offset()

        for partition, key, value in records:
            self._producer.produce(TARGET, value, key, partition, on_delivery=told)
        if self._producer.flush(WAIT_S):
            raise TimeoutError("not everything was delivered")
        return [offsets[value] for _, _, value in records]

    def send_offsets(self, ends: Mapping[int, int]) -> None:
        offsets = [self._kafka.TopicPartition(SOURCE, part, end) for part, end in ends.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._patiently(self._producer.send_offsets_to_transaction, 2.0, offsets, metadata)

    def commit(self) -> None:
        if self._rng is not None and self._rng.random() < 0.5:
            self._producer.commit_transaction(self._rng.choice((0.0, 0.001, 0.003)))
        else:
            self._patiently(self._producer.commit_transaction, 2.0)

    def abort(self) -> None:
        self._patiently(self._producer.abort_transaction, 2.0)

    def rewind(self) -> None:
        for place in self._consumer.committed(self._consumer.assignment(), WAIT_S):
            if place.error is not None:
                raise RuntimeError(str(place.error))
            self._consumer.seek(
                self._kafka.TopicPartition(SOURCE, place.partition, max(place.offset, 0))
            )

    def done(self) -> None:
        pass

    def close(self) -> None:
        self._consumer.close()


# --- kafka-python ---------------------------------------------------------------------------


class KafkaPython:
    """kafka-python.

    Version 3.0 drops a transactional request if its coordinator refuses the connection just then, and
    waits for the answer without end (`Sender._maybe_send_pending_request` breaks off its loop with a
    node and does not retry). So nothing is waited for longer than a restart can take.
    """

    def __init__(self, bootstrap: str, tid: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import kafka
            from kafka.structs import OffsetAndMetadata

        self._kafka = kafka
        self._offset_and_metadata = OffsetAndMetadata
        self._tid = tid
        self._common = {
            "bootstrap_servers": bootstrap,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 100,
            "retry_backoff_ms": 20,
        }
        self._producer: Any = None
        self._is_stuck = False
        self._consumer = kafka.KafkaConsumer(
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
            request_timeout_ms=SESSION_TIMEOUT_MS + 10_000,
            max_poll_records=BATCH,
            **self._common,
        )
        self._consumer.subscribe([SOURCE])

    def open(self) -> None:
        if self._producer is not None:
            try:
                self._producer.close(timeout=1)
            except self._kafka.errors.KafkaError as error:
                logging.info("an old producer closed with %r", error)
        self._is_stuck = False
        self._producer = self._kafka.KafkaProducer(
            transactional_id=self._tid,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=int(WAIT_S * 1000),
            **self._common,
        )
        self._within(self._producer.init_transactions)

    def _within(self, call: Any, *given: Any, timeout_s: float = 5.0) -> None:
        """Call, and wait for a bounded time; a producer that is stuck is replaced afterwards."""
        errors: list[BaseException | None] = []

        def run() -> None:
            try:
                call(*given)
                errors.append(None)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(timeout_s)
        if not errors:
            self._is_stuck = True
            raise TimeoutError(f"{call.__name__} does not return")
        if errors[0] is not None:
            raise errors[0]

    def read(self) -> Sequence[Input]:
        found = self._consumer.poll(timeout_ms=200, max_records=BATCH)
        return [
            Input(record.partition, record.offset, record.value)
            for records in found.values()
            for record in records
        ]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> Sequence[int | None]:
        futures = [
            self._producer.send(TARGET, value, key=key, partition=partition)
            for partition, key, value in records
        ]
        try:
            return [future.get(timeout=5).offset for future in futures]
        except self._kafka.errors.KafkaTimeoutError:
            self._is_stuck = True
            raise

    def send_offsets(self, ends: Mapping[int, int]) -> None:
        offsets = {
            self._kafka.TopicPartition(SOURCE, part): self._offset_and_metadata(end, "", -1)
            for part, end in ends.items()
        }
        metadata = self._consumer.group_metadata()
        self._within(self._producer.send_offsets_to_transaction, offsets, metadata)

    def commit(self) -> None:
        self._within(self._producer.commit_transaction)

    def abort(self) -> None:
        if self._is_stuck:
            raise RuntimeError("this producer has lost a request: it is not to be trusted")
        self._within(self._producer.abort_transaction)

    def rewind(self) -> None:
        for place in self._consumer.assignment():
            self._consumer.seek(place, self._consumer.committed(place) or 0)

    def done(self) -> None:
        pass

    def close(self) -> None:
        self._consumer.close()
        self._producer.close(timeout=5)


# --- aiokafka -------------------------------------------------------------------------------


class Aiokafka:
    """aiokafka, on a loop in a thread: the group is looked after while the copier thinks."""

    def __init__(self, bootstrap: str, tid: str) -> None:
        import aiokafka

        self._kafka = aiokafka
        self._bootstrap = bootstrap
        self._tid = tid
        self._producer: Any = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        #: Held from the first record that was read to the end of its transaction.
        self._busy = asyncio.Lock()
        self._consumer = self._run(self._subscribed())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * WAIT_S)

    async def _subscribed(self) -> Any:
        busy = self._busy

        class Listener(self._kafka.ConsumerRebalanceListener):  # type: ignore[misc, name-defined] # no types
            async def on_partitions_revoked(self, revoked: object) -> None:
                async with busy:
                    pass

            async def on_partitions_assigned(self, assigned: object) -> None:
                pass

        consumer = self._kafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
            retry_backoff_ms=50,
        )
        await consumer.start()
        consumer.subscribe([SOURCE], listener=Listener())
        return consumer

    def open(self) -> None:
        self._run(self._open())

    async def _open(self) -> None:
        if self._producer is not None:
            old, self._producer = self._producer, None
            # What it may still want to send must not follow the next instance.
            try:
                async with asyncio.timeout(2):
                    await old.stop()
            except Exception as error:
                logging.info("an old producer stopped with %r", error)
        producer = self._kafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=self._tid,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            retry_backoff_ms=50,
        )
        async with asyncio.timeout(WAIT_S):
            await producer.start()
        self._producer = producer

    def read(self) -> Sequence[Input]:
        return self._run(self._read())

    async def _read(self) -> Sequence[Input]:
        found = await self._consumer.getmany(timeout_ms=200, max_records=BATCH)
        if not found or self._busy.locked():
            return []  # what a rebalance takes away begins anew at the committed offset
        await self._busy.acquire()
        return [
            Input(record.partition, record.offset, record.value)
            for records in found.values()
            for record in records
        ]

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> Sequence[int | None]:
        return self._run(self._send(records))

    async def _send(self, records: Sequence[tuple[int, bytes, bytes]]) -> Sequence[int | None]:
        futures = [
            await self._producer.send(TARGET, value, key=key, partition=partition)
            for partition, key, value in records
        ]
        async with asyncio.timeout(WAIT_S):
            return [told.offset for told in await asyncio.gather(*futures)]

    def send_offsets(self, ends: Mapping[int, int]) -> None:
        offsets = {self._kafka.TopicPartition(SOURCE, part): end for part, end in ends.items()}
        self._run(self._producer.send_offsets_to_transaction(offsets, GROUP))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def rewind(self) -> None:
        self._run(self._rewind())

    async def _rewind(self) -> None:
        for place in self._consumer.assignment():
            self._consumer.seek(place, await self._consumer.committed(place) or 0)

    def done(self) -> None:
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        if self._busy.locked():
            self._busy.release()

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)


# --- the copier -----------------------------------------------------------------------------


class Copier:
    """Copies until it is told that the run is over."""

    def __init__(self, client: Client, tid: str, recorder: RemoteRecorder, seed: int) -> None:
        self._client = client
        self._tid = tid
        self._recorder = recorder
        self._run = seed
        self._rng = Random(f"{seed} {tid}")
        self._process = recorder.ask("process")
        self._count = 0

    def work(self) -> None:
        self._open()
        while not self._recorder.is_over:
            records = self._read()
            if records:
                self._copy(records)
                self._client.done()
            # The answer also says whether it is over.
            self._recorder.ask("working" if records else "waiting", tid=self._tid)
        self._client.close()

    def _read(self) -> Sequence[Input]:
        try:
            return self._client.read()
        except Exception as error:
            # Some clients tell whoever reads that the broker is away, and try again when asked.
            logging.info("%s cannot read: %r", self._tid, error)
            time.sleep(0.05)
            return ()

    def _open(self) -> None:
        """A producer with an identity, sooner or later; then back to what is committed."""
        while True:
            call = self._recorder.ask("call", p=self._process, op="open", tid=self._tid)
            outcome = "unknown"
            try:
                self._client.open()
                outcome = "ok"
                self._client.rewind()
            except Exception as error:
                logging.info("%s cannot be opened: %r", self._tid, error)
                time.sleep(0.05)
                self._recorder.ask(outcome, call=call)
                self._process = self._recorder.ask("process")
                if self._recorder.is_over:
                    raise
            else:
                self._recorder.ask(outcome, call=call)
                return

    def _copy(self, records: Sequence[Input]) -> None:
        values = self._recorder.new_values(len(records))
        places = [record.partition % TARGET_PARTITIONS for record in records]
        parts = [f"{TARGET}:{place}" for place in places]
        asked = [["w", part, value] for part, value in zip(parts, values, strict=True)]
        call = self._recorder.ask("call", p=self._process, op="txn", tid=self._tid, steps=asked)
        self._count += 1
        offsets: Sequence[int | None] = [None] * len(records)
        fields: dict[str, Any] = {"call": call}
        is_commit = self._rng.random() > 0.15
        try:
            self._client.begin()
            offsets = self._client.send(
                [
                    (places[index], key_of(record), self._payload(index, values[index]))
                    for index, record in enumerate(records)
                ]
            )
            self._client.send_offsets({record.partition: record.offset + 1 for record in records})
            fields |= {"end": "commit" if is_commit else "abort", "tc": time.monotonic_ns()}
            if is_commit:
                fields["group"] = [GROUP, None, ranges(records)]
                self._client.commit()
            else:
                self._client.abort()
        except Exception as error:
            fields["err"] = repr(error)
        fields["steps"] = writes(zip(parts, values, offsets, strict=True))
        if "err" not in fields:
            self._recorder.ask("ok" if is_commit else "fail", **fields)
            if not is_commit:
                self._go_back()
            return
        logging.info("%s: transaction %d: %s", self._tid, self._count, fields["err"])
        if fields.get("end") == "commit":
            self._recorder.ask("unknown", **fields)
            self._process = self._recorder.ask("process")
            self._open()
            return
        self._recorder.ask("fail", **fields)
        self._give_up()

    def _give_up(self) -> None:
        """Nobody asked for a commit: abort, or let the next instance do so."""
        try:
            self._client.abort()
        except Exception as error:
            logging.info("%s cannot abort: %r", self._tid, error)
            self._process = self._recorder.ask("process")
            self._open()
            return
        self._go_back()

    def _go_back(self) -> None:
        try:
            self._client.rewind()
        except Exception as error:
            logging.info("%s cannot go back: %r", self._tid, error)
            self._process = self._recorder.ask("process")
            self._open()

    def _payload(self, index: int, value: int) -> bytes:
        return encode_payload(
            Payload(
                run=self._run,
                process=self._process,
                txn_number=self._count,
                index=index,
                value=value,
            )
        )


def key_of(record: Input) -> bytes:
    """What names the input in its copy: its partition and its value."""
    return b"%d %d" % (record.partition, decode_payload(record.value).value)


def ranges(records: Sequence[Input]) -> dict[str, list[int]]:
    """From the first to the last of each partition, end exclusive."""
    found: dict[str, list[int]] = {}
    for record in records:
        part = f"{SOURCE}:{record.partition}"
        found.setdefault(part, [record.offset, 0])[1] = record.offset + 1
    return found


def main(client: str, tid: str, bootstrap: str, port: str, seed: str) -> None:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {tid} %(name)s %(message)s")
    for noisy in ("aiokafka", "kafka"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    clients: dict[str, Any] = {
        "confluent": Confluent,
        "impatient": lambda *given: Confluent(*given, is_patient=False),
        "kafka-python": KafkaPython,
        "aiokafka": Aiokafka,
    }
    recorder = RemoteRecorder(int(port))
    Copier(clients[client](bootstrap, tid), tid, recorder, int(seed)).work()


if __name__ == "__main__":
    main(*sys.argv[1:])
