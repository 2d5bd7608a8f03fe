"""FindCoordinator (10), versions 0-6: which broker looks after a group or a transactional id.

0 groups only; 1 key types, error messages; 3 flexible; 4 several keys at once (KIP-699);
5 TRANSACTION_ABORTABLE; 6 share groups. The topics behind the coordinators are made here, with the
first client that asks.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_BATCHED: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1


async def handle(
    node: Node, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """On one node it is always this one."""
    if context.version >= FIRST_BATCHED:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[await _find(node, key, request.key_type) for key in keys]
        )
    found = await _find(node, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(node: Node, key: str, key_type: int) -> Coordinator:
    try:
        if key_type == TRANSACTION:
            await node.ensure_transaction_topic()
        elif key_type == GROUP:
            await node.ensure_offsets_topic()
        else:
            raise InvalidRequest(f"coordinators of type {key_type} are not known here")
    except BrokerError as error:
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=error_code(error),
            error_message=str(error),
        )
    host, port = node.advertised
    return Coordinator(
        key=key, node_id=node.config.node_id, host=host, port=port, error_message=None
    )
