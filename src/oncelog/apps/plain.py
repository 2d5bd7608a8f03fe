"""What is sent without a transaction: visible as soon as it is acknowledged."""

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from oncelog.apps.errors import Aborted, AppError, BadRecord, Busy
from oncelog.apps.failure import error_of, fatal_error, is_of_the_record, said
from oncelog.apps.hooks import Hook, Hooks
from oncelog.apps.sends import Outgoing, flush, make_room, produce

_ROOM_S: Final = 0.1


class PlainSends:
    """The records of one round of an idempotent producer."""

    def __init__(self, producer: Producer, *, wait_s: float) -> None:
        """The producer belongs to one thread."""
        self._producer = producer
        self._wait_s = wait_s
        self.hooks = Hooks()
        self._refused: tuple[str, KafkaError] | None = None

    def put(self, record: Outgoing) -> None:
        """Send one record; waits for room if there is none."""
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                produce(self._producer, record, self._delivered)
                return
            except BufferError:
                if time.monotonic() >= deadline:
                    raise Busy(f"There was no room for a record of topic {record.topic}.") from None
                make_room(self._producer, _ROOM_S)
            except KafkaException as raised:
                raise self._failed(record.topic, error_of(raised)) from raised

    def after_commit(self, hook: Hook) -> None:
        """Call a hook when the round is done."""
        self.hooks.add(hook)

    def flush(self) -> None:
        """Wait until all is acknowledged."""
        try:
            is_done = flush(self._producer, self._wait_s)
        except KafkaException as raised:
            raise self._failed("", error_of(raised)) from raised
        if not is_done:
            raise Aborted(f"Not everything was delivered within {self._wait_s:g} s.")
        if self._refused is not None:
            raise self._failed(*self._refused)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused = self._refused or (message.topic() or "", error)

    def _failed(self, topic: str, error: KafkaError) -> AppError:
        if (fatal := fatal_error(error, f"write to {topic}", who="The listener")) is not None:
            return fatal
        if is_of_the_record(error):
            return BadRecord(f"A record for topic {topic} was refused: {said(error)}.")
        return Aborted(f"A record for topic {topic} was not delivered: {said(error)}.")
