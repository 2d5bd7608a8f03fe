"""JoinGroup (11), versions 0-9: become a member of the next generation.

1 rebalance timeout; 4 a member id is asked for first (KIP-394); 5 static members (KIP-345);
6 flexible; 7 protocol type in the reply; 8 a reason; 9 skip_assignment (KIP-814).
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.groups.commands import (
    GroupProtocol,
    Joined,
    JoinGroup,
    MemberIdAssigned,
)
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_THAT_COMES_BACK: Final = 4
FIRST_WITH_NULL_PROTOCOL: Final = 7
FIRST_THAT_SKIPS: Final = 9
#: A join ends with its rebalance; this much later something is wrong.
SLACK_MS: Final = 60_000


async def handle(
    node: Node, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse:
    """Wait for the other members, then say who leads and what was chosen."""
    no_protocol = None if context.version >= FIRST_WITH_NULL_PROTOCOL else ""
    rebalance_timeout_ms = (
        request.rebalance_timeout_ms
        if context.version >= FIRST_WITH_REBALANCE_TIMEOUT
        else request.session_timeout_ms
    )

    # As in Kafka, a static member's id shows whose instance it is.
    name = context.client_id if request.group_instance_id is None else request.group_instance_id

    def command(ticket: int) -> JoinGroup:
        return JoinGroup(
            ticket=ticket,
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            protocol_type=request.protocol_type,
            protocols=tuple(
                GroupProtocol(name=p.name, metadata=p.metadata) for p in request.protocols
            ),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            fresh_member_id=f"{name}-{node.fresh_id()}",
            requires_known_member_id=context.version >= FIRST_THAT_COMES_BACK,
            can_skip_assignment=context.version >= FIRST_THAT_SKIPS,
        )

    try:
        reply = await node.ask_group_and_wait(
            request.group_id, command, wait_ms=max(rebalance_timeout_ms, 0) + SLACK_MS
        )
    except BrokerError as error:
        return JoinGroupResponse(
            error_code=error_code(error), member_id=request.member_id, protocol_name=no_protocol
        )
    if isinstance(reply, MemberIdAssigned):
        return JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED,
            member_id=reply.member_id,
            protocol_name=no_protocol,
        )
    assert isinstance(reply, Joined), f"a join was answered with {reply!r}"
    return JoinGroupResponse(
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=no_protocol if reply.protocol_name is None else reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )
