"""What a batch is written to: the driver decides it once, every task follows it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oncelog.core.batch import HEADER_BYTES
from oncelog.core.packing import Codec
from oncelog.spark.encode import BATCH_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic as it is when the batch begins; its partitions are slots, numbered through."""

    name: str
    partitions: int
    first_slot: int
    max_message_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Where the rows of one batch may go, and how they travel."""

    topics: tuple[TopicPlan, ...]
    #: For rows whose `topic` is null or that have no such column.
    default_topic: str | None
    #: The topic for rows that cannot be written; None: such a row fails the batch.
    dead_letters: str | None
    #: Tasks of the write stage; the writer of a slot is `slot % writers`.
    writers: int
    codec: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    transactional: bool = True
    #: Where rows without a key begin: the batch id, say, so that small batches take turns.
    turn: int = 0

    def __post_init__(self) -> None:
        for name in (self.default_topic, self.dead_letters):
            if name is not None and name not in self.names:
                raise ValueError(f"topic {name!r} is not among the declared ones: {self.names}")

    @property
    def names(self) -> list[str]:
        """The declared topics."""
        return [topic.name for topic in self.topics]

    def topic(self, name: str) -> TopicPlan:
        """The topic of that name."""
        return self.topics[self.names.index(name)]

    def limits(self) -> NDArray[np.int64]:
        """What the records of a batch may take, by slot: no batch outgrows its topic."""
        limits = np.zeros(max(t.first_slot + t.partitions for t in self.topics), np.int64)
        for topic in self.topics:
            room = min(self.batch_bytes, topic.max_message_bytes - HEADER_BYTES)
            limits[topic.first_slot : topic.first_slot + topic.partitions] = room
        return limits
