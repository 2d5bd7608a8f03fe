"""LeaveGroup (13), versions 0-5: members go. 3 several at once, static ones by their instance id;
4 flexible; 5 a reason.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import LeaveGroup, LeavingMember, Left
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

FIRST_BATCHED: Final = 3


async def handle(
    node: Node, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse:
    """Each member leaves, or is told why it cannot."""
    is_batched = context.version >= FIRST_BATCHED
    if is_batched:
        members = tuple(
            LeavingMember(member_id=m.member_id, group_instance_id=m.group_instance_id)
            for m in request.members
        )
    else:
        members = (LeavingMember(member_id=request.member_id),)
    command = LeaveGroup(group_id=request.group_id, members=members)
    try:
        left: tuple[Left, ...] = await node.ask_group(request.group_id, command)
    except BrokerError as error:
        return LeaveGroupResponse(error_code=error_code(error))
    if not is_batched:
        return LeaveGroupResponse(error_code=_code(left[0].error))
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=_code(one.error),
            )
            for one in left
        ]
    )


def _code(error: BrokerError | None) -> int:
    return ErrorCode.NONE if error is None else error_code(error)
