"""What holds for every shard, checked at each step of whatever a test does with one.

`decide` and `on_deadline` change nothing, and replaying the log gives the stored state that the live
shard has. A test drives a shard through a `Harness` and gets both for free; that every (state, input)
of a table has an answer is `assert_total`'s to say.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from oncelog.core.decision import Decision
from oncelog.core.markers import Marker
from oncelog.core.types import Now

Command = TypeVar("Command")
Command_contra = TypeVar("Command_contra", contravariant=True)
Reply = TypeVar("Reply")
Effect = TypeVar("Effect")


class AnyShard(Protocol[Command_contra, Reply, Effect]):
    """A shard as a host sees it, and what a test may compare."""

    def decide(self, command: Command_contra, now: Now) -> Decision[Reply, Any, Effect]: ...
    def apply(self, record: Any, *, offset: int | None) -> None: ...
    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...
    def decode(self, key: bytes, value: bytes | None, timestamp_ms: int) -> Any | None: ...
    def decode_pending(
        self, key: bytes, value: bytes | None, timestamp_ms: int, producer_id: int
    ) -> Any | None: ...
    def decode_marker(self, marker: Marker) -> Any | None: ...
    def next_deadline_ms(self) -> int | None: ...
    def on_deadline(self, now: Now) -> Decision[Any, Any, Effect]: ...
    def loaded(self, now: Now) -> object: ...
    def stored_state(self) -> object: ...


Shard = TypeVar("Shard", bound=AnyShard[Any, Any, Any])


@dataclass(frozen=True, slots=True)
class Logged:
    """A record in the log, of a transaction if it has a producer."""

    key: bytes
    value: bytes | None
    producer_id: int | None


START = Now(wall_ms=1_700_000_000_000, monotonic_ms=5_000_000)


class Harness(Generic[Shard, Command, Reply, Effect]):
    """A host without a disk: a shard, its log as a list of bytes, and a clock that is told."""

    def __init__(self, make: Callable[[], Shard]) -> None:
        self._make = make
        self.shard = make()
        self.now = START
        self.log: list[Logged | Marker] = []
        self.effects: list[Effect] = []
        self.notes: list[object] = []
        self.shard.loaded(self.now)

    def ask(self, command: Command) -> Reply:
        """Decide, append, apply; the log commits at once, so the effects follow at once."""
        before = digest(self.shard)
        try:
            decision: Decision[Reply, Any, Effect] = self.shard.decide(command, self.now)
        finally:
            assert digest(self.shard) == before, f"deciding {command} has changed the shard"
        self._carry_out(decision)
        return decision.reply

    def advance(self, *, ms: int, wall_ms: int | None = None) -> None:
        """Let time pass, and everything happen that is due on the way."""
        end_ms = self.now.monotonic_ms + ms
        wall_step = ms if wall_ms is None else wall_ms
        end_wall_ms = self.now.wall_ms + wall_step
        for _ in range(100_000):
            due_ms = self.shard.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            reached_ms = max(due_ms, self.now.monotonic_ms)
            self.now = Now(end_wall_ms - (end_ms - reached_ms), reached_ms)
            before = digest(self.shard)
            decision = self.shard.on_deadline(self.now)
            assert digest(self.shard) == before, "on_deadline has changed the shard"
            assert decision.records, "a deadline that changes nothing would be due for ever"
            self._carry_out(decision)
        else:
            raise AssertionError("the deadlines never end")
        self.now = Now(end_wall_ms, end_ms)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Append a marker and apply what it decides."""
        marker = Marker(
            producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0
        )
        self.log.append(marker)
        self._apply(self.shard, len(self.log) - 1)

    def crash(self) -> None:
        """Lose the memory, keep the log."""
        lost = self.shard.stored_state()
        self.shard = self.replay()
        assert self.shard.stored_state() == lost, "replay gives another state than the live one"
        self.shard.loaded(self.now)

    def replay(self) -> Shard:
        """A shard that has read the log."""
        shard = self._make()
        for offset in range(len(self.log)):
            self._apply(shard, offset)
        return shard

    def _apply(self, shard: Shard, offset: int) -> None:
        """Let a shard take over what the log has at an offset."""
        match self.log[offset]:
            case Marker() as marker:
                record = shard.decode_marker(marker)
            case Logged(key, value, None):
                record = shard.decode(key, value, self.now.wall_ms)
            case Logged(key, value, int(producer_id)):
                record = shard.decode_pending(key, value, self.now.wall_ms, producer_id)
        if record is not None:
            shard.apply(record, offset=offset)

    def _carry_out(self, decision: Decision[Any, Any, Effect]) -> None:
        producer_id = None if decision.producer is None else decision.producer[0]
        for record in decision.records:
            if record.stored:
                self.log.append(Logged(*self.shard.encode(record), producer_id))
                self.shard.apply(record, offset=len(self.log) - 1)
            else:
                self.shard.apply(record, offset=None)
        self.effects += decision.effects
        self.notes += decision.notes


def digest(value: object) -> object:
    """A copy of a value down to its atoms, to be compared with a later one."""
    if value is None or isinstance(value, str | bytes | int | float | Enum):
        return value
    if isinstance(value, Mapping):
        return [(digest(key), digest(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, Iterable):
        return [digest(item) for item in value]
    if is_dataclass(value):
        return [(f.name, digest(getattr(value, f.name))) for f in fields(value)]
    if hasattr(value, "__dict__"):
        return digest(vars(value))
    return repr(value)


def assert_total(
    table: Mapping[Any, Mapping[Any, object]], rows: type[Enum], columns: type[Enum]
) -> None:
    """Every row has every column."""
    assert set(table) == set(rows)
    for row, cells in table.items():
        assert set(cells) == set(columns), f"{row} leaves something out"
