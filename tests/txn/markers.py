"""Markers as coordinators and administrators send them, and what partitions know of producers."""

from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.txn.producer import TOPIC
from tests.txn.world import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerRequest:
    """One marker for one partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 1
    transaction_version: int = 0
    topic: str = TOPIC
    partition: int = 0

    def send(self, line: Line, version: int = 2) -> int:
        """The error code that it is answered with."""
        reply = line.ask(WriteTxnMarkersRequest(markers=[self.marker()]), version)
        (result,) = reply.markers
        (topic,) = result.topics
        (partition,) = topic.partitions
        return int(partition.error_code)

    def marker(self) -> WritableTxnMarker:
        """As the request holds it."""
        return WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_result=self.committed,
            topics=[WritableTxnMarkerTopic(name=self.topic, partition_indexes=[self.partition])],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.transaction_version,
        )


def admin_marker(
    producer_id: int, producer_epoch: int, *, committed: bool = False, partition: int = 0
) -> MarkerRequest:
    """As an administrator ends a transaction: at its own epoch, by the old rules."""
    return MarkerRequest(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        partition=partition,
        coordinator_epoch=1 << 20,
    )


def describe_producers(
    line: Line, *, topic: str = TOPIC, partition: int = 0
) -> Sequence[ProducerState]:
    """Who is known in a partition."""
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    found = line.ask(request, 0).topics[0].partitions[0]
    assert found.error_code == 0, found
    producers: Sequence[ProducerState] = found.active_producers
    return list(producers)
