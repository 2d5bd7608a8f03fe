"""One transaction, from its first record to an end that is known.

Until a commit is asked for, whatever goes wrong means that nothing is visible. From then on an error
says nothing by itself, and the log is asked (`outcome.py`).
"""

import asyncio
import logging
import threading
import time
from enum import Enum, auto
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from oncelog.apps.errors import (
    Aborted,
    AppError,
    BadRecord,
    Busy,
    Doomed,
    Fenced,
    NoTransaction,
    OutcomeUnknown,
    TooSlow,
)
from oncelog.apps.failure import Kind, error_of, fatal_error, is_of_the_record, kind_of, said
from oncelog.apps.hooks import Hook, Hooks
from oncelog.apps.outcome import Outcome, outcome
from oncelog.apps.producer import GroupOffsets
from oncelog.apps.sends import Outgoing
from oncelog.apps.slot import Slot

log = logging.getLogger("oncelog.apps")

_ROOM_S: Final = 0.1


class _State(Enum):
    OPEN = auto()  # takes records
    EXPIRED = auto()  # was aborted because it lasted too long
    OVER = auto()  # takes no more records: it is being ended, or has ended


class Transaction:
    """An open transaction on a slot; its owner ends it, once."""

    def __init__(self, slot: Slot) -> None:
        """Begin it; what the slot's producer can no longer do a new one does."""
        self.slot = slot
        self._producer = slot.begin()
        self._began_s = time.monotonic()
        # Held while a record is handed over: one that came late would join the next transaction.
        self._lock = threading.Lock()
        self._state = _State.OPEN
        self._doom: BaseException | None = None
        #: To be run by whoever commits it.
        self.hooks = Hooks()
        #: Where one of its records stands, and why one was not taken.
        self._sent: TopicPartition | None = None
        self._refused: tuple[str, KafkaError] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is being ended, or has ended: nothing can join it any more."""
        return self._state is _State.OVER

    # --- what is in it ----------------------------------------------------------------------

    def put(self, record: Outgoing) -> None:
        """Take one record; waits for room if there is none."""
        deadline = time.monotonic() + self.slot.wait_s
        while True:
            with self._lock:
                self._check_open()
                try:
                    self._producer.send(record, self._delivered)
                    return
                except BufferError:
                    pass
                except KafkaException as raised:
                    raise self._not_taken(record, error_of(raised)) from raised
            if _is_on_a_loop() or time.monotonic() >= deadline:
                raise Busy(
                    f"There is no room in memory for more records of one transaction (topic "
                    f"{record.topic}): send less in one, or raise queue.buffering.max.messages and "
                    f"queue.buffering.max.kbytes in producer_settings."
                )
            try:
                self._producer.make_room(_ROOM_S)
            except KafkaException as raised:
                raise self._not_taken(record, error_of(raised)) from raised

    def after_commit(self, hook: Hook) -> None:
        """Call a hook once the commit is confirmed, and only then."""
        self._check_open()
        self.hooks.add(hook)

    def doom(self, error: BaseException) -> None:
        """A call that joined failed: the whole must not be committed, even if the caller goes on."""
        self._doom = self._doom or error

    def _check_open(self) -> None:
        if self._state is _State.EXPIRED:
            raise self._too_slow()
        if self._state is _State.OVER:
            raise NoTransaction(
                f"The transaction on {self.slot.name} is over: what outlives it, such as a task or a "
                f"thread, needs a transaction of its own."
            )

    def _not_taken(self, record: Outgoing, error: KafkaError) -> AppError:
        if is_of_the_record(error) or kind_of(error) is Kind.WRONG:
            return BadRecord(f"A record for topic {record.topic} cannot be sent: {said(error)}.")
        # The transaction has failed in the meantime; the abort tells why.
        return Aborted(f"The transaction on {self.slot.name} has failed: {said(error)}.")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None:
            self._refused = self._refused or (topic or "", error)
        elif topic is not None and partition is not None and offset is not None and offset >= 0:
            self._sent = TopicPartition(topic, partition, offset)

    # --- its end ----------------------------------------------------------------------------

    def commit(self, offsets: GroupOffsets | None = None) -> None:
        """Commit it, with a group's offsets: when this returns, it is committed for good."""
        self._close()
        if self._doom is not None:
            self._give_up()
            raise Doomed(
                f"A call that joined this transaction failed, so all of it was aborted, though the "
                f"error was caught: {self._doom!r}. Let the error pass, or do without the call."
            ) from self._doom
        try:
            self._deliver()
            if offsets is not None:
                self._producer.send_offsets(offsets)
        except KafkaException as raised:
            raise self._failed(error_of(raised), self._give_up()) from raised
        try:
            self._producer.commit()
        except KafkaException as raised:
            self._settle(raised, offsets)

    def abort(self) -> AppError | None:
        """Give it up; answers why the app cannot go on, if that came out."""
        with self._lock:
            was_open, self._state = self._state is _State.OPEN, _State.OVER
        return self._give_up() if was_open else None

    def expire(self) -> None:
        """Abort it while that is still ours to do; its owner finds out when it goes on."""
        with self._lock:
            if self._state is _State.OPEN:
                self._state = _State.EXPIRED
                self._give_up()

    def _close(self) -> None:
        with self._lock:
            self._check_open()
            self._state = _State.OVER

    def _too_slow(self) -> TooSlow:
        lasted_s = time.monotonic() - self._began_s
        return TooSlow(
            f"The transaction on {self.slot.name} was aborted since it lasts {lasted_s:.1f} s, near the "
            f"{self.slot.timeout_s:g} s after which the brokers would fence its producer: do less in "
            f"one transaction, or raise transaction_timeout_s."
        )

    def _deliver(self) -> None:
        if not self._producer.flush():
            why = f"not all records were delivered within {self.slot.wait_s:g} s"
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, why))
        if self._refused is not None:
            raise KafkaException(self._refused[1])

    def _give_up(self) -> AppError | None:
        """Abort. Where that fails the slot's next producer does it, or the brokers in the end."""
        try:
            self._producer.abort()
            return None
        except KafkaException as raised:
            self.slot.spoil()
            return self.slot.fatal(error_of(raised), "abort a transaction")

    def _failed(self, error: KafkaError, fatal: AppError | None) -> AppError:
        """What to tell of a transaction that is not committed."""
        fatal = fatal or fatal_error(error, "write", who=self.slot.who)
        if fatal is not None:
            return fatal
        where = f" (topic {self._refused[0]})" if self._refused is not None else ""
        if is_of_the_record(error):
            return BadRecord(f"A record was refused{where}, nothing is visible: {said(error)}.")
        return Aborted(f"The transaction on {self.slot.name} was aborted{where}: {said(error)}.")

    def _settle(self, raised: KafkaException, offsets: GroupOffsets | None) -> None:
        """A commit was asked for and failed: find out what became of it."""
        error = error_of(raised)
        if kind_of(error) is Kind.ABORT:
            fatal = self._give_up()
            if not self.slot.is_spoilt:
                raise self._failed(error, fatal) from raised
        else:
            self.slot.spoil()
            fatal = self.slot.fatal(error, "commit a transaction")
        if not isinstance(fatal, Fenced):
            # Whatever the lost producer left under its id ends when the next one opens.
            try:
                self.slot.open()
            except AppError as unreachable:
                raise self._unknown(error) from unreachable
        match outcome(self.slot.clients, self._sent, offsets, wait_s=self.slot.wait_s):
            case Outcome.COMMITTED:
                log.warning(
                    "the answer to a commit was lost, and it had happened",
                    extra={"fields": {"id": self.slot.name, "error": said(error)}},
                )
            case Outcome.ABORTED:
                raise self._failed(error, fatal) from raised
            case Outcome.UNKNOWN:
                raise self._unknown(error) from raised

    def _unknown(self, error: KafkaError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"The commit on {self.slot.name} was asked for, and it cannot be found out whether it "
            f"happened: {said(error)}. Look for its records before it is done again."
        )


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
