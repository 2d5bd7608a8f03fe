"""CreatePartitions (37), versions 0-3: let topics grow.

2 flexible; 3 quota errors. Each topic succeeds or fails by itself; a name that stands in the
request twice is refused once.
"""

import asyncio
from collections import Counter

from oncelog.api.registry import RequestContext
from oncelog.api.replicas import check_replicas
from oncelog.core.errors import BrokerError, InvalidReplicaAssignment, InvalidRequest
from oncelog.core.metadata.shard import AddPartitions
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(
    node: Node, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to all of them, or say what would happen."""
    counts = Counter(topic.name for topic in request.topics)
    # All at once, so that they share one sync.
    results = await asyncio.gather(
        *(
            _grow(node, topic, validate_only=request.validate_only)
            for topic in request.topics
            if counts[topic.name] == 1
        )
    )
    twice = InvalidRequest("the topic stands in the request more than once")
    refused = [_result(name, twice) for name, count in counts.items() if count > 1]
    return CreatePartitionsResponse(results=[*results, *refused])


async def _grow(
    node: Node, wanted: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    try:
        command = AddPartitions(name=wanted.name, partition_count=wanted.count)
        already = node.metadata.topic(wanted.name).partition_count
        node.metadata.plan_partitions(command)
        _check_assignments(node, wanted, wanted.count - already)
        if not validate_only:
            await node.change(command)
        return _result(wanted.name)
    except BrokerError as error:
        return _result(wanted.name, error)


def _check_assignments(node: Node, wanted: CreatePartitionsTopic, new_count: int) -> None:
    if wanted.assignments is None:
        return
    if len(wanted.assignments) != new_count:
        raise InvalidReplicaAssignment(
            f"{new_count} partitions are new, and replicas are given for {len(wanted.assignments)}"
        )
    for assignment in wanted.assignments:
        check_replicas(node, assignment.broker_ids)


def _result(name: str, error: BrokerError | None = None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=error_code(error), error_message=str(error)
    )
