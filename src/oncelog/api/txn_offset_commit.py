"""TxnOffsetCommit (28), versions 0-5: how far a group has read, if the transaction is committed.

2 leader epochs, and a coordinator that is loading may say so (KAFKA-9656); 3 flexible, member and
generation (KIP-447); 4 TRANSACTION_ABORTABLE; 5 the group's partition is added to the transaction
(KIP-890), before that the client has added it with AddOffsetsToTxn.

Kafka stores negative offsets here; we answer INVALID_REQUEST, because the next consumer would take
one for "nothing committed".
"""

import asyncio
from typing import Final, TypeAlias

from oncelog.api.registry import RequestContext
from oncelog.core.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaStorageError,
    NotCoordinator,
)
from oncelog.core.groups.commands import CommitTxnOffsets, OffsetToCommit, PartitionOutcome
from oncelog.core.groups.offsets import check_txn_group_id
from oncelog.core.types import OFFSETS_TOPIC, TopicPartition, partition_for
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code, txn_error_code
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_WITH_LOADING: Final = 2
FIRST_V2: Final = 5

#: The place of a topic in the request, and a partition of it.
Key: TypeAlias = tuple[int, int]


async def handle(
    node: Node, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Write down what can be; each partition has an answer of its own."""
    codes, offsets = _sort_out(node, request)
    if offsets:
        codes |= await _commit(node, request, tuple(offsets), context)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes[index, p.partition_index],
                    )
                    for p in topic.partitions
                ],
            )
            for index, topic in enumerate(request.topics)
        ]
    )


def _sort_out(
    node: Node, request: TxnOffsetCommitRequest
) -> tuple[dict[Key, int], dict[Key, OffsetToCommit]]:
    """The partitions that do not exist, and the offsets of those that do."""
    codes: dict[Key, int] = {}
    offsets: dict[Key, OffsetToCommit] = {}
    for index, topic in enumerate(request.topics):
        found = node.metadata.topics.get(topic.name)
        for partition in topic.partitions:
            key = (index, partition.partition_index)
            if found is None or not 0 <= partition.partition_index < found.partition_count:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            epoch = partition.committed_leader_epoch
            offsets[key] = OffsetToCommit(
                partition=TopicPartition(found.name, partition.partition_index),
                offset=partition.committed_offset,
                leader_epoch=None if epoch < 0 else epoch,
                metadata=partition.committed_metadata or "",
                topic_id=found.topic_id,
            )
    return codes, offsets


async def _commit(
    node: Node, request: TxnOffsetCommitRequest, keys: tuple[Key, ...], context: RequestContext
) -> dict[Key, int]:
    try:
        check_txn_group_id(request.group_id)
        added = await _join(node, request, context)
        # From here until the group decides nothing may be awaited (KAFKA-15784): the transaction is
        # open, the topics are there and the member is in its generation at one and the same moment.
        codes, offsets = _sort_out(node, request)
        try:
            outcomes: tuple[PartitionOutcome, ...] = await node.ask_group(
                request.group_id, _command(request, tuple(offsets.values()))
            )
        finally:
            # The marker is owed once this is durable, so nobody hears of offsets before it is.
            if added is not None:
                await added
    except BrokerError as error:
        return dict.fromkeys(keys, _code(error, context))
    for key, outcome in zip(offsets, outcomes, strict=True):
        codes[key] = ErrorCode.NONE if outcome.error is None else error_code(outcome.error)
    return codes


async def _join(
    node: Node, request: TxnOffsetCommitRequest, context: RequestContext
) -> asyncio.Future[None] | None:
    """Make sure that the group's partition is part of the open transaction when this returns."""
    count = node.offsets_partition_count
    if count == 0:
        raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} does not exist yet")
    partition = node.partition(OFFSETS_TOPIC, partition_for(request.group_id, count))
    partition.producers.check_epoch(request.producer_id, request.producer_epoch)
    is_v2 = context.version >= FIRST_V2
    if not is_v2:
        # Offsets that were held up in the network must not become part of the next transaction.
        partition.check_speaker(request.producer_id, request.producer_epoch, context.connection)
        if not node.config.transaction_partition_verification_enable:
            return None
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    place = partition.topic_partition
    try:
        return node.transactions.join_now(*producer, place, is_v2=is_v2)
    except ConcurrentTransactions:
        # The markers of the last transaction are under way. After the wait anything may have
        # happened to this one, so it is asked for once more.
        await node.transactions.join(*producer, place, is_v2=is_v2)
        return node.transactions.join_now(*producer, place, is_v2=is_v2)


def _command(
    request: TxnOffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
) -> CommitTxnOffsets:
    return CommitTxnOffsets(
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=None if request.generation_id < 0 else request.generation_id,
        offsets=offsets,
    )


def _code(error: BrokerError, context: RequestContext) -> ErrorCode:
    """What this version's clients understand: a code that they do not expect ends the producer."""
    match error:
        case CoordinatorLoadInProgress() if context.version < FIRST_WITH_LOADING:
            error = CoordinatorNotAvailable(str(error))
        case GroupIdNotFound():
            error = IllegalGeneration(str(error))
        case KafkaStorageError():
            error = NotCoordinator(str(error))
        case _:
            pass
    return txn_error_code(error, api_key=context.api_key, version=context.version)
