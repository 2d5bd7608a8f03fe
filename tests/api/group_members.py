"""Consumers as the group APIs see them, for tests over a real socket."""

from typing import Any

from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
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
from tests.api.in_process import InProcessBroker
from tests.core.groups.builders import subscription

GROUP = "orders"
TOPIC = "in"


def find_coordinator(broker: InProcessBroker, group_id: str = GROUP) -> None:
    """What every client does first; it makes the topic of offsets."""
    response = broker.ask(FindCoordinatorRequest(key=group_id, key_type=0), 3)
    assert response.error_code == 0, response


def a_join(
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance: str | None = None,
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    metadata: bytes = subscription(TOPIC),
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(broker: InProcessBroker, version: int = 9, **wanted: Any) -> JoinGroupResponse:
    """Join, in two steps where the version has two."""
    response: JoinGroupResponse = broker.ask(a_join(**wanted), version)
    if response.error_code == 79:
        again = a_join(response.member_id, **wanted)
        response = broker.ask(again, version)
    return response


def a_sync(
    joined: JoinGroupResponse,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ],
    )


def settle(broker: InProcessBroker, instance: str | None = None) -> JoinGroupResponse:
    """A stable group with one member, which is assigned `share`."""
    find_coordinator(broker)
    joined = join(broker, instance=instance)
    sync = a_sync(joined, {joined.member_id: b"share"}, instance=instance)
    assert broker.ask(sync, 5).error_code == 0
    return joined


def a_heartbeat(joined: JoinGroupResponse, *, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
    )


def heartbeat(
    broker: InProcessBroker,
    joined: JoinGroupResponse,
    version: int = 4,
    *,
    instance: str | None = None,
) -> int:
    """The error of a heartbeat."""
    return int(broker.ask(a_heartbeat(joined, instance=instance), version).error_code)


def a_commit(
    offset: int,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    member: JoinGroupResponse | None = None,
    **wanted: Any,
) -> OffsetCommitRequest:
    """A commit of one partition, by a member or by nobody in particular."""
    return OffsetCommitRequest(
        group_id=wanted.pop("group_id", GROUP),
        generation_id_or_member_epoch=-1 if member is None else member.generation_id,
        member_id="" if member is None else member.member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata=wanted.pop("metadata", ""),
                        **wanted,
                    )
                ],
            )
        ],
    )


def commit(broker: InProcessBroker, offset: int, **wanted: Any) -> int:
    """The error of a commit of one partition."""
    response = broker.ask(a_commit(offset, **wanted), 9)
    return int(response.topics[0].partitions[0].error_code)


def committed(broker: InProcessBroker, topic: str = TOPIC, partition: int = 0) -> int:
    """The offset that the group has committed for a partition."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])
    response = broker.ask(OffsetFetchRequest(groups=[group]), 9)
    return int(response.groups[0].topics[0].partitions[0].committed_offset)
