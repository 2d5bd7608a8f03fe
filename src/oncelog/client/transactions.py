"""What an operator asks about transactions: who has one open, who holds readers up, and how to end it."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client.cluster import Cluster, CoordinatorKind, raise_for
from oncelog.client.connection import Connection
from oncelog.client.errors import NoCommonVersion
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

#: The states as the protocol spells them; the first is open, the next two are being ended.
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
STATES: Final = ("Empty", *OPEN_STATES, "CompleteCommit", "CompleteAbort")

#: How long transactions last at most where a broker does not say.
KAFKAS_MAX_TIMEOUT_MS: Final = 900_000

_FIRST_WITH_DURATION: Final = 1
_FIRST_WITH_PATTERN: Final = 2
_BROKER_RESOURCE: Final = 4
#: How many ids are described in one request.
_AT_ONCE: Final = 500
_PAUSE_S: Final = 0.1


def partitions_of(txn: TransactionState) -> list[TopicPartition]:
    """The partitions of a transaction, in order."""
    return sorted(TopicPartition(t.topic, index) for t in txn.topics for index in t.partitions)


# --- looking --------------------------------------------------------------------------------


async def find(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    older_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[TransactionState]:
    """The transactional ids that pass every filter, described, in the order of their names."""
    message = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if older_than_ms is None else older_than_ms,
        transactional_id_pattern=pattern,
    )
    needed = _FIRST_WITH_PATTERN if pattern else _FIRST_WITH_DURATION if older_than_ms else 0

    async def attempt() -> list[tuple[Connection, ListTransactionsResponse]]:
        replies = []
        for _, connection in await cluster.everyone():
            # An older broker would leave the filter out, and answer with everything.
            if connection.version_of(message) < needed:
                raise NoCommonVersion(f"The broker's ListTransactions is older than {needed}.")
            replies.append((connection, await connection.request(message)))
        return replies

    found: list[TransactionState] = []
    for connection, reply in await cluster.patiently(attempt):
        raise_for(reply.error_code, "The list of transactions")
        names = [listed.transactional_id for listed in reply.transaction_states]
        for start in range(0, len(names), _AT_ONCE):
            # Whoever lists an id coordinates it.
            described = await connection.request(
                DescribeTransactionsRequest(transactional_ids=names[start : start + _AT_ONCE])
            )
            # An id that was forgotten since is not there any more.
            found += [each for each in described.transaction_states if each.error_code == 0]
    return sorted(found, key=lambda txn: txn.transactional_id)


async def describe(cluster: Cluster, transactional_id: str) -> TransactionState:
    """One transactional id; one that nobody knows is refused."""
    reply: DescribeTransactionsResponse = await cluster.ask(
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        _coordinator(cluster, transactional_id),
    )
    (txn,) = reply.transaction_states
    raise_for(txn.error_code, f"Transactional id {transactional_id}")
    return txn


async def producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    """Who writes to each of the partitions, as its leader remembers it."""
    wanted = list(partitions)

    async def attempt() -> list[DescribeProducersResponse]:
        replies = []
        for node_id, led in (await cluster.leaders(wanted)).items():
            connection = await cluster.node(node_id)
            topics = [TopicRequest(name=t, partition_indexes=p) for t, p in _by_topic(led).items()]
            replies.append(await connection.request(DescribeProducersRequest(topics=topics)))
        return replies

    found: dict[TopicPartition, list[ProducerState]] = {}
    for reply in await cluster.patiently(attempt):
        for topic in reply.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition_index)
                raise_for(partition.error_code, f"Partition {place}", partition.error_message)
                found[place] = sorted(partition.active_producers, key=lambda p: p.producer_id)
    return found


async def owners(cluster: Cluster, producer_ids: Iterable[int]) -> dict[int, TransactionState]:
    """The transactional ids that have these producer ids."""
    wanted = sorted(set(producer_ids))
    if not wanted:
        return {}
    return {txn.producer_id: txn for txn in await find(cluster, producer_ids=wanted)}


async def max_timeout_ms(cluster: Cluster) -> int:
    """The longest timeout that a transaction may have, or Kafka's default if no broker tells."""
    name = "transaction.max.timeout.ms"
    longest = 0
    for node_id, connection in await cluster.everyone():
        resource = DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[name]
        )
        reply: DescribeConfigsResponse = await connection.request(
            DescribeConfigsRequest(resources=[resource])
        )
        for result in reply.results:
            longest = max([longest, *(int(c.value) for c in result.configs if c.value)])
    return longest or KAFKAS_MAX_TIMEOUT_MS


# --- hanging ones -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A transaction that is open in a partition and that no coordinator will ever end."""

    partition: TopicPartition
    producer: ProducerState
    #: The id that has the producer id, though its transaction is not in this partition.
    owner: TransactionState | None


async def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int
) -> list[Hanging]:
    """The transactions that nobody owns among those that nobody has written to for so long.

    First the partitions are asked and then the coordinators: a transaction that begins or ends in
    between is young, and therefore none of those that were found.
    """
    candidates = [
        (place, producer)
        for place, found in sorted((await producers(cluster, partitions)).items())
        for producer in found
        if producer.current_txn_start_offset >= 0
        and now_ms - producer.last_timestamp > older_than_ms
    ]
    owned = await owners(cluster, (producer.producer_id for _, producer in candidates))
    return [
        Hanging(partition=place, producer=producer, owner=owned.get(producer.producer_id))
        for place, producer in candidates
        if not is_owned(place, owned.get(producer.producer_id))
    ]


def is_owned(partition: TopicPartition, owner: TransactionState | None) -> bool:
    """Whether a coordinator will end what is open in a partition."""
    return owner is not None and partition in partitions_of(owner)


async def abort_in_partition(
    cluster: Cluster, partition: TopicPartition, producer: ProducerState
) -> None:
    """End a hanging transaction with a marker from outside, as Kafka's own tool does."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        ],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        # Under the rules of before V2 a marker may have the epoch that is open.
        transaction_version=0,
    )

    async def leader() -> Connection:
        (node_id,) = await cluster.leaders([partition])
        return await cluster.node(node_id)

    reply: WriteTxnMarkersResponse = await cluster.ask(
        WriteTxnMarkersRequest(markers=[marker]), leader
    )
    for result in reply.markers:
        for topic in result.topics:
            for written in topic.partitions:
                raise_for(written.error_code, f"Partition {partition}")


# --- fencing ----------------------------------------------------------------------------------


async def fence(
    cluster: Cluster, transactional_id: str, *, timeout_ms: int, wait_s: float
) -> InitProducerIdResponse:
    """Become the newest producer of an id: what is open is aborted, and all others are fenced."""
    message = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        reply: InitProducerIdResponse = await cluster.ask(
            message, _coordinator(cluster, transactional_id)
        )
        is_last = asyncio.get_running_loop().time() + _PAUSE_S > deadline
        if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS or is_last:
            raise_for(reply.error_code, f"Transactional id {transactional_id}")
            return reply
        await asyncio.sleep(_PAUSE_S)


def _coordinator(cluster: Cluster, transactional_id: str) -> Any:
    async def found() -> Connection:
        return await cluster.coordinator(CoordinatorKind.TRANSACTION, transactional_id)

    return found


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for place in sorted(partitions):
        grouped.setdefault(place.topic, []).append(place.partition)
    return grouped
