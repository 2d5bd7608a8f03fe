"""DescribeTransactions (65), version 0: the state of transactional ids.

In tagged fields of ours, which other clients step over: which client spoke last under the id, from
where and when, since this broker started.
"""

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest, TransactionalIdNotFound
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    node: Node, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each id; once the outcome is decided, the partitions that still lack their marker."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(node, name) for name in request.transactional_ids]
    )


def _describe(node: Node, transactional_id: str) -> TransactionState:
    state = TransactionState(transactional_id=transactional_id)
    try:
        if not transactional_id:
            raise InvalidRequest("a transactional id may not be empty")
        txn = node.transactions.find(transactional_id)
        if txn is None:
            raise TransactionalIdNotFound(f"{transactional_id!r} is unknown")
    except BrokerError as error:
        state.error_code = error_code(error)
        return state
    topics: dict[str, list[int]] = {}
    for topic_partition in node.transactions.unmarked(txn):
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    state.transaction_state = txn.state.label
    state.transaction_timeout_ms = txn.timeout_ms
    state.transaction_start_time_ms = -1 if txn.started_at_ms is None else txn.started_at_ms
    state.producer_id = txn.producer_id
    state.producer_epoch = txn.producer_epoch
    heard = node.transactions.last_heard(transactional_id)
    if heard is not None:
        state.client_id = heard.client_id
        state.client_host = heard.client_host
        state.last_heard_time_ms = heard.at_ms
    state.topics = [TopicData(topic=t, partitions=p) for t, p in topics.items()]
    return state
