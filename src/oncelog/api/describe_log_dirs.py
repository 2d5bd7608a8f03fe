"""DescribeLogDirs (35), versions 1-5: how large the logs are, and how full the disk is.

2 flexible; 3 a top-level error code; 4 the size of the disk; 5 cordoned directories, of which we
have none. A topic or partition that is not here is left out, as Kafka does.
"""

from oncelog.api.registry import RequestContext
from oncelog.runtime.node import Node
from oncelog.runtime.partition import Partition
from oncelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    node: Node, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe the one data directory."""
    wanted: dict[str, set[int]] = {}
    if request.topics is None:
        for topic in node.metadata.topics.values():
            wanted[topic.name] = set(range(topic.partition_count))
    else:
        for asked in request.topics:
            wanted.setdefault(asked.topic, set()).update(asked.partitions)
    space = node.logs.disk.space()
    topics = [_describe(node, name, indexes) for name, indexes in sorted(wanted.items())]
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=space.path,
                topics=[topic for topic in topics if topic.partitions],
                total_bytes=space.total_bytes,
                usable_bytes=space.usable_bytes,
            )
        ]
    )


def _describe(node: Node, name: str, indexes: set[int]) -> DescribeLogDirsTopic:
    topic = node.metadata.topics.get(name)
    count = topic.partition_count if topic else 0
    return DescribeLogDirsTopic(
        name=name,
        partitions=[
            _size(node.partition(name, index)) for index in sorted(indexes) if 0 <= index < count
        ],
    )


def _size(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.topic_partition.partition,
        partition_size=partition.log.size_bytes,
    )
