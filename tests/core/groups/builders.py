"""Groups and commands that name only what a test is about."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import (
    PARKED,
    Answer,
    Command,
    CommitOffsets,
    CommittedOffset,
    CommitTxnOffsets,
    DescribeGroup,
    FetchedOffset,
    FetchOffsets,
    GroupDescription,
    GroupProtocol,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Left,
    MemberIdAssigned,
    OffsetToCommit,
    PartitionOutcome,
    Reply,
    Synced,
    SyncGroup,
    WantedOffsets,
)
from oncelog.core.groups.config import GroupConfig
from oncelog.core.groups.group import ClassicGroup, GroupState, Member
from oncelog.core.groups.shard import GroupShard
from oncelog.core.types import TopicPartition
from tests.core.shard_properties import Harness

GROUP = "orders"
PRODUCER = 4_000
IN = TopicPartition("in", 0)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0)


def subscription(*topics: str, version: int = 1) -> bytes:
    """What Kafka's consumers send as metadata, as far as a broker reads it."""
    parts = [struct.pack(">hi", version, len(topics))]
    for topic in topics:
        parts.append(struct.pack(">h", len(topic)) + topic.encode())
    return b"".join(parts) + struct.pack(">i", -1) + struct.pack(">i", 0)


def protocols(*names: str, topics: Iterable[str] = ("in",)) -> tuple[GroupProtocol, ...]:
    metadata = subscription(*topics)
    return tuple(GroupProtocol(name=name, metadata=metadata) for name in names)


RANGE = protocols("range")


def a_member(
    member_id: str,
    *,
    instance: str | None = None,
    offers: tuple[GroupProtocol, ...] = RANGE,
    join_ticket: int | None = None,
    sync_ticket: int | None = None,
) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=instance,
        client_id="app",
        client_host="/10.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocols=offers,
        join_ticket=join_ticket,
        sync_ticket=sync_ticket,
    )


def a_group(
    *members: Member,
    state: GroupState = GroupState.STABLE,
    generation_id: int = 3,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
    state_since_ms: int | None = None,
) -> ClassicGroup:
    return ClassicGroup(
        group_id=GROUP,
        state=state,
        generation_id=generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name if members else None,
        leader=members[0].member_id if members else None,
        members={member.member_id: member for member in members},
        state_since_ms=state_since_ms,
    )


@dataclass(frozen=True)
class Ticket:
    """A command that was parked: `answer` is what came of it, once it has."""

    number: int
    coordinator: "Coordinator"

    @property
    def answer(self) -> Joined | Synced | BrokerError | None:
        found = [e.outcome for e in self.coordinator.effects if e.ticket == self.number]
        assert len(found) <= 1, f"ticket {self.number} was answered {len(found)} times"
        return found[0] if found else None

    @property
    def joined(self) -> Joined:
        answer = self.answer
        assert isinstance(answer, Joined), answer
        return answer

    @property
    def synced(self) -> Synced:
        answer = self.answer
        assert isinstance(answer, Synced), answer
        return answer


class Coordinator(Harness[GroupShard, Command, Reply, Answer]):
    """A group shard to talk to in the words of a client."""

    def __init__(self, config: GroupConfig = CONFIG) -> None:
        super().__init__(lambda: GroupShard(config))
        self.tickets = 0

    def _ask_with_ticket(self, command: JoinGroup | SyncGroup) -> Ticket:
        reply = self.ask(command)
        if reply is not PARKED:
            assert isinstance(reply, Joined | Synced), reply
            # Answered at once; remembered like an answer that came later.
            self.effects.append(Answer(ticket=command.ticket, outcome=reply))
        return Ticket(command.ticket, self)

    def join(
        self,
        fresh: str = "",
        *,
        member_id: str = "",
        instance: str | None = None,
        offers: tuple[GroupProtocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        can_skip: bool = True,
        group_id: str = GROUP,
    ) -> Ticket:
        """Join like a client that gets its id together with the answer (JoinGroup before v4)."""
        return self._ask_with_ticket(
            self.a_join(
                fresh,
                member_id=member_id,
                instance=instance,
                offers=offers,
                protocol_type=protocol_type,
                session_ms=session_ms,
                rebalance_ms=rebalance_ms,
                can_skip=can_skip,
                group_id=group_id,
            )
        )

    def a_join(
        self,
        fresh: str = "",
        *,
        member_id: str = "",
        instance: str | None = None,
        offers: tuple[GroupProtocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        can_skip: bool = True,
        needs_id: bool = False,
        group_id: str = GROUP,
    ) -> JoinGroup:
        self.tickets += 1
        return JoinGroup(
            ticket=self.tickets,
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance,
            client_id="app",
            client_host="/10.0.0.1",
            protocol_type=protocol_type,
            protocols=offers,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            fresh_member_id=fresh,
            requires_known_member_id=needs_id,
            can_skip_assignment=can_skip,
        )

    def ask_for_id(self, fresh: str) -> str:
        """The first half of a join since v4."""
        reply = self.ask(self.a_join(fresh, needs_id=True))
        assert isinstance(reply, MemberIdAssigned)
        return reply.member_id

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Ticket:
        self.tickets += 1
        return self._ask_with_ticket(
            SyncGroup(
                ticket=self.tickets,
                group_id=GROUP,
                member_id=member_id,
                group_instance_id=instance,
                generation_id=generation_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=tuple((assignments or {}).items()),
            )
        )

    def heartbeat(
        self, member_id: str, generation_id: int, *, instance: str | None = None
    ) -> Reply:
        return self.ask(
            Heartbeat(
                group_id=GROUP,
                member_id=member_id,
                group_instance_id=instance,
                generation_id=generation_id,
            )
        )

    def leave(self, *members: LeavingMember | str) -> tuple[BrokerError | None, ...]:
        leaving = tuple(
            LeavingMember(member_id=member) if isinstance(member, str) else member
            for member in members
        )
        reply = self.ask(LeaveGroup(group_id=GROUP, members=leaving))
        assert isinstance(reply, tuple)
        return tuple(left.error for left in reply if isinstance(left, Left))

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation_id: int | None = None,
        instance: str | None = None,
        partition: TopicPartition = IN,
        metadata: str = "",
        retention_ms: int | None = None,
        group_id: str = GROUP,
    ) -> BrokerError | None:
        reply = self.ask(
            CommitOffsets(
                group_id=group_id,
                member_id=member_id,
                group_instance_id=instance,
                generation_id=generation_id,
                retention_ms=retention_ms,
                offsets=(
                    OffsetToCommit(
                        partition=partition, offset=offset, leader_epoch=None, metadata=metadata
                    ),
                ),
            )
        )
        assert isinstance(reply, tuple)
        (outcome,) = reply
        assert isinstance(outcome, PartitionOutcome)
        return outcome.error

    def commit_in_txn(
        self,
        offset: int,
        *,
        producer_id: int = PRODUCER,
        member_id: str = "",
        generation_id: int | None = None,
        instance: str | None = None,
        partition: TopicPartition = IN,
        metadata: str = "",
        topic_id: UUID | None = None,
        group_id: str = GROUP,
    ) -> BrokerError | None:
        reply = self.ask(
            CommitTxnOffsets(
                group_id=group_id,
                producer_id=producer_id,
                producer_epoch=0,
                member_id=member_id,
                group_instance_id=instance,
                generation_id=generation_id,
                offsets=(
                    OffsetToCommit(
                        partition=partition,
                        offset=offset,
                        leader_epoch=None,
                        metadata=metadata,
                        topic_id=topic_id,
                    ),
                ),
            )
        )
        assert isinstance(reply, tuple)
        (outcome,) = reply
        assert isinstance(outcome, PartitionOutcome)
        return outcome.error

    def committed(
        self, partition: TopicPartition = IN, *, group_id: str = GROUP
    ) -> CommittedOffset | None:
        return self.fetched(partition, group_id=group_id).committed

    def fetched(
        self,
        partition: TopicPartition = IN,
        *,
        topic_id: UUID | None = None,
        group_id: str = GROUP,
    ) -> FetchedOffset:
        wanted = WantedOffsets(
            topic=partition.topic, partitions=(partition.partition,), topic_id=topic_id
        )
        reply = self.ask(FetchOffsets(group_id=group_id, topics=(wanted,)))
        assert isinstance(reply, tuple)
        (fetched,) = reply
        assert isinstance(fetched, FetchedOffset)
        return fetched

    def describe(self, group_id: str = GROUP) -> GroupDescription:
        reply = self.ask(DescribeGroup(group_id=group_id))
        assert isinstance(reply, GroupDescription)
        return reply

    def settle(self, *names: str, offers: tuple[GroupProtocol, ...] = RANGE) -> int:
        """A stable group of these members; the first leads, each is assigned its own name."""
        ticket = self.join(names[0], offers=offers)
        for name in names[1:]:
            self.join(name, offers=offers)
        if len(names) > 1:
            ticket = self.join(member_id=names[0], offers=offers)
        generation_id = ticket.joined.generation_id
        self.assign(generation_id, *names)
        return generation_id

    def assign(self, generation_id: int, leader: str, *others: str) -> None:
        """The leader assigns everyone their own name, and everyone fetches it."""
        shares = {name: name.encode() for name in (leader, *others)}
        name = self.describe_protocol()
        self.sync(leader, generation_id, shares, protocol_name=name)
        for other in others:
            ticket = self.sync(other, generation_id, protocol_name=name)
            assert ticket.synced.assignment == other.encode()

    def describe_protocol(self) -> str | None:
        """The assignor of the current generation, as the members were told."""
        told = [e.outcome for e in self.effects if isinstance(e.outcome, Joined)]
        return told[-1].protocol_name
