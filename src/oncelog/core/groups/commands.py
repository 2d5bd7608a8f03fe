"""What a group shard is asked, and what it says.

Each command is one API's request with its versions lowered away: no `-1`, no null that means two
things. A command with a `ticket` may be answered `PARKED`: the answer then follows as the effect
`Answer(ticket)` of a later decision. Every parked ticket is answered exactly once.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal, TypeAlias
from uuid import UUID

from oncelog.core.errors import BrokerError
from oncelog.core.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProtocol:
    """One assignor that a member offers, and what it wants the assignor to know."""

    name: str
    metadata: bytes


# --- commands -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A client wants into the next generation, or back into this one."""

    ticket: int
    group_id: str
    member_id: str  # empty for a newcomer
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]  # the preferred one first
    session_timeout_ms: int
    rebalance_timeout_ms: int
    fresh_member_id: str  # the id of this member, should it need one
    requires_known_member_id: bool  # v4: the client can be sent away to come back with its id
    can_skip_assignment: bool  # v9: the client understands skip_assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member asks for its assignment; the leader brings everyone's."""

    ticket: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None  # v5; None asks for no check
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]  # by member id; only the leader's count


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member says that it lives."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """Who leaves."""

    member_id: str  # empty: whoever holds the instance id
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members go, or an operator removes them."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    """How far a consumer has come in one partition."""

    partition: TopicPartition
    offset: int
    leader_epoch: int | None
    metadata: str
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """A consumer has come this far."""

    group_id: str
    member_id: str  # empty for a client outside the group protocol
    group_instance_id: str | None
    generation_id: int | None
    retention_ms: int | None  # v2-4 let the client choose
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTxnOffsets:
    """A consumer has come this far, if the producer's transaction is committed."""

    group_id: str
    producer_id: int
    producer_epoch: int
    member_id: str  # empty for a client outside the group protocol, and before v3
    group_instance_id: str | None
    generation_id: int | None
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOffsets:
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]
    topic_id: UUID | None = None  # v10 asks by id: a namesake's offsets do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """How far has the group come?"""

    group_id: str
    topics: tuple[WantedOffsets, ...] | None  # None asks for all


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """An operator forgets offsets that nobody uses."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """An operator forgets groups without members."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """Who is in the group, and what does everyone have?"""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """Which groups are there?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """A topic is gone; with its id, offsets committed for a later namesake are spared."""

    topic: str
    topic_id: UUID | None = None


Command: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | CommitTxnOffsets
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroups
    | DescribeGroup
    | ListGroups
    | TopicDeleted
)


# --- replies --------------------------------------------------------------------------------


class Parked(Enum):
    """The type of `PARKED`, so that `match` and mypy can tell it from every answer."""

    PARKED = auto()


PARKED: Final = Parked.PARKED


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdAssigned:
    """MEMBER_ID_REQUIRED on the wire (KIP-394): come back with this id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The new generation; only the leader is shown its members."""

    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...]
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The assignment of one member."""

    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The heartbeat counted; while the group rebalances the client is told REBALANCE_IN_PROGRESS.

    It is no error here, because an error would write nothing down, and this member has been heard.
    """

    is_rebalancing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What became of one member of a LeaveGroup."""

    member_id: str
    group_instance_id: str | None
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """What became of one partition of a request."""

    partition: TopicPartition
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """An offset as OffsetFetch shows it."""

    offset: int
    leader_epoch: int | None
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """What the group has committed for a partition; `None` where it has committed nothing."""

    partition: TopicPartition
    topic_id: UUID | None
    committed: CommittedOffset | None
    is_stable: bool  # no transaction holds an undecided offset for it


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """What became of one group of a request."""

    group_id: str
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as DescribeGroups shows it."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: Literal["classic"]  # "consumer" joins it with KIP-848


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsForgotten:
    """How many offsets went with the topic."""

    count: int


Reply: TypeAlias = (
    Literal[Parked.PARKED]
    | MemberIdAssigned
    | Joined
    | Synced
    | Alive
    | tuple[Left, ...]
    | tuple[PartitionOutcome, ...]
    | tuple[FetchedOffset, ...]
    | tuple[GroupOutcome, ...]
    | tuple[GroupListing, ...]
    | GroupDescription
    | OffsetsForgotten
    | None
)


# --- effects and notes ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a command that was parked."""

    ticket: int
    outcome: Joined | Synced | BrokerError


Effect: TypeAlias = Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRebalanced:
    """A note: a new generation has begun, or the last member is gone."""

    group_id: str
    generation_id: int
    member_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberExpired:
    """A note: a member was not heard of in time."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired:
    """A note: committed offsets and empty groups were dropped for their age."""

    offset_count: int
    group_count: int
