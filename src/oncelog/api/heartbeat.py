"""Heartbeat (12), versions 0-4: a member is alive. 3 static members; 4 flexible."""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import Alive, Heartbeat
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(
    node: Node, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse:
    """Note that the member was heard; tell it when a rebalance is under way."""
    command = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
    )
    try:
        reply: Alive = await node.ask_group(request.group_id, command)
    except BrokerError as error:
        return HeartbeatResponse(error_code=error_code(error))
    return HeartbeatResponse(
        error_code=ErrorCode.REBALANCE_IN_PROGRESS if reply.is_rebalancing else ErrorCode.NONE
    )
