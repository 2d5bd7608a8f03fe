"""ListOffsets (2), versions 1-11: the offset that belongs to a time.

2 isolation level; 4 leader epochs; 6 flexible; 7 the record with the largest time (-3); 8 the first
local record (-4); 9 the last tiered one (-5); 10 a timeout; 11 the next one to be tiered (-6).
"""

from typing import Final

from oncelog.api.fetch import READ_COMMITTED, check_leader_epoch
from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.runtime.node import Node
from oncelog.runtime.partition import Partition, TimedOffset
from oncelog.wire.errors import error_code
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


def handle(node: Node, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Look up one offset for each partition."""
    committed_only = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _look_up(node, topic.name, wanted, committed_only)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _look_up(
    node: Node, topic: str, wanted: ListOffsetsPartition, committed_only: bool
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        partition = node.partition(topic, wanted.partition_index)
        partition.check_online()
        check_leader_epoch(partition, wanted.current_leader_epoch)
        found = _find(partition, wanted.timestamp, committed_only)
    except BrokerError as error:
        response.error_code = error_code(error)
        return response
    if found is not None:
        response.offset = found.offset
        response.timestamp = found.timestamp
        response.leader_epoch = found.leader_epoch
    return response


def _find(partition: Partition, timestamp: int, committed_only: bool) -> TimedOffset | None:
    limit = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp == LATEST:
        return TimedOffset(limit, -1, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        epoch = partition.log.leader_epochs.epoch_at(start)
        return TimedOffset(start, -1, partition.leader_epoch if epoch is None else epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None  # Nothing is ever moved elsewhere.
    found = (
        partition.find_max_timestamp()
        if timestamp == MAX_TIMESTAMP
        else partition.find_time(timestamp)
    )
    return found if found is not None and found.offset < limit else None
