"""ListGroups (16), versions 0-5: the groups of this broker. 3 flexible; 4 by state; 5 by type."""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import GroupListing, ListGroups
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(
    node: Node, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    """All groups that pass the filters; their words are compared without regard to case."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        replies = await node.groups.submit_to_all(ListGroups())
    except BrokerError as error:
        return ListGroupsResponse(error_code=error_code(error))
    listed = [one for reply in replies if isinstance(reply, tuple) for one in reply]
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in listed
            if isinstance(group, GroupListing)
            and (not states or group.state.lower() in states)
            and (not types or group.group_type.lower() in types)
        ]
    )
