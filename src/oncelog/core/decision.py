"""What a shard says when it is asked: a reply, what to write down, and what to do afterwards."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Reply = TypeVar("Reply")
Record = TypeVar("Record")
Effect = TypeVar("Effect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[Reply, Record, Effect]):
    """The outcome of `decide`: pure data, nothing has happened yet.

    `records` go to the shard's log in one batch and are applied; `effects` start once that batch is
    committed; `notes` are what an operator should know. With a `producer` (its id and epoch) the
    batch is part of that producer's transaction, and counts when its marker says so.
    """

    reply: Reply
    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
    notes: tuple[object, ...] = ()
    producer: tuple[int, int] | None = None
