"""A record as a handler gets it."""

from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from oncelog.apps.codec import JSON, Codec
from oncelog.core.types import TopicPartition

T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record, and where it stands."""

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    #: When it was written, by the clock of its producer or of the broker.
    timestamp_ms: int | None = None

    @property
    def place(self) -> TopicPartition:
        """The partition that it stands in."""
        return TopicPartition(self.topic, self.partition)

    @property
    def text(self) -> str:
        """The value as text; a tombstone is empty."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """What the value says as JSON; a tombstone is None."""
        return self.decoded(JSON)

    def decoded(self, codec: Codec[T]) -> T:
        """What a codec makes of the value."""
        return codec.decode(self.topic, self.value)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def record_of(message: Message) -> Record:
    """What librdkafka handed over, which is no error."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "it was consumed"
    assert partition is not None, "it was consumed"
    assert offset is not None, "it was consumed"
    kind, timestamp_ms = message.timestamp()
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
    )


def _headers(message: Message) -> Headers:
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return tuple((name, v.encode() if isinstance(v, str) else v) for name, v in pairs)
