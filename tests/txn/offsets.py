"""A consumer group as a transaction sees it: its members, and how far it has read."""

from typing import NamedTuple

from oncelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
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
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.core.groups.builders import subscription
from tests.txn.producer import GROUP, TOPIC, find_coordinator
from tests.txn.world import Line


class Committed(NamedTuple):
    """What OffsetFetch says of one partition."""

    error_code: int
    offset: int


def committed(
    line: Line, *partitions: int, group: str = GROUP, require_stable: bool = False
) -> list[Committed]:
    """The group's offsets, by OffsetFetch 8."""
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions or [0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
        require_stable=require_stable,
    )
    (answer,) = line.ask(request, 8).groups
    assert answer.error_code == 0, answer
    return [
        Committed(part.error_code, part.committed_offset)
        for topic in answer.topics
        for part in topic.partitions
    ]


def commit_plainly(line: Line, offset: int, *, group: str = GROUP, partition: int = 0) -> int:
    """OffsetCommit outside of any transaction."""
    part = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
    )
    return int(line.ask(request, 8).topics[0].partitions[0].error_code)


def a_join(member_id: str = "", *, group: str = GROUP) -> JoinGroupRequest:
    """JoinGroup of a classic consumer."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(TOPIC))],
    )


def join_alone(line: Line, *, group: str = GROUP) -> tuple[str, int]:
    """Become the only member of a group: member id and generation."""
    find_coordinator(line, group, key_type=0)
    known: JoinGroupResponse = line.ask(a_join(group=group), 9)
    joined: JoinGroupResponse = line.ask(a_join(known.member_id, group=group), 9)
    assert joined.error_code == 0, joined
    synced = line.ask(a_sync(joined, group=group), 5)
    assert synced.error_code == 0, synced
    return joined.member_id, joined.generation_id


def a_sync(joined: JoinGroupResponse, *, group: str = GROUP) -> SyncGroupRequest:
    """SyncGroup; a leader gives everybody the same."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"")
            for member in joined.members
        ],
    )
