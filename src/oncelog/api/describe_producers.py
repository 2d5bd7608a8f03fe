"""DescribeProducers (61), version 0: who writes to a partition, and who holds it up."""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.metadata.shard import check_topic_name
from oncelog.runtime.node import Node
from oncelog.runtime.partition import Partition
from oncelog.wire.errors import error_code
from oncelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    node: Node, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """All live producers of each partition, idempotent ones included."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(node, topic.name, i) for i in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(node: Node, topic: str, index: int) -> PartitionResponse:
    response = PartitionResponse(partition_index=index, error_message=None)
    try:
        check_topic_name(topic)
        partition = node.partition(topic, index)
        partition.check_online()
    except BrokerError as error:
        response.error_code = error_code(error)
        response.error_message = str(error)
        return response
    response.active_producers = _producers(partition)
    return response


def _producers(partition: Partition) -> list[ProducerState]:
    open_at = partition.producers.stability.open_transactions()
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
            last_timestamp=producer.active_at_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=open_at.get(producer_id, -1),
        )
        for producer_id, producer in partition.producers.items()
    ]
