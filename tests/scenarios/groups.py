"""One member of a classic group, who does exactly what a test says."""

from collections.abc import Iterable, Mapping
from typing import Any

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from oncelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.scenarios.wire import TOPIC, Wire


class Member:
    """Joins, syncs, beats, commits, leaves; what it learnt is in its attributes."""

    def __init__(
        self, wire: Wire, group_id: str, *, instance: str | None = None, session_ms: int = 10_000
    ) -> None:
        self.wire = wire
        self.group_id = group_id
        self.instance = instance
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.members: list[str] = []

    async def find_coordinator(self) -> None:
        """What a client does first; the answer may take a moment while the topic is made."""
        reply = await self.wire.ask(FindCoordinatorRequest(key=self.group_id, key_type=0), 3)
        assert reply.error_code == 0, reply

    async def introduce(self) -> None:
        """Get a member id without joining yet (KIP-394): the next round waits for this member."""
        if not self.member_id and self.instance is None:
            reply = await self._ask_to_join(30_000)
            assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED, reply

    async def join(self, *, rebalance_ms: int = 30_000) -> int:
        """Join, and once more with the id that the broker gave; returns the error code."""
        reply = await self._ask_to_join(rebalance_ms)
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            reply = await self._ask_to_join(rebalance_ms)
        if reply.error_code == 0:
            self.generation = reply.generation_id
            self.leader = reply.leader
            self.members = [member.member_id for member in reply.members]
        return reply.error_code

    async def _ask_to_join(self, rebalance_ms: int) -> JoinGroupResponse:
        reply: JoinGroupResponse = await self.wire.ask(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=rebalance_ms,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0")],
            ),
            7,
        )
        self.member_id = reply.member_id
        return reply

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id

    async def sync(self, plan: Mapping[str, bytes] | None = None) -> tuple[int, bytes]:
        """The error code and what this member was assigned; a leader brings everyone's share."""
        shares = plan or {}
        if self.is_leader and plan is None:
            shares = {member_id: member_id.encode() for member_id in self.members}
        reply: SyncGroupResponse = await self.wire.ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                    for member_id, share in shares.items()
                ],
            ),
            5,
        )
        return reply.error_code, bytes(reply.assignment)

    async def beat(self) -> int:
        reply = await self.wire.ask(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            ),
            4,
        )
        return int(reply.error_code)

    async def leave(self) -> int:
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        reply = await self.wire.ask(LeaveGroupRequest(group_id=self.group_id, members=[member]), 4)
        return int(reply.error_code or reply.members[0].error_code)

    async def commit(self, offsets: Mapping[int, int], *, wire: Wire | None = None) -> int:
        """Commit as a member of the current generation, or as nobody before joining."""
        reply = await (wire or self.wire).ask(self.a_commit(offsets), 8)
        (code,) = {part.error_code for part in reply.topics[0].partitions}
        return int(code)

    def a_commit(self, offsets: Mapping[int, int]) -> OffsetCommitRequest:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            for index, offset in offsets.items()
        ]
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )

    async def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        """The offsets that the group has committed; -1 where it has none."""
        topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=[topic])
        reply: Any = await self.wire.ask(OffsetFetchRequest(groups=[group]), 8)
        assert reply.groups[0].error_code == 0, reply
        found = reply.groups[0].topics[0].partitions
        assert not any(part.error_code for part in found), reply
        return {part.partition_index: part.committed_offset for part in found}
