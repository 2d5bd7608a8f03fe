"""Where a worker's records come from: the consumer, or a few of them whose offsets are committed ahead."""

from collections import deque
from contextlib import suppress
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from oncelog.apps.clients import log
from oncelog.apps.errors import Aborted, Misconfigured
from oncelog.apps.failure import Kind, callbacks, error_of, fatal_error, kind_of, said
from oncelog.apps.record import Record, record_of
from oncelog.apps.rounds import commit_offsets


class Source(Protocol):
    """Hands out records, one after the other."""

    def next(self, timeout_s: float) -> Record | None:
        """The next record, or None if none comes in time. Rebalances happen in here."""


class Direct:
    """Records as they come."""

    def __init__(self, consumer: Consumer, who: str) -> None:
        """`who` is the listener, for sentences."""
        self._consumer = consumer
        self._who = who

    def next(self, timeout_s: float) -> Record | None:
        """The next record, or None if none comes in time. Rebalances happen in here."""
        message = polled(self._consumer, timeout_s, self._who)
        return None if message is None else checked(message, self._who)


class AheadOf:
    """Records whose offsets are committed before anybody sees them: none is handed out twice."""

    def __init__(self, consumer: Consumer, who: str, at_once: int) -> None:
        """`at_once` are committed together; a crash loses that many at most."""
        self._consumer = consumer
        self._who = who
        self._at_once = at_once
        self._ready: deque[Record] = deque()

    def next(self, timeout_s: float) -> Record | None:
        """The next record, or None if none comes in time. Rebalances happen in here."""
        if not self._ready:
            first = polled(self._consumer, timeout_s, self._who)
            if first is None:
                return None
            others = self._consumer.consume(self._at_once - 1, 0) if self._at_once > 1 else []
            found = [checked(message, self._who) for message in (first, *others)]
            records = [record for record in found if record is not None]
            if records and self._commit(records):
                self._ready.extend(records)
        return self._ready.popleft() if self._ready else None

    def _commit(self, records: list[Record]) -> bool:
        try:
            # In order, so the last of each partition stands.
            commit_offsets(self._consumer, {each.place: each.offset + 1 for each in records})
            return True
        except Aborted as error:
            log.warning("trouble", extra={"fields": {"listener": self._who, "error": str(error)}})
        # Nobody has seen them yet, so they may be read again; whose partition is gone has lost them.
        first = {each.place: each.offset for each in reversed(records)}
        for place, offset in first.items():
            with suppress(KafkaException):
                self._consumer.seek(TopicPartition(place.topic, place.partition, offset))
        return False


def polled(consumer: Consumer, timeout_s: float, who: str) -> Message | None:
    """The next message; what ends the consumer for good is raised as what it means."""
    try:
        with callbacks():
            return consumer.poll(timeout_s)
    except KafkaException as raised:
        fatal = fatal_error(error_of(raised), "read", who=who)
        raise fatal or raised from raised


def checked(message: Message, who: str) -> Record | None:
    """The record of a message, or None for a passing trouble; what lasts is raised."""
    error = message.error()
    if error is None:
        return record_of(message)
    if kind_of(error) is not Kind.RETRY:
        if (fatal := fatal_error(error, "read", who=who)) is not None:
            raise fatal
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._NO_OFFSET):
        raise Misconfigured(f"{who} cannot go on from its offset: {said(error)}.")
    if error.fatal():
        raise KafkaException(error)
    log.warning("trouble", extra={"fields": {"listener": who, "error": said(error)}})
    return None
