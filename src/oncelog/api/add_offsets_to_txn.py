"""AddOffsetsToTxn (25), versions 0-4: a group's offsets take part in the transaction.

2 PRODUCER_FENCED; 3 flexible; 4 TRANSACTION_ABORTABLE. Clients of transactions V2 do without it.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest
from oncelog.core.types import OFFSETS_TOPIC, TopicPartition, partition_for
from oncelog.runtime.node import Node
from oncelog.wire.errors import txn_error_code
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

KEY: Final = 25


async def handle(
    node: Node, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Add the partition of the offsets topic that owns the group."""
    try:
        if not request.transactional_id:
            raise InvalidRequest("a transactional id may not be empty")
        node.transactions.check_speaker(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            context.connection,
        )
        topic = await node.ensure_offsets_topic()
        index = partition_for(request.group_id, topic.partition_count)
        await node.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (TopicPartition(OFFSETS_TOPIC, index),),
        )
        node.transactions.hear(request.transactional_id, context.client_id, context.client_host)
    except BrokerError as error:
        code = txn_error_code(error, api_key=KEY, version=context.version)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()
