"""A coordinator that was replaced and does not know it: it sends markers that come too late.

It knows what such a coordinator would know, by looking into the broker: which transactions are open,
and which markers their producers had last. Whatever it sends must be refused, and nothing changes.
"""

from typing import NamedTuple

from oncelog.core.txn.machine import TxnState
from oncelog.core.txn.shard import V2
from oncelog.core.types import TopicPartition
from oncelog.server.broker import BrokerCore
from oncelog.testing.sim.client import Admitted, Client
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


class _Late(NamedTuple):
    """A marker for a transaction that is open, as it was sent for one before it."""

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int


class Ghost(Client):
    """Tries to end the transactions of others."""

    async def haunt(self) -> None:
        """Send one marker, if anybody has a transaction open; raises Disconnected."""
        await self.while_stopped()
        # From here to the request nothing else happens: both belong to one process of the broker.
        connection = self.connection()
        markers = [*_of_replaced(self._stage.broker.core), *_repeated(self._stage.broker.core)]
        if not markers:
            return
        late = self._rng.choice(markers)
        topic = WritableTxnMarkerTopic(
            name=late.place.topic, partition_indexes=[late.place.partition]
        )
        marker = WritableTxnMarker(
            producer_id=late.producer_id,
            producer_epoch=late.producer_epoch,
            transaction_result=self._rng.random() < 0.5,
            topics=[topic],
            coordinator_epoch=late.coordinator_epoch,
            transaction_version=late.transaction_version,
        )
        reply = await self.answer(connection.send(WriteTxnMarkersRequest(markers=[marker]), 2))
        if reply.markers[0].topics[0].partitions[0].error_code == 0:
            raise Admitted(f"{self.name}: {late} came too late and was written")


def _of_replaced(core: BrokerCore) -> list[_Late]:
    """Of a coordinator before the one that wrote the last marker there: its epoch tells."""
    return [
        _Late(partition.topic_partition, producer_id, producer.producer_epoch, epoch - 1, 0)
        for partition in core.logs
        for producer_id in sorted(partition.producers.stability.open_transactions())
        if (producer := partition.producers.get(producer_id)) is not None
        and (epoch := producer.coordinator_epoch) > 0
    ]


def _repeated(core: BrokerCore) -> list[_Late]:
    """The last marker once more, in V2: it had the epoch that the open transaction has now."""
    return [
        _Late(place, txn.producer_id, txn.producer_epoch, producer.coordinator_epoch, V2)
        for txn in core.node.transactions.all_transactions()
        if txn.state is TxnState.ONGOING and txn.client_version >= V2
        for place in txn.topic_partitions()
        if (partition := core.logs.find(place)) is not None
        and (producer := partition.producers.get(txn.producer_id)) is not None
        and partition.producers.has_open(txn.producer_id, txn.producer_epoch)
    ]
