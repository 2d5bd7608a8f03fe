"""EndTxn (26), versions 0-5: commit or abort.

2 PRODUCER_FENCED; 3 flexible; 4 TRANSACTION_ABORTABLE; 5 transactions V2: every end raises the epoch,
and the reply says what it is from now on.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest
from oncelog.runtime.node import Node
from oncelog.wire.errors import txn_error_code
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

KEY: Final = 26
FIRST_V2: Final = 5


async def handle(node: Node, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """When this is answered the outcome is durable; the markers follow by themselves."""
    is_v2 = context.version >= FIRST_V2
    try:
        if not request.transactional_id:
            raise InvalidRequest("a transactional id may not be empty")
        if not is_v2:
            node.transactions.check_speaker(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                context.connection,
            )
        identity = await node.transactions.end_txn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
            client_version=2 if is_v2 else 0,
        )
        node.transactions.hear(request.transactional_id, context.client_id, context.client_host)
    except BrokerError as error:
        code = txn_error_code(error, api_key=KEY, version=context.version)
        return EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
