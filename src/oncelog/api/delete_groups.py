"""DeleteGroups (42), versions 0-2: forget groups without members. 2 flexible."""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import DeleteGroups, GroupOutcome
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(
    node: Node, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    """Each group is deleted, or its answer says why not."""
    return DeleteGroupsResponse(
        results=[await _delete(node, group_id) for group_id in request.groups_names]
    )


async def _delete(node: Node, group_id: str) -> DeletableGroupResult:
    try:
        outcomes: tuple[GroupOutcome, ...] = await node.ask_group(
            group_id, DeleteGroups(group_ids=(group_id,))
        )
        error = outcomes[0].error
    except BrokerError as raised:
        error = raised
    code = ErrorCode.NONE if error is None else error_code(error)
    return DeletableGroupResult(group_id=group_id, error_code=code)
