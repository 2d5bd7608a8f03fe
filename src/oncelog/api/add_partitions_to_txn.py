"""AddPartitionsToTxn (24), versions 0-5: partitions take part in the transaction.

2 PRODUCER_FENCED; 3 flexible; 4 several transactions at once and verification only, as brokers ask
each other (KIP-890); 5 TRANSACTION_ABORTABLE. All partitions of a transaction are added, or none.
"""

from collections.abc import Sequence
from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import (
    BrokerError,
    InvalidRequest,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from oncelog.core.types import INTERNAL_TOPICS, TopicPartition
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code, txn_error_code
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

KEY: Final = 24
FIRST_BATCHED: Final = 4


async def handle(
    node: Node, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add, or only verify."""
    if context.version >= FIRST_BATCHED:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=await _answer(node, transaction, context, is_client=False),
                )
                for transaction in request.transactions
            ]
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _answer(node, transaction, context, is_client=True)
    )


async def _answer(
    node: Node,
    transaction: AddPartitionsToTxnTransaction,
    context: RequestContext,
    *,
    is_client: bool,
) -> list[AddPartitionsToTxnTopicResult]:
    wanted = _partitions(transaction.topics)
    errors: dict[TopicPartition, BrokerError | None] = dict.fromkeys(wanted)
    refused = {tp: error for tp in wanted if (error := _refusal(node, tp, is_client))}
    if refused:
        not_attempted = OperationNotAttempted("another partition of the request was refused")
        errors = {tp: refused.get(tp, not_attempted) for tp in wanted}
    elif transaction.verify_only:
        errors = {tp: _verify(node, transaction, tp) for tp in wanted}
    else:
        try:
            await _add(node, transaction, wanted, context, is_client=is_client)
        except BrokerError as error:
            errors = dict.fromkeys(wanted, error)
    return _results(transaction.topics, errors, context.version)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
    )


def _refusal(node: Node, partition: TopicPartition, is_client: bool) -> BrokerError | None:
    if is_client and partition.topic in INTERNAL_TOPICS:
        return TopicAuthorizationFailed(f"{partition.topic} is not for clients")
    if node.logs.find(partition) is None:
        return UnknownTopicOrPartition(f"there is no partition {partition}")
    return None


def _verify(
    node: Node, transaction: AddPartitionsToTxnTransaction, partition: TopicPartition
) -> BrokerError | None:
    try:
        node.transactions.verify(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partition,
        )
    except BrokerError as error:
        return error
    return None


async def _add(
    node: Node,
    transaction: AddPartitionsToTxnTransaction,
    partitions: tuple[TopicPartition, ...],
    context: RequestContext,
    *,
    is_client: bool,
) -> None:
    if not transaction.transactional_id:
        raise InvalidRequest("a transactional id may not be empty")
    if is_client:
        node.transactions.check_speaker(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            context.connection,
        )
    await node.transactions.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        partitions,
        client_version=0 if is_client else 2,
    )
    if is_client:
        node.transactions.hear(transaction.transactional_id, context.client_id, context.client_host)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic],
    errors: dict[TopicPartition, BrokerError | None],
    version: int,
) -> list[AddPartitionsToTxnTopicResult]:
    def code(partition: TopicPartition) -> int:
        error = errors[partition]
        if error is None:
            return ErrorCode.NONE
        if version >= FIRST_BATCHED:
            return error_code(error)  # Brokers know every code, in version 4 too.
        return txn_error_code(error, api_key=KEY, version=version)

    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=code(TopicPartition(topic.name, index)),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
