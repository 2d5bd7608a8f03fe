"""How a transaction ended, from the only witness that cannot be wrong: the log.

When the answer to a commit is lost, what was sent tells: a record of the transaction stands at a known
offset, and a reader of committed records is given it if the transaction was committed and led past it if
not. Of a transaction that sent nothing, the group's offsets tell.
"""

import time
from contextlib import closing
from enum import Enum, auto
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from oncelog.apps.clients import Clients, Complaints
from oncelog.apps.producer import GroupOffsets

_STEP_S: Final = 1.0
_PAUSE_S: Final = 0.05


class Outcome(Enum):
    """What became of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()


def outcome(
    clients: Clients, sent: TopicPartition | None, offsets: GroupOffsets | None, *, wait_s: float
) -> Outcome:
    """Look it up: `sent` is where one of its records stands. It waits until the brokers have decided."""
    deadline = time.monotonic() + wait_s
    group = offsets.group if offsets is not None else f"{clients.client_id}-outcome"
    with closing(clients.witness(group, Complaints(f"{clients.client_id}, looking"))) as consumer:
        while True:
            try:
                if sent is not None:
                    return _by_record(consumer, sent, deadline)
                if offsets is not None:
                    return _by_offsets(consumer, offsets)
                return Outcome.ABORTED
            except KafkaException:
                # No broker is there, or it does not know the end of the log yet.
                if time.monotonic() >= deadline:
                    return Outcome.UNKNOWN
                time.sleep(_PAUSE_S)


def _by_record(consumer: Consumer, sent: TopicPartition, deadline: float) -> Outcome:
    # At this isolation the end of the log is where the first open transaction begins.
    while consumer.get_watermark_offsets(sent, _STEP_S)[1] <= sent.offset:
        if time.monotonic() >= deadline:
            return Outcome.UNKNOWN
        time.sleep(_PAUSE_S)
    if consumer.get_watermark_offsets(sent, _STEP_S)[0] > sent.offset:
        return Outcome.UNKNOWN  # it was so long ago that the record is gone
    consumer.assign([sent])
    while time.monotonic() < deadline:
        message = consumer.poll(_STEP_S)
        if message is None:
            continue
        error, at = message.error(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        assert at is not None, "records and ends have offsets"
        if error is None and at == sent.offset:
            return Outcome.COMMITTED
        if at > sent.offset:
            return Outcome.ABORTED
    return Outcome.UNKNOWN


def _by_offsets(consumer: Consumer, offsets: GroupOffsets) -> Outcome:
    places = [TopicPartition(each.topic, each.partition) for each in offsets.positions]
    # Brokers answer when no transaction on these offsets is open any more.
    for wanted, found in zip(offsets.positions, consumer.committed(places, _STEP_S), strict=True):
        if found.error is not None:
            raise KafkaException(found.error)
        if found.offset < wanted.offset:
            return Outcome.ABORTED
        if found.offset > wanted.offset:
            return Outcome.UNKNOWN  # somebody else has gone on, from there or over it
    return Outcome.COMMITTED
