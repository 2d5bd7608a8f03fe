"""AlterPartitionReassignments (45), versions 0-1: move replicas, or stop moving them.

1 whether the number of replicas may change. On one node every replica is where it can be: moving it
here is done before it begins, and there is never anything to cancel.
"""

from oncelog.api.registry import RequestContext
from oncelog.api.replicas import check_replicas
from oncelog.core.errors import BrokerError, NoReassignmentInProgress
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    node: Node, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Answer for each partition."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_reassign(node, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _reassign(
    node: Node, name: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    index = wanted.partition_index
    try:
        node.partition(name, index)
        if wanted.replicas is None:
            raise NoReassignmentInProgress(f"{name}-{index} is not being moved")
        check_replicas(node, wanted.replicas)
    except BrokerError as error:
        return ReassignablePartitionResponse(
            partition_index=index, error_code=error_code(error), error_message=str(error)
        )
    return ReassignablePartitionResponse(partition_index=index, error_message=None)
