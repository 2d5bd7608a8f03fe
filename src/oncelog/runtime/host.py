"""One shard, one writer: decide, append, apply, commit, act.

The host is the same for every shard. It appends the stored records of a decision as one batch,
applies all of them, answers when the batch is committed, and only then starts the effects. Start-up
and replay are one thing: read the log, apply what it holds.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from oncelog.core.batch import HEADER_BYTES, read_header
from oncelog.core.decision import Decision
from oncelog.core.errors import BrokerError
from oncelog.core.records import KeyValue, decode_records, encode_batch
from oncelog.core.types import Now
from oncelog.runtime.clock import Clock
from oncelog.runtime.partition import Partition


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

    def replay(self) -> None:
        """Build the state from the log."""
        log = self._partition.log
        for header, batch in log.walk(log.log_start_offset, log.end()):
            body = memoryview(batch)[HEADER_BYTES:]
            for record in decode_records(header, body):
                if record.key is None:
                    continue
                decoded = self._shard.decode(record.key, record.value, record.timestamp)
                if decoded is not None:
                    self._shard.apply(decoded, offset=record.offset)

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
            batch = encode_batch(pairs, timestamp_ms=now.wall_ms)
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
            self._note(error)  # The log is offline or full; clients are told when they ask.

    def close(self) -> None:
        """Stop watching deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
