"""A transactional producer that is patient: what may be tried again is, for a bounded time.

Each call returns when it is done or raises librdkafka's KafkaException; what that means for the
transaction is decided in `transaction.py`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from oncelog.apps.clients import Clients, Complaints
from oncelog.apps.errors import AppError, Unreachable
from oncelog.apps.failure import Kind, callbacks, error_of, fatal_error, kind_of, said
from oncelog.apps.sends import OnDelivery, Outgoing, flush, make_room, produce

#: How long librdkafka is asked to wait in one call: signals and deadlines are seen in between.
_STEP_S: Final = 1.0
_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """How far a group has come with a transaction, and who says so."""

    group: str
    #: Each with the offset of the next record to read.
    positions: Sequence[TopicPartition]
    #: The member and its generation: brokers refuse the offsets of one that is not in the group.
    metadata: Any


class TransactionalProducer:
    """One producer under one transactional id."""

    def __init__(self, clients: Clients, transactional_id: str, *, wait_s: float) -> None:
        """Nothing is sent before `open`."""
        self.transactional_id = transactional_id
        self._complaints = Complaints(transactional_id)
        self._wait_s = wait_s
        self._producer = clients.transactional(transactional_id, self._complaints)

    def open(self) -> None:
        """Take the id over: what was open under it has ended, and older producers are fenced."""
        who = f"The producer {self.transactional_id}"
        try:
            self._patiently(self._producer.init_transactions)
        except KafkaException as raised:
            error = error_of(raised)
            raise self._explained(error, who) from raised

    def _explained(self, error: KafkaError, who: str) -> AppError:
        # A broker that turns us away looks, to this call, like one that does not answer.
        with suppress(KafkaException):
            make_room(self._producer, 0)
        for each in (error, self._complaints.last):
            if each is not None and (found := fatal_error(each, "begin", who=who)) is not None:
                return found
        last = self._complaints.last or error
        return Unreachable(f"{who} got no answer within {self._wait_s:g} s: {said(last)}.")

    def begin(self) -> None:
        """Open a transaction; the brokers hear of it with its first record."""
        self._producer.begin_transaction()

    def send(self, record: Outgoing, on_delivery: OnDelivery) -> None:
        """Put a record on its way; BufferError: there is no room for it now."""
        produce(self._producer, record, on_delivery)

    def make_room(self, timeout_s: float) -> None:
        """Wait for some records to be delivered."""
        make_room(self._producer, timeout_s)

    def flush(self) -> bool:
        """Wait until the fate of every record is known; whether it was in time."""
        return flush(self._producer, self._wait_s)

    def send_offsets(self, offsets: GroupOffsets) -> None:
        """Make a group's offsets part of the transaction."""
        self._patiently(
            lambda timeout_s: self._producer.send_offsets_to_transaction(
                list(offsets.positions), offsets.metadata, timeout_s
            )
        )

    def commit(self) -> None:
        """Returns when the commit is confirmed."""
        self._patiently(self._producer.commit_transaction)

    def abort(self) -> None:
        """Returns when the abort is confirmed."""
        self._patiently(self._producer.abort_transaction)

    def drop(self) -> None:
        """Send nothing more."""
        self._producer.purge()

    def _patiently(self, call: Callable[[float], None]) -> None:
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                with callbacks():
                    call(_STEP_S)
                return
            except KafkaException as raised:
                if kind_of(error_of(raised)) is not Kind.RETRY or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)
