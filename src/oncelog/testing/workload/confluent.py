"""A copier that uses confluent-kafka, in a process of its own.

    python -m oncelog.testing.workload.confluent PATIENCE ID BROKER RECORDER SEED SESSION_MS

PATIENCE is `patient` or `impatient`, ID its transactional id, RECORDER the port of a
`RecordingServer`.
"""

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import confluent_kafka

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


class Confluent:
    """librdkafka; one that is impatient often does not wait for the end of its commit."""

    def __init__(
        self,
        bootstrap: str,
        tid: str,
        *,
        is_patient: bool = True,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
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
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": 300,
            }
        )
        self._consumer.subscribe([SOURCE])

    def open(self) -> None:
        """Get an identity; whatever was open under the transactional id has ended."""
        if self._producer is not None:
            self._producer.purge()
        self._producer = confluent_kafka.Producer(
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
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def read(self) -> Sequence[Input]:
        """Some records, or none."""
        messages: list[Any] = self._consumer.consume(BATCH, timeout=0.2)
        return [
            Input(message.partition(), message.offset(), message.value())
            for message in messages
            if not message.error()
        ]

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.begin_transaction()

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> Sequence[int | None]:
        """Write (partition, key, value), and wait; answers their offsets."""
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
        """The input is consumed up to here."""
        offsets = [confluent_kafka.TopicPartition(SOURCE, part, end) for part, end in ends.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._patiently(self._producer.send_offsets_to_transaction, 2.0, offsets, metadata)

    def commit(self) -> None:
        """End the transaction; returns when that is confirmed."""
        if self._rng is not None and self._rng.random() < 0.5:
            self._producer.commit_transaction(self._rng.choice((0.0, 0.001, 0.003)))
        else:
            self._patiently(self._producer.commit_transaction, 2.0)

    def abort(self) -> None:
        """End the transaction; returns when that is confirmed."""
        self._patiently(self._producer.abort_transaction, 2.0)

    def rewind(self) -> None:
        """Go back to the committed offsets."""
        for place in self._consumer.committed(self._consumer.assignment(), WAIT_S):
            if place.error is not None:
                raise RuntimeError(str(place.error))
            self._consumer.seek(
                confluent_kafka.TopicPartition(SOURCE, place.partition, max(place.offset, 0))
            )

    def done(self) -> None:
        """Partitions are given up while it reads, never within a transaction."""

    def close(self) -> None:
        """Leave in order."""
        self._consumer.close()


def main(patience: str, tid: str, bootstrap: str, port: str, seed: str, session_ms: str) -> None:
    """Copy until the recorder says that the run is over."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {tid} %(message)s")
    recorder = RemoteRecorder(int(port))
    client = Confluent(
        bootstrap, tid, is_patient=patience == "patient", session_timeout_ms=int(session_ms)
    )
    Copier(client, tid, recorder, int(seed)).work()


if __name__ == "__main__":
    main(*sys.argv[1:])
