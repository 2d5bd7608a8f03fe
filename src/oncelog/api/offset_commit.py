"""OffsetCommit (8), versions 2-10: how far a group has read.

2-4 the client chooses the retention; 6 leader epochs; 7 static members; 8 flexible; 9 the new group
protocol (KIP-848); 10 topics by id.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, GroupIdNotFound, IllegalGeneration
from oncelog.core.groups.commands import CommitOffsets, OffsetToCommit, PartitionOutcome
from oncelog.core.metadata.records import Topic
from oncelog.core.types import TopicPartition
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_WITH_NOT_FOUND: Final = 9
FIRST_BY_ID: Final = 10


async def handle(
    node: Node, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse:
    """Store what can be stored; each partition has an answer of its own."""
    by_id = context.version >= FIRST_BY_ID
    codes: dict[tuple[int, int], int] = {}
    offsets: dict[tuple[int, int], OffsetToCommit] = {}
    for index, topic in enumerate(request.topics):
        try:
            found = _resolve(node, topic, by_id)
        except BrokerError as error:
            codes |= {(index, p.partition_index): error_code(error) for p in topic.partitions}
            continue
        for partition in topic.partitions:
            key = (index, partition.partition_index)
            if not 0 <= partition.partition_index < found.partition_count:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            epoch = partition.committed_leader_epoch
            offsets[key] = OffsetToCommit(
                partition=TopicPartition(found.name, partition.partition_index),
                offset=partition.committed_offset,
                leader_epoch=None if epoch < 0 else epoch,
                metadata=partition.committed_metadata or "",
                topic_id=found.topic_id,
            )
    codes |= await _commit(node, request, offsets, context.version)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes[index, p.partition_index],
                    )
                    for p in topic.partitions
                ],
            )
            for index, topic in enumerate(request.topics)
        ]
    )


def _resolve(node: Node, topic: OffsetCommitRequestTopic, by_id: bool) -> Topic:
    if by_id:
        return node.metadata.topic_by_id(topic.topic_id)
    return node.metadata.topic(topic.name)


async def _commit(
    node: Node,
    request: OffsetCommitRequest,
    offsets: dict[tuple[int, int], OffsetToCommit],
    version: int,
) -> dict[tuple[int, int], int]:
    if not offsets:
        return {}
    generation = request.generation_id_or_member_epoch
    retention_ms = request.retention_time_ms
    command = CommitOffsets(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=None if generation < 0 else generation,
        retention_ms=None if retention_ms < 0 else retention_ms,
        offsets=tuple(offsets.values()),
    )
    try:
        outcomes: tuple[PartitionOutcome, ...] = await node.ask_group(request.group_id, command)
    except GroupIdNotFound as error:
        # Older clients know a generation that is over, but not a group that is gone.
        known = error if version >= FIRST_WITH_NOT_FOUND else IllegalGeneration(str(error))
        return dict.fromkeys(offsets, error_code(known))
    except BrokerError as error:
        return dict.fromkeys(offsets, error_code(error))
    return {
        key: ErrorCode.NONE if outcome.error is None else error_code(outcome.error)
        for key, outcome in zip(offsets, outcomes, strict=True)
    }
