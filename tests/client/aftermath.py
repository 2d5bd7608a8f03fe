"""What transactions leave behind, asked over the wire with our own client.

A copier reports success as soon as its commit is decided; the markers follow a moment later. So the
questions are asked again until everything has settled, or for longer than it may take.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.client import admin
from oncelog.client.cluster import Cluster, CoordinatorKind
from oncelog.core.types import TopicPartition
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from oncelog.wire.messages.list_transactions import ListTransactionsRequest

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
#: The states of a transaction that is over.
OVER: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What is left of the transactions of some ids in some topics."""

    #: Transactions that are not over, with their states.
    open_transactions: dict[str, str]
    #: Partitions in which a producer has a transaction open, with the producers' ids.
    open_producers: dict[str, list[int]]
    #: Partitions whose last stable offset is below their end, with both.
    unstable: dict[str, tuple[int, int]]

    @property
    def is_settled(self) -> bool:
        return not (self.open_transactions or self.open_producers or self.unstable)


def settled(
    bootstrap: str, topics: Collection[str], *, within_s: float = 10.0, prefix: str = ""
) -> Aftermath:
    """Wait until no transaction is left open; whatever is left then is in the answer.

    `topics` are looked into, and of the transactional ids those that begin with `prefix`.
    """

    async def wait() -> Aftermath:
        async with await Cluster.open(bootstrap) as cluster:
            deadline = asyncio.get_running_loop().time() + within_s
            while True:
                found = await aftermath(cluster, topics, prefix)
                if found.is_settled or asyncio.get_running_loop().time() > deadline:
                    return found
                await asyncio.sleep(0.05)

    return asyncio.run(wait())


async def aftermath(cluster: Cluster, topics: Collection[str], prefix: str = "") -> Aftermath:
    """What is left at this moment."""
    described = await admin.topics(cluster, sorted(topics))
    places = [
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in described
        for partition in topic.partitions
    ]
    listed = await cluster.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    stable = await _ends(cluster, places, READ_COMMITTED)
    ends = await _ends(cluster, places, READ_UNCOMMITTED)
    return Aftermath(
        open_transactions={
            state.transactional_id: state.transaction_state
            for state in listed.transaction_states
            if state.transaction_state not in OVER and state.transactional_id.startswith(prefix)
        },
        open_producers=await _open_producers(cluster, places),
        unstable={
            str(place): (stable[place], ends[place])
            for place in places
            if stable[place] != ends[place]
        },
    )


async def _open_producers(
    cluster: Cluster, places: Sequence[TopicPartition]
) -> dict[str, list[int]]:
    topics = [
        TopicRequest(name=name, partition_indexes=indexes) for name, indexes in _grouped(places)
    ]
    reply = await cluster.ask(DescribeProducersRequest(topics=topics))
    found = {}
    for topic in reply.topics:
        for partition in topic.partitions:
            assert partition.error_code == 0, partition
            producers = [
                producer.producer_id
                for producer in partition.active_producers
                if producer.current_txn_start_offset >= 0
            ]
            if producers:
                found[f"{topic.name}-{partition.partition_index}"] = producers
    return found


async def _ends(
    cluster: Cluster, places: Sequence[TopicPartition], isolation: int
) -> dict[TopicPartition, int]:
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=admin.LATEST)
                    for index in indexes
                ],
            )
            for name, indexes in _grouped(places)
        ],
    )
    reply = await cluster.ask(request)
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in reply.topics
        for partition in topic.partitions
    }


def _grouped(places: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = {}
    for place in places:
        grouped.setdefault(place.topic, []).append(place.partition)
    return sorted(grouped.items())


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The offsets of a group in one topic, by partition."""

    async def ask() -> dict[TopicPartition, int]:
        async with await Cluster.open(bootstrap) as cluster:
            return await admin.committed_offsets(cluster, group)

    found = asyncio.run(ask())
    return {place.partition: at for place, at in sorted(found.items()) if place.topic == topic}


def describe(bootstrap: str, transactional_id: str) -> TransactionState:
    """What DescribeTransactions says of one id."""

    async def ask() -> TransactionState:
        async with await Cluster.open(bootstrap) as cluster:
            reply = await cluster.ask(
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                lambda: cluster.coordinator(CoordinatorKind.TRANSACTION, transactional_id),
            )
            (state,) = reply.transaction_states
            assert isinstance(state, TransactionState)
            return state

    return asyncio.run(ask())
