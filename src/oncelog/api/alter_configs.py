"""AlterConfigs (33), versions 0-2: replace all settings of a resource.

2 flexible. What the request does not name goes back to its default, which is why clients use
IncrementalAlterConfigs today.
"""

from oncelog.api.config_change import Current, Edit, change_all
from oncelog.api.registry import RequestContext
from oncelog.core.errors import InvalidRequest
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(
    node: Node, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    """Replace, or say what would happen."""
    errors = await change_all(
        node, request.resources, _replacement, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error_code(error) if error else 0,
                error_message=str(error) if error else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ]
    )


def _replacement(resource: AlterConfigsResource) -> Edit:
    def edit(own: dict[str, str], current: Current) -> dict[str, str]:
        replaced = {}
        for config in resource.configs:
            if config.value is None:
                raise InvalidRequest(f"{config.name} has no value")
            replaced[config.name] = config.value
        return replaced

    return edit
