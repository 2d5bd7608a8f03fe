"""InitProducerId (22), versions 0-5: an identity for an idempotent producer.

2 flexible; 3 the producer's own id and epoch (KIP-360); 4 PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE.
Version 6 is unstable in Kafka and not served.
"""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, CoordinatorNotAvailable, InvalidRequest
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(
    node: Node, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Hand out a fresh producer id."""
    try:
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequest("a producer id and its epoch are given both or not at all")
        if request.transactional_id == "":
            raise InvalidRequest("a transactional id may not be empty")
        if request.transactional_id is not None:
            raise CoordinatorNotAvailable("transactions are not served yet")
        return InitProducerIdResponse(producer_id=await node.producer_ids.next(), producer_epoch=0)
    except BrokerError as error:
        return InitProducerIdResponse(
            error_code=error_code(error), producer_id=-1, producer_epoch=-1
        )
