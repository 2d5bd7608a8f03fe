"""Produce (0), versions 3-13: append record batches.

3 transactional id; 5 log start offset; 7 zstd; 8 error messages; 9 flexible; 10 current leader;
11 TRANSACTION_ABORTABLE; 12 implicit add to a transaction; 13 topics by id.

All appends of a request happen before this returns; with acks=all the response then waits until the
high watermark has passed them, repeats of older batches included.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.batch import admit
from oncelog.core.errors import (
    BrokerError,
    InvalidRequiredAcks,
    RequestTimedOut,
    TransactionalIdAuthorizationFailed,
)
from oncelog.core.types import Now
from oncelog.runtime.node import Node
from oncelog.runtime.partition import AppendResult, Partition
from oncelog.wire.errors import error_code
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


@dataclass(frozen=True, slots=True)
class _Append:
    """An append whose reply waits: the response to amend should the wait fail."""

    response: PartitionProduceResponse
    committed: asyncio.Future[None]


def handle(
    node: Node, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse]:
    """Append everything, then answer, or wait for the commit first."""
    responses: list[TopicProduceResponse] = []
    response = ProduceResponse(responses=responses)
    refusal = _refuse_whole(request)
    now = node.clock.now()
    waiting: list[_Append] = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            if refusal is not None:
                answers.append(_failed(data.index, refusal, -1))
                continue
            answers.append(_append(node, request.acks, topic, data, context, now, waiting))
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if not waiting:
        return response
    return _wait(response, waiting, request.timeout_ms)


def _refuse_whole(request: ProduceRequest) -> BrokerError | None:
    if request.acks not in (-1, 0, 1):
        return InvalidRequiredAcks(f"acks is {request.acks}; it may be -1, 0 or 1")
    if request.transactional_id is None and _has_transactional(request.topic_data):
        return TransactionalIdAuthorizationFailed("a transactional batch needs a transactional id")
    return None


def _has_transactional(topics: Sequence[TopicProduceData]) -> bool:
    for topic in topics:
        for data in topic.partition_data:
            # Byte 22 is the low half of the attributes.
            if data.records is not None and len(data.records) > 22 and data.records[22] & 0x10:
                return True
    return False


def _append(
    node: Node,
    acks: int,
    topic: TopicProduceData,
    data: PartitionProduceData,
    context: RequestContext,
    now: Now,
    waiting: list[_Append],
) -> PartitionProduceResponse:
    partition: Partition | None = None
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
        result = partition.append_from_client(batch, header, now)
    except BrokerError as error:
        return _failed(data.index, error, partition.log_start_offset if partition else -1)
    response = _appended(data.index, result, partition)
    if acks == ACKS_ALL:
        committed = partition.committed(result.last_offset + 1)
        if committed is not None:
            waiting.append(_Append(response, committed))
    return response


def _appended(index: int, result: AppendResult, partition: Partition) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log_start_offset,
    )


def _failed(index: int, error: BrokerError, log_start_offset: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error_code(error),
        base_offset=-1,
        log_start_offset=log_start_offset,
        error_message=str(error),
    )


async def _wait(
    response: ProduceResponse, waiting: list[_Append], timeout_ms: int
) -> ProduceResponse:
    """Wait for the commits; an append whose commit does not come is reported as unknown."""
    futures = [append.committed for append in waiting]
    await asyncio.wait(futures, timeout=max(timeout_ms, 0) / 1000)
    for append in waiting:
        failure: BrokerError | None = None
        if not append.committed.done():
            failure = RequestTimedOut(f"not committed within {timeout_ms} ms")
            append.committed.cancel()
        else:
            raised = append.committed.exception()
            assert raised is None or isinstance(raised, BrokerError), f"a commit raised {raised!r}"
            failure = raised
        if failure is not None:
            append.response.error_code = error_code(failure)
            append.response.error_message = str(failure)
            append.response.base_offset = -1
    return response
