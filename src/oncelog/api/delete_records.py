"""DeleteRecords (21), versions 0-2: move the start of logs forward.

2 flexible. -1 stands for the high watermark. When the answer leaves, the new log starts are on the
disk: what was deleted does not come back. A topic that is only compacted keeps its records, as in
Kafka, since a later value may depend on them.
"""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidTopic, KafkaStorageError, PolicyViolation
from oncelog.core.types import INTERNAL_TOPICS
from oncelog.runtime.node import Node
from oncelog.runtime.partition import Partition
from oncelog.wire.errors import error_code
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


async def handle(
    node: Node, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    """Store where all of them are to begin, move them, then answer."""
    moving: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_delete(node, topic.name, wanted, moving) for wanted in topic.partitions],
        )
        for topic in request.topics
    ]
    try:
        await node.logs.move_starts({p: result.low_watermark for p, result in moving})
    except OSError as error:
        failed = KafkaStorageError(f"the log start could not be stored: {error}")
        for _, result in moving:
            result.error_code, result.low_watermark = error_code(failed), -1
    return DeleteRecordsResponse(topics=topics)


def _delete(
    node: Node,
    name: str,
    wanted: DeleteRecordsPartition,
    moving: list[tuple[Partition, DeleteRecordsPartitionResult]],
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    try:
        if name in INTERNAL_TOPICS:
            raise InvalidTopic(f"the records of {name} belong to the broker")
        partition = node.partition(name, wanted.partition_index)
        if not partition.config.is_deleted:
            raise PolicyViolation(f"{name} is compacted: its records are not deleted by offset")
        offset = None if wanted.offset == -1 else wanted.offset
        result.low_watermark = partition.start_after_deleting(offset)
        moving.append((partition, result))
    except BrokerError as error:
        result.error_code = error_code(error)
    return result
