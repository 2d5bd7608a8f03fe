"""Produce (0), versions 3-13: append record batches.

3 transactional id; 5 log start offset; 7 zstd; 8 error messages; 9 flexible; 10 current leader;
11 TRANSACTION_ABORTABLE; 12 implicit add to a transaction (V2); 13 topics by id.

All appends of a request happen before this returns; with acks=all the response then waits until the
high watermark has passed them, repeats of older batches included. Only while the markers of the
producer's last transaction are under way nothing happens yet: the request waits for them first.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.api.registry import Deferred, RequestContext
from oncelog.api.transaction_errors import (
    COORDINATOR_TROUBLE,
    FIRST_PRODUCE_V2,
    produce_error_code,
)
from oncelog.core.batch import HEADER_BYTES, TRANSACTIONAL, BatchHeader, admit, read_header
from oncelog.core.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequiredAcks,
    RequestTimedOut,
    TransactionalIdAuthorizationFailed,
)
from oncelog.core.types import Now
from oncelog.runtime.node import Node
from oncelog.runtime.partition import AppendResult, Partition
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

FIRST_ZSTD: Final = 7
FIRST_BY_ID: Final = 13
ACKS_ALL: Final = -1
#: The low half of the attributes, where the transactional bit is.
ATTRIBUTES_BYTE: Final = 22


@dataclass(slots=True)
class _Append:
    """An append whose reply waits: the response to amend should the wait fail."""

    response: PartitionProduceResponse
    commits: list[asyncio.Future[None]] = field(default_factory=list)


def handle(
    node: Node, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse] | Deferred:
    """Append everything, then answer, or wait for the commit first."""
    refusal = _refuse_whole(request)
    if refusal is None and request.transactional_id is not None:
        if node.transactions.is_busy(request.transactional_id):
            return Deferred(_append_later(node, request, context))
    return _append_all(node, request, context, refusal)


async def _append_later(
    node: Node, request: ProduceRequest, context: RequestContext
) -> ProduceResponse:
    assert request.transactional_id is not None, "only transactions are waited for"
    await node.transactions.wait_until_idle(request.transactional_id)
    result = _append_all(node, request, context, None)
    return result if isinstance(result, ProduceResponse) else await result


def _append_all(
    node: Node, request: ProduceRequest, context: RequestContext, refusal: BrokerError | None
) -> ProduceResponse | Awaitable[ProduceResponse]:
    responses: list[TopicProduceResponse] = []
    response = ProduceResponse(responses=responses)
    now = node.clock.now()
    waiting: list[_Append] = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            if refusal is not None:
                answers.append(_failed(data.index, refusal, -1, context.version))
                continue
            answers.append(_append(node, request, topic, data, context, now, waiting))
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if not waiting:
        return response
    return _wait(response, waiting, request.timeout_ms, context.version)


def _refuse_whole(request: ProduceRequest) -> BrokerError | None:
    if request.acks not in (-1, 0, 1):
        return InvalidRequiredAcks(f"acks is {request.acks}; it may be -1, 0 or 1")
    identities = {(h.producer_id, h.producer_epoch) for h in _transactional(request)}
    if identities and request.transactional_id is None:
        return TransactionalIdAuthorizationFailed("a transactional batch needs a transactional id")
    if len(identities) > 1:
        return InvalidProducerIdMapping("one request has one producer")
    return None


def _transactional(request: ProduceRequest) -> Iterator[BatchHeader]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < HEADER_BYTES:
                continue
            if records[ATTRIBUTES_BYTE] & TRANSACTIONAL:
                yield read_header(records)


def _append(
    node: Node,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    context: RequestContext,
    now: Now,
    waiting: list[_Append],
) -> PartitionProduceResponse:
    partition: Partition | None = None
    joined: asyncio.Future[None] | None = None
    try:
        by_id = context.version >= FIRST_BY_ID
        name = node.metadata.topic_by_id(topic.topic_id).name if by_id else topic.name
        partition = node.writable_partition(name, data.index)
        batch = None if data.records is None else memoryview(data.records)
        header = admit(
            batch,
            zstd_allowed=context.version >= FIRST_ZSTD,
            max_bytes=partition.config.max_message_bytes,
        )
        assert batch is not None, "an admitted batch has bytes"
        must_join = partition.must_join(header)
        if header.is_transactional:
            joined = _join(node, request, partition, header, context, must_join=must_join)
            if context.version < FIRST_PRODUCE_V2:
                # Only now, when the coordinator knows it, does a producer count as heard.
                partition.check_speaker(
                    header.producer_id, header.producer_epoch, context.connection
                )
        result = partition.append_from_client(
            batch,
            header,
            now,
            starts_at_zero=must_join and context.version >= FIRST_PRODUCE_V2,
        )
    except BrokerError as error:
        log_start_offset = partition.log_start_offset if partition else -1
        return _failed(data.index, error, log_start_offset, context.version)
    response = _appended(data.index, result, partition)
    if request.acks == ACKS_ALL:
        committed = partition.committed(result.last_offset + 1)
        commits = [future for future in (committed, joined) if future is not None]
        if commits:
            waiting.append(_Append(response, commits))
    return response


def _join(
    node: Node,
    request: ProduceRequest,
    partition: Partition,
    header: BatchHeader,
    context: RequestContext,
    *,
    must_join: bool,
) -> asyncio.Future[None] | None:
    """Let the coordinator confirm that the partition is part of the transaction, or add it."""
    is_v2 = context.version >= FIRST_PRODUCE_V2
    if not must_join:
        return partition.joining(header.producer_id)
    if not (is_v2 or node.config.transaction_partition_verification_enable):
        return None
    assert request.transactional_id is not None, "a transactional batch was refused without one"
    try:
        joined = node.transactions.join_now(
            request.transactional_id,
            header.producer_id,
            header.producer_epoch,
            partition.topic_partition,
            is_v2=is_v2,
        )
    except (ConcurrentTransactions, *COORDINATOR_TROUBLE):
        partition.producers.hold_back(header)
        raise
    node.transactions.hear(request.transactional_id, context.client_id, context.client_host)
    if joined is not None:
        partition.joins(header.producer_id, node.transactions.pending(request.transactional_id))
    return joined


def _appended(index: int, result: AppendResult, partition: Partition) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _failed(
    index: int, error: BrokerError, log_start_offset: int, version: int
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=produce_error_code(error, version),
        base_offset=-1,
        log_start_offset=log_start_offset,
        error_message=str(error),
    )


async def _wait(
    response: ProduceResponse, waiting: list[_Append], timeout_ms: int, version: int
) -> ProduceResponse:
    """Wait for the commits; an append whose commit does not come is reported as unknown."""
    futures = [future for append in waiting for future in append.commits]
    await asyncio.wait(futures, timeout=max(timeout_ms, 0) / 1000)
    for append in waiting:
        failure = _failure(append.commits, timeout_ms)
        if failure is not None:
            append.response.error_code = produce_error_code(failure, version)
            append.response.error_message = str(failure)
            append.response.base_offset = -1
    return response


def _failure(commits: list[asyncio.Future[None]], timeout_ms: int) -> BrokerError | None:
    failure: BrokerError | None = None
    for future in commits:
        if not future.done():
            future.cancel()
            failure = RequestTimedOut(f"not committed within {timeout_ms} ms")
        else:
            raised = future.exception()
            assert raised is None or isinstance(raised, BrokerError), f"a commit raised {raised!r}"
            failure = raised or failure
    return failure
