"""Copiers of different clients, each in a process of its own.

python -m tests.crash.copier CLIENT TRANSACTIONAL_ID BROKER RECORDER SEED
"""

import asyncio
import logging
import sys
import threading
import warnings
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from oncelog.testing.workload.confluent import Confluent
from oncelog.testing.workload.copier import (
    BATCH,
    GROUP,
    SESSION_TIMEOUT_MS,
    SOURCE,
    TARGET,
    TRANSACTION_TIMEOUT_MS,
    WAIT_S,
    Copier,
    Input,
)
from oncelog.testing.workload.recording import RemoteRecorder

T = TypeVar("T")

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
