"""OffsetDelete (47), version 0: forget a group's offsets of partitions that it does not read."""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import DeleteOffsets, PartitionOutcome
from oncelog.core.types import TopicPartition
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(
    node: Node, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    """Each partition has an answer of its own."""
    wanted = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    known = tuple(tp for tp in wanted if node.logs.find(tp) is not None)
    codes = dict.fromkeys(wanted, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    try:
        outcomes: tuple[PartitionOutcome, ...] = await node.ask_group(
            request.group_id, DeleteOffsets(group_id=request.group_id, partitions=known)
        )
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error_code(error))
    for outcome in outcomes:
        error_found = outcome.error
        codes[outcome.partition] = (
            ErrorCode.NONE if error_found is None else error_code(error_found)
        )
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes[TopicPartition(topic.name, p.partition_index)],
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
