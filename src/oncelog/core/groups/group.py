"""What a classic group is: its members, its generation, and what it still waits for.

A group is a frozen value that is replaced as a whole. What the log knows of it is `written`; the
rest (who is parked, and until when) lives in memory only and is built anew after a restart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from oncelog.core.groups.commands import GroupProtocol
from oncelog.core.groups.records import GroupMetadata, MemberMetadata
from oncelog.core.groups.subscription import CONSUMER, topics_of


class GroupState(Enum):
    """The values are the names that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"  # no members; there may be offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # collects the JoinGroups of a new generation
    COMPLETING_REBALANCE = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"  # every member can have its assignment
    DEAD = "Dead"  # there is no such group: never was, or no longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One client in the group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False  # has not been told a generation yet
    join_ticket: int | None = None  # its JoinGroup is parked
    sync_ticket: int | None = None  # its SyncGroup is parked
    owes_sync: bool = False  # knows the generation, and has not asked for its assignment
    deadline_at_ms: int | None = None  # monotonic; None while parked: it cannot speak

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """What this member tells an assignor; nothing if it does not know it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def heard(self, monotonic_ms: int) -> "Member":
        """The member has shown that it lives; a parked one is not watched anyway."""
        if self.join_ticket is not None or self.sync_ticket is not None:
            return self
        return replace(self, deadline_at_ms=monotonic_ms + self.session_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDelay:
    """An empty group waits a little for company, and longer while company keeps coming."""

    remaining_ms: int
    has_newcomer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """A group whose members assign partitions among themselves."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str | None = None  # None: the group has only ever stored offsets
    protocol_name: str | None = None
    leader: str | None = None
    state_since_ms: int | None = None  # wall: it is stored, and offsets expire by it
    members: Mapping[str, Member] = field(default_factory=dict)  # in order of arrival
    pending: Mapping[str, int] = field(default_factory=dict)  # ids handed out -> their deadline
    initial_delay: InitialDelay | None = None
    phase_ends_at_ms: int | None = None  # monotonic: of collecting joins, or of waiting for syncs
    written: GroupMetadata | None = None  # what the log says

    # --- questions

    def holder_of(self, group_instance_id: str | None) -> Member | None:
        """The static member of this instance id."""
        if group_instance_id is None:
            return None
        members = self.members.values()
        return next((m for m in members if m.group_instance_id == group_instance_id), None)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join."""
        return max((0, *(m.rebalance_timeout_ms for m in self.members.values())))

    @property
    def has_all_joined(self) -> bool:
        """Nobody is missing, not even one who only has an id."""
        return not self.pending and all(m.join_ticket is not None for m in self.members.values())

    def common_protocols(self) -> frozenset[str]:
        """The assignors that every member offers."""
        offers = [frozenset(p.name for p in m.protocols) for m in self.members.values()]
        return offers[0].intersection(*offers[1:]) if offers else frozenset()

    def elected_protocol(self) -> str:
        """Every member votes for the first of its protocols that all of them know."""
        common = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(p.name for p in member.protocols if p.name in common)
            votes[choice] = votes.get(choice, 0) + 1
        # A tie goes to whom the oldest member with one of them voted for: dicts keep their order.
        return max(votes, key=lambda name: votes[name])

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members, or None if one of them does not say."""
        topics: frozenset[str] = frozenset()
        for member in self.members.values():
            chosen = [p for p in member.protocols if p.name == self.protocol_name]
            for protocol in chosen or member.protocols:
                wanted = topics_of(protocol.metadata)
                if wanted is None:
                    return None
                topics |= wanted
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a consumer of this group may be reading the topic; in doubt it may."""
        if self.protocol_type != CONSUMER:
            return False
        topics = self.subscribed_topics()
        return topics is None or topic in topics

    def next_deadline_ms(self) -> int | None:
        """The first instant at which this group changes by itself."""
        deadlines = [m.deadline_at_ms for m in self.members.values()]
        deadlines += (self.phase_ends_at_ms, *self.pending.values())
        return min((d for d in deadlines if d is not None), default=None)

    # --- small changes

    def with_members(self, members: Iterable[Member]) -> "ClassicGroup":
        """The group with these members and no others."""
        return replace(self, members={m.member_id: m for m in members})

    def with_member(self, member: Member) -> "ClassicGroup":
        """The group with one member added or changed."""
        return replace(self, members={**self.members, member.member_id: member})

    def without(self, member_id: str) -> "ClassicGroup":
        """The group when one member is gone; the next in line leads."""
        members = {i: m for i, m in self.members.items() if i != member_id}
        leader = next(iter(members), None) if self.leader == member_id else self.leader
        return replace(self, members=members, leader=leader)

    def without_pending(self, member_id: str) -> "ClassicGroup":
        """The group that no longer waits for the owner of an id."""
        return replace(self, pending={i: d for i, d in self.pending.items() if i != member_id})

    # --- to and from the log

    def metadata(self) -> GroupMetadata:
        """What the log is to know of this group."""
        return GroupMetadata(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader=self.leader,
            state_since_ms=self.state_since_ms,
            members=tuple(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata_for(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ),
        )

    @classmethod
    def from_metadata(cls, written: GroupMetadata) -> "ClassicGroup":
        """The group as a restart finds it."""
        if not written.members:
            state = GroupState.EMPTY
        elif any(member.assignment for member in written.members):
            state = GroupState.STABLE
        else:
            # A generation is written when it begins, still without an assignment. Nobody can
            # have synced with it: the members have to join once more, for a higher one.
            state = GroupState.PREPARING_REBALANCE
        members = (
            Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocols=(
                    GroupProtocol(name=written.protocol_name or "", metadata=member.subscription),
                ),
                assignment=member.assignment,
            )
            for member in written.members
        )
        return cls(
            group_id=written.group_id,
            state=state,
            generation_id=written.generation_id,
            protocol_type=written.protocol_type or None,
            protocol_name=written.protocol_name,
            leader=written.leader,
            state_since_ms=written.state_since_ms,
            members={member.member_id: member for member in members},
            written=written,
        )
