"""InitProducerId (22), versions 0-5: an identity for a producer.

2 flexible; 3 the producer's own id and epoch (KIP-360); 4 PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE.
Version 6 is unstable in Kafka and not served.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest
from oncelog.core.txn.commands import (
    Identity,
)
from oncelog.runtime.node import Node
from oncelog.wire.errors import txn_error_code
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY: Final = 22


async def handle(
    node: Node, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """A fresh id, or the next epoch of a transactional one."""
    try:
        identity = await _identify(node, request)
        if request.transactional_id is not None:
            node.transactions.hear(request.transactional_id, context.client_id, context.client_host)
    except BrokerError as error:
        code = txn_error_code(error, api_key=KEY, version=context.version)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


async def _identify(node: Node, request: InitProducerIdRequest) -> Identity:
    is_supplied = request.producer_id >= 0
    if is_supplied != (request.producer_epoch >= 0):
        raise InvalidRequest("a producer id and its epoch are given both or not at all")
    if request.transactional_id is None:
        return Identity(producer_id=await node.producer_ids.next(), producer_epoch=0)
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id may not be empty")
    await node.ensure_transaction_topic()
    return await node.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        (request.producer_id, request.producer_epoch) if is_supplied else None,
    )
