"""The nouns that every part of the broker shares."""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One ordered log."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Now:
    """An instant: wall time for what is stored, monotonic time for deadlines."""

    wall_ms: int
    monotonic_ms: int


OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
#: The broker's own metadata: a log like the others, and no topic that a client could name.
METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC})


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, in wrapping signed 32-bit arithmetic."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=1000)  # Every request of a transaction or of a group asks.
def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that owns a group or a transactional id."""
    value = java_hash(key)
    # Kafka's abs maps the one value that has no positive counterpart to 0.
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
