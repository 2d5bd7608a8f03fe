"""ListPartitionReassignments (46), version 0: which replicas are being moved. On one node, none."""

from oncelog.api.registry import RequestContext
from oncelog.runtime.node import Node
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    node: Node, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Answer with none; partitions that do not exist are not being moved either."""
    return ListPartitionReassignmentsResponse(error_message=None)
