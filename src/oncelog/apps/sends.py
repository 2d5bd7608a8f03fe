"""What is sent, and where `app.send` puts it: into a transaction, or out at once."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from confluent_kafka import KafkaError, Message, Producer

from oncelog.apps.failure import callbacks
from oncelog.apps.hooks import Hook
from oncelog.apps.record import Headers

#: How long librdkafka is asked to wait in one call: signals and deadlines are seen in between.
_STEP_S: Final = 1.0

OnDelivery = Callable[[KafkaError | None, Message], None]
#: As people write them: by name, or in order where a name comes twice.
GivenHeaders = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record on its way."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Sends(Protocol):
    """What takes the records of a function or a handler."""

    def put(self, record: Outgoing) -> None:
        """Take one record."""

    def after_commit(self, hook: Hook) -> None:
        """Call a hook once that to which the records belong is done for good."""


def produce(producer: Producer, record: Outgoing, on_delivery: OnDelivery) -> None:
    """Put a record on its way; BufferError: there is no room for it now."""
    producer.produce(
        record.topic,
        record.value,
        record.key,
        partition=-1 if record.partition is None else record.partition,
        timestamp=0 if record.timestamp_ms is None else record.timestamp_ms,
        headers=list(record.headers),
        on_delivery=on_delivery,
    )
    make_room(producer, 0)


def make_room(producer: Producer, timeout_s: float) -> None:
    """Wait for some records to be delivered."""
    with callbacks():
        producer.poll(timeout_s)


def flush(producer: Producer, wait_s: float) -> bool:
    """Wait until the fate of every record is known; whether it was in time."""
    deadline = time.monotonic() + wait_s
    with callbacks():
        while producer.flush(_STEP_S):
            if time.monotonic() >= deadline:
                return False
    return True
