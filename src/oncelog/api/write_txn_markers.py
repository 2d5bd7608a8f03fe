"""WriteTxnMarkers (27), versions 1-2: end transactions in partitions, as coordinators do and
administrators may. 1 flexible; 2 the transaction version, which says how strict to be (KIP-1228).
"""

import asyncio

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, NotCoordinator
from oncelog.core.markers import Marker
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def handle(
    node: Node, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    """Each partition has an answer of its own, given when its marker is committed."""
    results: dict[int, dict[str, dict[int, int]]] = {}
    for wanted in request.markers:
        by_topic = results.setdefault(wanted.producer_id, {})
        for topic in wanted.topics:
            codes = by_topic.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                codes[index] = await _write(node, wanted, topic.name, index)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=i, error_code=code)
                            for i, code in codes.items()
                        ],
                    )
                    for name, codes in by_topic.items()
                ],
            )
            for producer_id, by_topic in results.items()
        ]
    )


async def _write(node: Node, wanted: WritableTxnMarker, topic: str, index: int) -> int:
    marker = Marker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        committed=wanted.transaction_result,
        # Nobody is ahead of this broker: an epoch that has not come yet would shut out those who
        # have to end the producer's next transactions.
        coordinator_epoch=min(wanted.coordinator_epoch, node.logs.leader_epoch),
    )
    try:
        partition = node.partition(topic, index)
        future = node.transactions.markers.mark(
            partition, marker, transaction_version=wanted.transaction_version
        )
        if future is not None:
            await asyncio.wait_for(future, node.config.request_timeout_ms / 1000)
    except NotCoordinator:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # So that the sender looks again, and retries.
    except BrokerError as error:
        return error_code(error)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE
