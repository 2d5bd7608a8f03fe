"""Everything that can change a group shard: what the log holds, and what lives in memory only."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from oncelog.core.decision import Decision
from oncelog.core.groups.commands import Effect, Reply
from oncelog.core.groups.group import ClassicGroup
from oncelog.core.groups.records import StoredRecord

#: The kinds of groups; a KIP-848 group (`consumer.py`) will be the second member of this union.
Group: TypeAlias = ClassicGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChanged:
    """A group as it is from now on. What of it has to last is in the stored records beside it."""

    stored: ClassVar[bool] = False

    group: Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Old offsets were looked for, and the next time is set."""

    stored: ClassVar[bool] = False

    next_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """What a producer has committed inside its transaction counts from now on, or never will.

    No decision has it: it is made from the marker, which the host writes and reads.
    """

    stored: ClassVar[bool] = False

    producer_id: int
    committed: bool


Record: TypeAlias = StoredRecord | GroupChanged | Swept | TransactionEnded
GroupDecision: TypeAlias = Decision[Reply, Record, Effect]
