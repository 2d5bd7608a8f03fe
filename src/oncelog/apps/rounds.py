"""What the three deliveries do with the records between two commits of offsets: a round."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from oncelog.apps.errors import Aborted, AppError
from oncelog.apps.failure import error_of, fatal_error, said
from oncelog.apps.hooks import Hooks
from oncelog.apps.plain import PlainSends
from oncelog.apps.producer import GroupOffsets
from oncelog.apps.sends import Sends
from oncelog.apps.slot import Slot
from oncelog.apps.transactions import Transactions
from oncelog.core import types

#: For each partition the offset of the next record to read.
Ends = Mapping[types.TopicPartition, int]


class Round(Protocol):
    """One round; whoever has begun it ends it, once."""

    sends: Sends
    hooks: Hooks

    def commit(self, ends: Ends) -> None:
        """The records up to these offsets count as handled when this returns."""

    def abort(self) -> AppError | None:
        """They do not; answers why the app cannot go on, if that came out."""


class Rounds(Protocol):
    """Begins them, one after the other, for one consumer."""

    @property
    def is_repeating(self) -> bool:
        """Whether a record that was not handled comes again."""

    def begin(self) -> Round:
        """The next round."""

    def close(self) -> None:
        """There are no more."""


def positions(ends: Ends) -> list[TopicPartition]:
    """Offsets as librdkafka wants them, in order."""
    places = sorted(ends.items())
    return [TopicPartition(place.topic, place.partition, end) for place, end in places]


# --- exactly once ---------------------------------------------------------------------------


class ExactlyOnce:
    """Everything of a round is one transaction, on a slot of our own."""

    is_repeating: Final = True

    def __init__(
        self, transactions: Transactions, slot: Slot, consumer: Consumer, group: str
    ) -> None:
        """The slot stays leased until `close`."""
        self.transactions = transactions
        self.consumer = consumer
        self.group = group
        self._slot = slot

    def begin(self) -> Round:
        """Begin a transaction."""
        return _InTransaction(self, self._slot)

    def close(self) -> None:
        """Give the slot back."""
        self.transactions.pool.release(self._slot)


class _InTransaction:
    def __init__(self, rounds: ExactlyOnce, slot: Slot) -> None:
        self._rounds = rounds
        self._transaction = rounds.transactions.begin_on(slot)
        self.sends: Sends = self._transaction
        self.hooks = self._transaction.hooks

    def commit(self, ends: Ends) -> None:
        metadata = self._rounds.consumer.consumer_group_metadata()
        # Asked in this order: whoever is out of the group by now sends nothing. Brokers would take
        # offsets that name no member for those of an old client, and could not fence it.
        if not self._rounds.consumer.memberid():
            self.abort()
            raise Aborted(f"This member is not in the group {self._rounds.group} any more.")
        offsets = GroupOffsets(
            group=self._rounds.group, positions=positions(ends), metadata=metadata
        )
        try:
            self._transaction.commit(offsets)
        finally:
            self._rounds.transactions.forget(self._transaction)

    def abort(self) -> AppError | None:
        self._rounds.transactions.forget(self._transaction)
        return self._transaction.abort()


# --- at least once, at most once ------------------------------------------------------------


class AtLeastOnce:
    """What was sent is acknowledged, then the offsets are committed."""

    is_repeating: Final = True

    def __init__(self, producer: Producer, consumer: Consumer, *, wait_s: float) -> None:
        """The producer is idempotent and not transactional."""
        self._producer = producer
        self._consumer = consumer
        self._wait_s = wait_s

    def begin(self) -> Round:
        """There is nothing to begin."""
        return _Plain(PlainSends(self._producer, wait_s=self._wait_s), self._consumer)

    def close(self) -> None:
        """Nothing is under way between two rounds."""


class AtMostOnce:
    """The offsets are committed before the records are handed out (`AheadOf`); what fails is gone."""

    is_repeating: Final = False

    def __init__(self, producer: Producer, *, wait_s: float) -> None:
        """The producer is idempotent and not transactional."""
        self._producer = producer
        self._wait_s = wait_s

    def begin(self) -> Round:
        """There is nothing to begin."""
        return _Plain(PlainSends(self._producer, wait_s=self._wait_s), None)

    def close(self) -> None:
        """Nothing is under way between two rounds."""


class _Plain:
    def __init__(self, sends: PlainSends, consumer: Consumer | None) -> None:
        self.sends: Sends = sends
        self.hooks = sends.hooks
        self._plain = sends
        self._consumer = consumer

    def commit(self, ends: Ends) -> None:
        self._plain.flush()
        if self._consumer is not None:
            commit_offsets(self._consumer, ends)

    def abort(self) -> AppError | None:
        return None  # what was sent stays sent: that is what "at least once" means


def commit_offsets(consumer: Any, ends: Ends) -> None:
    """Commit a group's offsets, and wait until that is confirmed."""
    try:
        for found in consumer.commit(offsets=positions(ends), asynchronous=False):
            if found.error is not None:
                raise KafkaException(found.error)
    except KafkaException as raised:
        error = error_of(raised)
        fatal = fatal_error(error, "commit offsets", who="The listener")
        raise fatal or Aborted(f"Offsets were not committed: {said(error)}.") from raised
