"""SyncGroup (14), versions 0-5: hand out the assignment and get one's own.

3 static members; 4 flexible; 5 protocol type and name are checked (KIP-559).
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InconsistentGroupProtocol
from oncelog.core.groups.commands import Synced, SyncGroup
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_WITH_PROTOCOL: Final = 5
#: The leader has its rebalance timeout to hand out assignments; the shard ends the wait itself.
WAIT_MS: Final = 30 * 60_000


async def handle(
    node: Node, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse:
    """Wait for the leader's assignment."""

    def command(ticket: int) -> SyncGroup:
        return SyncGroup(
            ticket=ticket,
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
        )

    try:
        _check_protocol(request, context.version)
        reply = await node.ask_group_and_wait(request.group_id, command, wait_ms=WAIT_MS)
    except BrokerError as error:
        return SyncGroupResponse(error_code=error_code(error))
    assert isinstance(reply, Synced), f"a sync was answered with {reply!r}"
    return SyncGroupResponse(
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


def _check_protocol(request: SyncGroupRequest, version: int) -> None:
    is_named = request.protocol_type is not None and request.protocol_name is not None
    if version >= FIRST_WITH_PROTOCOL and not is_named:
        raise InconsistentGroupProtocol("since version 5 a member names its protocol")
