"""One shard, one writer: decide, append, apply, commit, act.

The host is the same for every shard. It appends the stored records of a decision as one batch,
applies all of them, answers when the batch is committed, and only then starts the effects. Start-up
and replay are one thing: read the log, apply what it holds.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from oncelog.core.batch import HEADER_BYTES, TRANSACTIONAL, BatchHeader, checksum, read_header
from oncelog.core.decision import Decision
from oncelog.core.errors import BrokerError, KafkaStorageError
from oncelog.core.markers import Marker, decode_marker
from oncelog.core.records import KeyValue, Record, decode_records, encode_batch
from oncelog.core.types import Now
from oncelog.runtime.clock import Clock
from oncelog.runtime.partition import Partition, Pending

#: How long a deadline that could not be met waits for another try.
RETRY_S: Final = 1.0


#: A log is worth rewriting when it is this many times as large as the present state.
REWRITE_FACTOR: Final = 4
REWRITE_RECORDS: Final = 1000


class ShardRecord(Protocol):
    """A change of a shard: stored ones go to the log, the others live in memory only."""

    stored: ClassVar[bool]


Command_contra = TypeVar("Command_contra", contravariant=True)
Command = TypeVar("Command")
Reply = TypeVar("Reply")
Effect = TypeVar("Effect")


class Shard(Protocol[Command_contra, Reply, Effect]):
    """A pure state machine with a log."""

    def decide(self, command: Command_contra, now: Now) -> Decision[Reply, Any, Effect]:
        """Say what a command leads to; nothing has changed yet."""

    def apply(self, record: Any, *, offset: int | None) -> None:
        """Take over a record."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """A stored record as the log holds it."""

    def decode(self, key: bytes, value: bytes | None, timestamp_ms: int) -> Any | None:
        """A stored record from the log; None for one that means nothing to us."""

    def decode_pending(
        self, key: bytes, value: bytes | None, timestamp_ms: int, producer_id: int
    ) -> Any | None:
        """As `decode`, for a record of a transaction: it counts when its marker says so."""

    def decode_marker(self, marker: Marker) -> Any | None:
        """The end of a transaction, as a record to apply."""

    def live_records(self) -> Iterator[Any]:
        """The records that would give the present state, if the log held nothing else."""

    def moved(self, record: Any, offset: int) -> None:
        """A live record was written once more, at another place."""

    def next_deadline_ms(self) -> int | None:
        """When `on_deadline` should be called next, in monotonic time."""

    def on_deadline(self, now: Now) -> Decision[Any, Any, Effect]:
        """Do what is due."""


class ShardHost(Generic[Command, Reply, Effect]):
    """A shard at work."""

    def __init__(
        self,
        shard: Shard[Command, Reply, Effect],
        partition: Partition,
        *,
        clock: Clock,
        act: Callable[[Effect], None],
        note: Callable[[object], None],
    ) -> None:
        self._shard = shard
        self._partition = partition
        self._clock = clock
        self._act = act
        self._note = note
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._live_bytes = 0

    def replay(self) -> None:
        """Build the state from the log."""
        log = self._partition.log
        for header, batch in log.walk(log.log_start_offset, log.end()):
            if checksum(batch) != header.crc:
                # One wrong bit, and the shard would remember what nobody has told it.
                raise KafkaStorageError(
                    f"{self._partition.topic_partition} is damaged at offset {header.base_offset}: "
                    "the checksum of that batch does not hold"
                )
            if header.is_control:
                marker = decode_marker(header, batch)
                if marker is not None:
                    self._apply_marker(marker, header.base_offset)
                continue
            for record in decode_records(header, memoryview(batch)[HEADER_BYTES:]):
                decoded = self._decode(header, record)
                if decoded is not None:
                    self._shard.apply(decoded, offset=record.offset)

    def _decode(self, header: BatchHeader, record: Record) -> Any | None:
        if record.key is None:
            return None
        if not header.is_transactional:
            return self._shard.decode(record.key, record.value, record.timestamp)
        return self._shard.decode_pending(
            record.key, record.value, record.timestamp, header.producer_id
        )

    def _apply_marker(self, marker: Marker, offset: int) -> None:
        ended = self._shard.decode_marker(marker)
        if ended is not None:
            self._shard.apply(ended, offset=offset)

    def write_marker(self, marker: Marker, *, transaction_version: int) -> int:
        """Append a marker and apply what it decides; returns the end to wait for."""
        now = self._clock.now()
        result = self._partition.append_marker(marker, now, transaction_version)
        self._apply_marker(marker, result.base_offset)
        self._arm()
        return result.last_offset + 1

    async def rewrite(self, min_bytes: int) -> tuple[Partition, int] | None:
        """Write the present state anew, if most of the log is history.

        Until compaction comes this is what keeps the internal logs small. Returns the partition
        and where it may begin from now on. What a transaction has left pending is in the old part:
        as long as one is open, nothing is moved.
        """
        log = self._partition.log
        if log.size_bytes < max(min_bytes, REWRITE_FACTOR * self._live_bytes):
            return None
        if self._partition.offline is not None or self._partition.producers.stability.is_open:
            return None
        live = list(self._shard.live_records())
        pairs = [KeyValue(*self._shard.encode(record)) for record in live]
        self._live_bytes = sum(len(key) + len(value or b"") for key, value in pairs)
        if log.size_bytes < REWRITE_FACTOR * self._live_bytes:
            return None
        start = self._partition.begin_segment()
        for first in range(0, len(live), REWRITE_RECORDS):
            now = self._clock.now()
            batch = _encode(pairs[first : first + REWRITE_RECORDS], None, now)
            result = self._partition.append(memoryview(batch), read_header(batch), now)
            for index, record in enumerate(live[first : first + REWRITE_RECORDS]):
                self._shard.moved(record, result.base_offset + index)
        await self._partition.wait_committed(self.end_offset)
        return self._partition, start

    async def wait_committed(self) -> None:
        """Wait until everything decided so far is committed, and its effects have begun."""
        await self._partition.wait_committed(self.end_offset)

    @property
    def end_offset(self) -> int:
        """Where the shard's log ends."""
        return self._partition.log.log_end_offset

    def pending(self) -> Pending:
        """What has to be committed for everything decided so far to be in force."""
        return Pending(self._partition, self.end_offset)

    def start_timer(self) -> None:
        """Begin to watch the shard's deadlines."""
        self._arm()

    async def submit(self, command: Command) -> Reply:
        """Let the shard decide, and answer when the decision is committed."""
        try:
            decision = self._shard.decide(command, self._clock.now())
        except BrokerError:
            # A refusal too has seen records that may not be committed yet.
            await self._partition.wait_committed(self._partition.log.log_end_offset)
            raise
        end_offset = self._carry_out(decision)
        # No await above this line but in the refusal: that is all the locking a shard needs.
        await self._partition.wait_committed(end_offset)
        return decision.reply

    def _carry_out(self, decision: Decision[Any, Any, Effect]) -> int:
        """Append and apply; the effects follow by themselves, even if the client hangs up."""
        stored = [record for record in decision.records if record.stored]
        offset: int | None = None
        if stored:
            pairs = [KeyValue(*self._shard.encode(record)) for record in stored]
            now = self._clock.now()
            batch = _encode(pairs, decision.producer, now)
            offset = self._partition.append(memoryview(batch), read_header(batch), now).base_offset
        for record in decision.records:
            if record.stored:
                assert offset is not None, "stored records were appended"
                self._shard.apply(record, offset=offset)
                offset += 1
            else:
                self._shard.apply(record, offset=None)
        for note in decision.notes:
            self._note(note)
        end_offset = self._partition.log.log_end_offset
        self._act_when_committed(end_offset, decision.effects)
        self._arm()
        return end_offset

    def _act_when_committed(self, end_offset: int, effects: tuple[Effect, ...]) -> None:
        if not effects:
            return
        future = self._partition.committed(end_offset)
        if future is None:
            for effect in effects:
                self._act(effect)
            return

        def act(done: asyncio.Future[None]) -> None:
            # Not committed: the log is offline, and after the restart the replay decides.
            if not done.cancelled() and done.exception() is None:
                for effect in effects:
                    self._act(effect)

        future.add_done_callback(act)

    # --- deadlines --------------------------------------------------------------------------------

    def _arm(self) -> None:
        deadline = self._shard.next_deadline_ms()
        if deadline == self._timer_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at_ms = deadline
        if deadline is not None:
            loop = asyncio.get_running_loop()
            # A little late is right, a little early would only arm the timer again.
            self._timer = loop.call_at(deadline / 1000 + 0.001, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_ms = None
        try:
            self._carry_out(self._shard.on_deadline(self._clock.now()))
        except BrokerError as error:
            # The log is offline or full. What is due stays due: try again, but not at once.
            self._note(error)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(RETRY_S, self._on_timer)

    def submit_now(self, command: Command) -> tuple[Reply, asyncio.Future[None] | None]:
        """Decide and carry out without waiting; the future says when it is committed."""
        decision = self._shard.decide(command, self._clock.now())
        end_offset = self._carry_out(decision)
        return decision.reply, self._partition.committed(end_offset)

    def close(self) -> None:
        """Stop watching deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _encode(pairs: list[KeyValue], producer: tuple[int, int] | None, now: Now) -> bytes:
    if producer is None:
        return encode_batch(pairs, timestamp_ms=now.wall_ms)
    # A coordinator's batches do not count records: each begins at sequence 0.
    return encode_batch(
        pairs,
        timestamp_ms=now.wall_ms,
        attributes=TRANSACTIONAL,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
    )
