"""Transactions that stand open in a partition and that no coordinator's entry explains.

A power cut may keep a producer's records and lose the entry that was written beside them. Nothing of
that was acknowledged, and left open it would hold up every reader.
"""

from collections.abc import Callable, Iterable

from oncelog.core.errors import BrokerError
from oncelog.core.markers import Marker
from oncelog.core.producers import MAX_EPOCH, Producer
from oncelog.core.txn.machine import PREPARED, TxnState
from oncelog.core.txn.records import Txn
from oncelog.core.txn.shard import V2
from oncelog.observe import notes
from oncelog.runtime.markers import MarkerWriter
from oncelog.runtime.partition import Partition


def abort_unowned(
    partitions: Iterable[Partition],
    transactions: Iterable[Txn],
    markers: MarkerWriter,
    note: Callable[[object], None],
) -> None:
    """Close what is open in the partitions and not known to be open by the coordinator."""
    owners = {
        txn.producer_id: txn
        for txn in transactions
        if txn.state is TxnState.ONGOING or txn.state in PREPARED
    }
    for partition in partitions:
        for producer_id in sorted(partition.producers.stability.open_transactions()):
            producer = partition.producers.get(producer_id)
            assert producer is not None, f"producer {producer_id} has a transaction open"
            owner = owners.get(producer_id)
            if owner is None or not _explains(owner, partition, producer.producer_epoch):
                _abort(partition, producer_id, producer, markers, note)


def _abort(
    partition: Partition,
    producer_id: int,
    producer: Producer,
    markers: MarkerWriter,
    note: Callable[[object], None],
) -> None:
    """The marker raises the epoch, as every abort does that no client asked for.

    A batch that is sent again must not be taken for a repeat of the one that is aborted here.
    """
    if partition.offline is not None:
        return
    marker = Marker(
        producer_id=producer_id,
        producer_epoch=min(producer.producer_epoch + 1, MAX_EPOCH),
        committed=False,
        coordinator_epoch=max(producer.coordinator_epoch, partition.leader_epoch),
    )
    try:
        markers.mark(partition, marker, transaction_version=0)
    except BrokerError as error:
        note(error)
        return
    note(
        notes.UnownedTransactionAborted(
            partition=str(partition.topic_partition), producer_id=producer_id
        )
    )


def _explains(owner: Txn, partition: Partition, producer_epoch: int) -> bool:
    """Whether an open transaction of a partition is the one that its coordinator knows."""
    if partition.topic_partition not in owner.topic_partitions():
        return False
    if owner.state is TxnState.PREPARE_COMMIT and owner.client_version < V2:
        return producer_epoch == owner.producer_epoch
    if owner.state in PREPARED:
        # Ending it raised the epoch: what is open at the new one is a later transaction.
        return producer_epoch < owner.producer_epoch or owner.client_version < V2
    return producer_epoch == owner.producer_epoch
