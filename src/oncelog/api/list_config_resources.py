"""ListConfigResources (74), versions 0-1: what has settings.

0 asks for client metrics alone, of which we keep none; 1 for any kinds (KIP-1142), no kind meaning
all. An unknown kind is answered with UNSUPPORTED_VERSION, as Kafka does: a newer client may know it.
"""

from oncelog.api.config_resources import Resource
from oncelog.api.registry import RequestContext
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def handle(
    node: Node, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List them, brokers before topics, topics by name."""
    if context.version == 0:
        return ListConfigResourcesResponse()
    wanted = set(request.resource_types) or set(Resource)
    if not wanted <= set(Resource):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names = {
        Resource.BROKER: [str(node.config.node_id)],
        Resource.TOPIC: sorted(node.metadata.topics),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            for name in found
            if kind in wanted
        ]
    )
