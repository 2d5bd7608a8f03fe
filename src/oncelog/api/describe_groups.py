"""DescribeGroups (15), versions 0-6: members and their assignments.

3 authorised operations; 4 static members; 5 flexible; 6 GROUP_ID_NOT_FOUND, where older versions are
told of a dead group without members.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, GroupIdNotFound
from oncelog.core.groups.commands import DescribeGroup, GroupDescription
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_WITH_NOT_FOUND: Final = 6
#: What an unsecured listener allows on a group, as Kafka's bit field: read, delete, describe,
#: describe configs, alter configs.
GROUP_OPERATIONS: Final = 0b110101001000


async def handle(
    node: Node, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    """Describe each group that was asked for."""
    groups = [await _describe(node, group_id, context.version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


async def _describe(node: Node, group_id: str, version: int) -> DescribedGroup:
    try:
        found: GroupDescription = await node.ask_group(group_id, DescribeGroup(group_id=group_id))
    except GroupIdNotFound as error:
        if version < FIRST_WITH_NOT_FOUND:
            return DescribedGroup(group_id=group_id, group_state="Dead")
        return DescribedGroup(
            group_id=group_id,
            group_state="Dead",
            error_code=error_code(error),
            error_message=str(error),
        )
    except BrokerError as error:
        return DescribedGroup(
            group_id=group_id, error_code=error_code(error), error_message=str(error)
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
    )
