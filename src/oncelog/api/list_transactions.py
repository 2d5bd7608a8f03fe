"""ListTransactions (66), versions 0-2: transactional ids by state, producer, age and name.

1 a duration; 2 a pattern, which has to match the whole id.
"""

from typing import Any, Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRegularExpression
from oncelog.core.txn.machine import TxnState
from oncelog.core.txn.records import Txn
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

#: What a compiled pattern may take.
PATTERN_BYTES: Final = 1 << 20


def handle(
    node: Node, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """All ids that pass every filter; a state that nobody knows is named in the answer."""
    labels = {state.label for state in TxnState}
    unknown = [name for name in request.state_filters if name not in labels]
    try:
        pattern = compile_pattern(request.transactional_id_pattern)
    except BrokerError as error:
        return ListTransactionsResponse(error_code=error_code(error))
    now_ms = node.clock.now().wall_ms
    wanted = [
        txn
        for txn in node.transactions.all_transactions()
        if _passes(txn, request, now_ms)
        and (pattern is None or pattern.fullmatch(txn.transactional_id))
    ]
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=txn.transactional_id,
                producer_id=txn.producer_id,
                transaction_state=txn.state.label,
            )
            for txn in wanted
        ],
    )


def compile_pattern(text: str | None) -> Any | None:
    """A client's pattern: matched in linear time, whatever it says, so RE2 and not Python's own."""
    if not text:
        return None
    import re2  # loaded by those who ask for a pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise InvalidRegularExpression(f"{text!r}: {error}") from error


def _passes(txn: Txn, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and txn.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and txn.producer_id not in request.producer_id_filters:
        return False
    started_at_ms = -1 if txn.started_at_ms is None else txn.started_at_ms
    return request.duration_filter < 0 or now_ms - started_at_ms > request.duration_filter
