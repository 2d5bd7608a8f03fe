"""DescribeCluster (60), versions 0-2: who is in the cluster.

1 brokers or controllers (KIP-919); 2 fenced brokers too (KIP-1073), of which we have none.
"""

from typing import Final

from oncelog.api.metadata import CLUSTER_OPERATIONS
from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, MismatchedEndpointType, UnsupportedEndpointType
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(
    node: Node, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Describe a cluster of one."""
    try:
        _check_endpoint(request.endpoint_type)
    except BrokerError as error:
        return DescribeClusterResponse(error_code=error_code(error), error_message=str(error))
    host, port = node.advertised
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.config.node_id,
        brokers=[DescribeClusterBroker(broker_id=node.config.node_id, host=host, port=port)],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else -(1 << 31),
    )


def _check_endpoint(endpoint_type: int) -> None:
    if endpoint_type == CONTROLLERS:
        raise MismatchedEndpointType("this is a broker; it is not a controller's endpoint")
    if endpoint_type != BROKERS:
        raise UnsupportedEndpointType(f"there is no endpoint type {endpoint_type}")
