"""IncrementalAlterConfigs (44), versions 0-1: change some settings of a resource (KIP-339).

1 flexible. SET and DELETE take any setting, APPEND and SUBTRACT those that hold a list; they start
from the value in force. To delete what is not set, or not known, changes nothing and succeeds.
"""

from enum import IntEnum

from oncelog.api.config_change import Current, Edit, change_all
from oncelog.api.registry import RequestContext
from oncelog.core.errors import InvalidConfig, InvalidRequest
from oncelog.core.topic_config import Kind
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Operation(IntEnum):
    """What to do with one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    node: Node, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change, or say what would happen."""
    errors = await change_all(node, request.resources, _edit, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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


def _edit(resource: AlterConfigsResource) -> Edit:
    def edit(own: dict[str, str], current: Current) -> dict[str, str]:
        for config in resource.configs:
            if config.config_operation == Operation.DELETE:
                own.pop(config.name, None)
            else:
                own[config.name] = _value(config, current)
        return own

    return edit


def _value(config: AlterableConfig, current: Current) -> str:
    if config.value is None:
        raise InvalidRequest(f"{config.name} has no value")
    if config.config_operation == Operation.SET:
        return config.value
    if config.config_operation not in set(Operation):
        raise InvalidRequest(f"there is no operation {config.config_operation}")
    setting, text = current(config.name)
    if setting.kind is not Kind.LIST:
        raise InvalidConfig(f"{config.name} holds no list, so nothing is added or taken away")
    there, named = _items(text), _items(config.value)
    if config.config_operation == Operation.APPEND:
        return ",".join(dict.fromkeys((*there, *named)))
    return ",".join(item for item in there if item not in named)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
