"""One worker of a listener: a consumer, a thread, and rounds of records that are committed together.

A round takes what is there, up to the listener's limits. If it fails it is aborted and the consumer goes
back to what is committed. A record that is suspected of the failure then gets a round of its own, so
that the others are not held up, and after enough tries it becomes a dead letter.
"""

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from oncelog.apps.calls import Calls
from oncelog.apps.dead_letters import letter_headers, reason
from oncelog.apps.errors import (
    Aborted,
    AppError,
    BadRecord,
    Fatal,
    OutcomeUnknown,
    Poisoned,
    TooSlow,
    Unreachable,
)
from oncelog.apps.failure import error_of, fatal_error
from oncelog.apps.functions import pause_s
from oncelog.apps.listener import Counts, Listener
from oncelog.apps.record import Record
from oncelog.apps.rounds import Round, Rounds
from oncelog.apps.sends import Outgoing
from oncelog.apps.source import Source
from oncelog.core import types

log = logging.getLogger("oncelog.apps")

#: How long a worker without work waits before it looks whether it is to stop.
_IDLE_S: Final = 0.25
#: How long a round waits for one more record.
_LINGER_S: Final = 0.01
_STEP_S: Final = 2.0
_COUNT_EVERY_S: Final = 0.5


class Worker:
    """Runs until it is told to stop, or until something ends it."""

    def __init__(
        self,
        listener: Listener,
        *,
        consumer: Consumer,
        source: Source,
        rounds: Rounds,
        calls: Calls,
        stopping: threading.Event,
    ) -> None:
        """All of them are this worker's own, but for `stopping`."""
        self.counts = Counts()
        self._listener = listener
        self._consumer = consumer
        self._source = source
        self._rounds = rounds
        self._calls = calls
        self._stopping = stopping
        self._round: Round | None = None
        self._began_s = 0.0
        #: The records of the round.
        self._taken: list[Record] = []
        #: Records that a round may have failed of, with how often each has failed by itself, and why.
        self._suspects: dict[tuple[types.TopicPartition, int], tuple[int, str]] = {}
        self._failures = 0
        self._counted_s = 0.0

    def run(self) -> None:
        """Work; whatever ends it but a stop is raised."""
        self._consumer.subscribe(
            list(self._listener.topics), on_revoke=self._revoked, on_lost=self._lost
        )
        try:
            while not self._stopping.is_set():
                record = self._source.next(_IDLE_S if self._round is None else _LINGER_S)
                if record is None:
                    self._finish()
                else:
                    self._take(record)
                self._measure()
            self._finish()
        finally:
            self._abandon()
            self._consumer.close()
            self._rounds.close()

    # --- one record -------------------------------------------------------------------------

    def _take(self, record: Record) -> None:
        tries, why = self._suspects.get((record.place, record.offset), (None, ""))
        if tries is not None and not self._finish(held=record):
            return
        try:
            round_ = self._opened()
            self._taken.append(record)
            if tries is not None and tries >= self._listener.tries:
                self._bury(record, round_, tries, why)
            else:
                self._calls(record, round_.sends)
        except (Fatal, Poisoned):
            raise
        except (Aborted, Unreachable) as error:
            # The brokers failed, not the record.
            self._go_back(error, held=record)
        except Exception as error:
            self._blame(record, error)
        else:
            is_late = time.monotonic() - self._began_s >= self._listener.max_seconds
            is_full = len(self._taken) >= self._listener.max_records
            if tries is not None or is_late or is_full:
                self._finish()

    def _opened(self) -> Round:
        if self._round is None:
            self._round = self._rounds.begin()
            self._began_s = time.monotonic()
        return self._round

    def _bury(self, record: Record, round_: Round, tries: int, why: str) -> None:
        if self._listener.dead_letters is None:
            raise Poisoned(
                f"{self._listener.name} failed {tries} times with {record}: {why}. The record is not "
                f"consumed. Correct the handler, or name a topic with dead_letters= that takes what it "
                f"cannot handle."
            )
        self._send_letter(record, round_, tries, why)

    def _send_letter(self, record: Record, round_: Round, tries: int, why: str) -> None:
        assert self._listener.dead_letters is not None, "there is a topic"
        headers = letter_headers(record, why=why, tries=tries, group=self._listener.group)
        round_.sends.put(
            Outgoing(
                topic=self._listener.dead_letters,
                key=record.key,
                value=record.value,
                headers=headers,
            )
        )
        fields = {"record": str(record), "tries": tries, "why": why}
        log.warning("a record became a dead letter", extra={"fields": fields})
        self.counts.dead_letters += 1

    def _blame(self, record: Record, error: Exception) -> None:
        """The handler failed."""
        if not self._rounds.is_repeating:
            self._let_go(record, error)
            return
        spot = record.place, record.offset
        tries = self._suspects.get(spot, (0, ""))[0] + 1
        self._suspects[spot] = tries, reason(error)
        self._tell("a handler failed", record=str(record), tries=tries, why=reason(error))
        if tries == 1:
            log.debug("the handler's error", exc_info=error)
        self._go_back(error)

    def _let_go(self, record: Record, error: Exception) -> None:
        """At most once: it had its chance."""
        self._tell("a record is lost", record=str(record), why=reason(error))
        if self._listener.dead_letters is not None:
            self._send_letter(record, self._opened(), 1, reason(error))

    # --- the end of a round -----------------------------------------------------------------

    def _finish(self, held: Record | None = None) -> bool:
        """Commit the round, if there is one; else go back, with a record in hand too. Did it succeed?"""
        if self._round is None:
            return True
        round_, taken = self._round, self._taken
        try:
            round_.commit({record.place: record.offset + 1 for record in taken})
        except BadRecord as error:
            self._round = None
            self._suspect(taken, error)
            self._go_back(error, held=held)
            return False
        except TooSlow as error:
            self._round = None
            self._suspect(taken[-1:], error)
            self._go_back(error, held=held)
            return False
        except (Aborted, OutcomeUnknown) as error:
            self._round = None
            self._go_back(error, held=held)
            return False
        self._round, self._taken = None, []
        for record in taken:
            self._suspects.pop((record.place, record.offset), None)
        self._failures = 0
        self.counts.records += len(taken)
        self.counts.transactions += 1
        round_.hooks.run()
        return True

    def _suspect(self, records: list[Record], error: AppError) -> None:
        """The round failed of one of these records; of which, rounds of their own will tell."""
        is_sure = len(records) == 1
        for record in records:
            spot = record.place, record.offset
            tries, _ = self._suspects.get(spot, (0, ""))
            self._suspects[spot] = tries + is_sure, reason(error)

    def _go_back(self, error: Exception, held: Record | None = None) -> None:
        """Abort what is open and read on from what is committed."""
        self._failures += 1
        self.counts.aborts += 1
        first = self._first_offsets(held)
        self._tell("a round was aborted", records=len(self._taken), why=reason(error))
        if (fatal := self._abandon()) is not None:
            raise fatal from error
        if not self._rounds.is_repeating:
            return
        self._stopping.wait(pause_s(self._failures))
        self._rewind(first)

    def _abandon(self) -> AppError | None:
        round_, self._round, self._taken = self._round, None, []
        return None if round_ is None else round_.abort()

    def _first_offsets(self, held: Record | None) -> dict[types.TopicPartition, int]:
        first: dict[types.TopicPartition, int] = {}
        for record in (*self._taken, *([held] if held else ())):
            first.setdefault(record.place, record.offset)
        return first

    def _rewind(self, first: dict[types.TopicPartition, int]) -> None:
        """Back to what is committed; where nothing is, to the first record of the round."""
        while first and not self._stopping.is_set():
            try:
                ours = {(each.topic, each.partition) for each in self._consumer.assignment()}
                places = [
                    TopicPartition(place.topic, place.partition)
                    for place in sorted(first)
                    if (place.topic, place.partition) in ours
                ]
                for found in self._consumer.committed(places, _STEP_S) if places else ():
                    if found.error is not None:
                        raise KafkaException(found.error)
                    place = types.TopicPartition(found.topic, found.partition)
                    at = found.offset if found.offset >= 0 else first[place]
                    self._consumer.seek(TopicPartition(place.topic, place.partition, at))
                return
            except KafkaException as raised:
                error = error_of(raised)
                if (fatal := fatal_error(error, "go back", who=self._listener.name)) is not None:
                    raise fatal from raised
                self._stopping.wait(pause_s(self._failures))

    # --- rebalances: called in `Source.next`, by this very thread -----------------------------

    def _revoked(self, consumer: Consumer, places: Iterable[TopicPartition]) -> None:
        """Others will have these partitions: what is begun with them is ended while they are ours."""
        self._finish()
        self._forget(places)

    def _lost(self, consumer: Consumer, places: Iterable[TopicPartition]) -> None:
        """Others may have these partitions by now: what is begun with them must not count."""
        if self._round is not None:
            self.counts.aborts += 1
            self._tell("partitions were lost", records=len(self._taken))
            self._abandon()
        self._forget(places)

    def _forget(self, places: Iterable[TopicPartition]) -> None:
        gone = {types.TopicPartition(each.topic, each.partition) for each in places}
        self._suspects = {spot: at for spot, at in self._suspects.items() if spot[0] not in gone}

    # --- what is told -----------------------------------------------------------------------

    def _measure(self) -> None:
        now = time.monotonic()
        if now - self._counted_s < _COUNT_EVERY_S:
            return
        self._counted_s = now
        lag = 0
        with suppress(KafkaException):
            for place in self._consumer.position(self._consumer.assignment()):
                low, high = self._consumer.get_watermark_offsets(place, cached=True)
                if high >= 0:
                    at = place.offset if place.offset >= 0 else max(low, 0)
                    lag += max(0, high - at)
        self.counts.lag = lag

    def _tell(self, what: str, **fields: object) -> None:
        handler = self._listener.handler.__name__
        log.warning(what, extra={"fields": {"listener": handler, **fields}})
