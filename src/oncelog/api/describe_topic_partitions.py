"""DescribeTopicPartitions (75), version 0: topics page by page (KIP-966).

Topics come in the order of their names, each once. A page ends after so many partitions and says
where the next one begins; a client that hands the cursor back gets the rest.
"""

from collections.abc import Iterator
from typing import Final

from oncelog.api.metadata import TOPIC_OPERATIONS, describe_partition
from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest
from oncelog.core.metadata.shard import check_topic_name
from oncelog.core.types import INTERNAL_TOPICS
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

#: The most partitions on one page, whatever is asked for; Kafka's default too.
MAX_PARTITIONS: Final = 2000


def handle(
    node: Node, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe one page."""
    try:
        names = _names(node, request)
    except BrokerError as error:
        asked = sorted({topic.name for topic in request.topics})
        return DescribeTopicPartitionsResponse(topics=[_failed(name, error) for name in asked])
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name, first in names:
        if left == 0:
            return _page(topics, Cursor(topic_name=name, partition_index=first))
        try:
            topic, end = _describe(node, name, first, left)
        except BrokerError as error:
            topics.append(_failed(name, error, TOPIC_OPERATIONS))
            continue
        topics.append(topic)
        left -= len(topic.partitions)
        if end is not None:
            return _page(topics, Cursor(topic_name=name, partition_index=end))
    return _page(topics, None)


def _names(node: Node, request: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, int]]:
    """The topics from the cursor on, each with the first of its partitions to describe."""
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics} or node.metadata.topics)
    if cursor is None:
        return ((name, 0) for name in names)
    if cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor is at partition {cursor.partition_index}")
    if request.topics and cursor.topic_name not in names:
        raise InvalidRequest(f"the cursor is at {cursor.topic_name!r}, which was not asked for")
    # Without a list the cursor's topic may have been deleted since: the next one starts at 0.
    return (
        (name, cursor.partition_index if name == cursor.topic_name else 0)
        for name in names
        if name >= cursor.topic_name
    )


def _describe(
    node: Node, name: str, first: int, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """A topic, and the partition at which it is cut, if it is."""
    check_topic_name(name)
    topic = node.metadata.topic(name)
    end = min(first + limit, topic.partition_count)
    partitions = []
    for index in range(first, end):
        described = describe_partition(node, topic, index)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=described.error_code,
                partition_index=index,
                leader_id=described.leader_id,
                leader_epoch=described.leader_epoch,
                replica_nodes=described.replica_nodes,
                isr_nodes=described.isr_nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=described.offline_replicas,
            )
        )
    answer = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    return answer, end if end < topic.partition_count else None


def _failed(
    name: str, error: BrokerError, operations: int = -(1 << 31)
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=error_code(error), topic_authorized_operations=operations
    )


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
