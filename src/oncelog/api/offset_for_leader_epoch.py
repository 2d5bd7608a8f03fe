"""OffsetForLeaderEpoch (23), versions 2-4: where a leader's part of the log ended.

A consumer asks after a change of leader whether the log it read from is still the same (KIP-320).
3 replica id; 4 flexible.
"""

from oncelog.api.fetch import check_leader_epoch
from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    node: Node, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer for each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_of(node, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_of(node: Node, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    response = EpochEndOffset(partition=wanted.partition)
    try:
        partition = node.partition(topic, wanted.partition)
        partition.check_online()
        check_leader_epoch(partition, wanted.current_leader_epoch)
    except BrokerError as error:
        response.error_code = error_code(error)
        return response
    if wanted.leader_epoch == partition.leader_epoch:
        # The epoch that writes now ends where readers may read to.
        response.leader_epoch, response.end_offset = wanted.leader_epoch, partition.high_watermark
        return response
    known = partition.log.leader_epochs.end_offset_for(
        wanted.leader_epoch, partition.high_watermark
    )
    if known is not None:
        response.leader_epoch, response.end_offset = known
    return response
