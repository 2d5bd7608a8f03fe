"""A V2 client's batch joins its transaction: it is acknowledged only if the coordinator keeps that."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog.api import produce
from oncelog.api.registry import RequestContext
from oncelog.api.transaction_errors import FIRST_PRODUCE_V2
from oncelog.core.packing import encode_batch
from oncelog.core.records import Record
from oncelog.core.txn.commands import Identity
from oncelog.core.types import TRANSACTION_TOPIC
from oncelog.runtime.node import Node
from oncelog.runtime.partition import Partition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.runtime.test_node import a_core

TOPIC = "t"
CONTEXT = RequestContext(api_key=0, version=FIRST_PRODUCE_V2, client_id="", client_host="")
SETTINGS = {"oncelog.flush": "sync", "transaction.state.log.num.partitions": "1"}


class Sender:
    """A transactional producer of V2, whose batches hold one record each."""

    def __init__(self, node: Node, identity: Identity) -> None:
        self._node = node
        self._identity = identity
        self.coordinator_log: Partition = node.partition(TRANSACTION_TOPIC, 0)

    def send(self, sequence: int) -> Awaitable[PartitionProduceResponse]:
        """Have one batch appended, now; its answer comes when the batch is durable, or refused."""
        batch = encode_batch(
            [Record(0, self._node.clock.now().wall_ms, None, b"v", ())],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            transactional_id="id",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        return _only(produce.handle(self._node, request, CONTEXT))


async def _only(handled: object) -> PartitionProduceResponse:
    response = await handled if isinstance(handled, Awaitable) else handled
    assert isinstance(response, ProduceResponse), response
    ((answer,),) = [topic.partition_responses for topic in response.responses]
    return answer


@asynccontextmanager
async def a_sender(data_dir: Path) -> AsyncIterator[Sender]:
    async with a_core(data_dir, SETTINGS) as core:
        await core.node.ensure_transaction_topic()
        await core.node.ensure_topic(TOPIC)
        identity = await core.node.transactions.init_producer_id("id", 60_000, None)
        yield Sender(core.node, identity)


def test_no_batch_is_acknowledged_that_the_coordinator_has_lost(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with a_sender(tmp_path / "data") as sender:
            first = sender.send(0)
            sender.coordinator_log.take_offline("its disk could not sync")
            # Both batches are in the partition, and stay there: only the coordinator has failed.
            answers = [await first, await sender.send(0), await sender.send(1)]
            return [answer.error_code for answer in answers]

    assert asyncio.run(run()) == [ErrorCode.KAFKA_STORAGE_ERROR] * 3


def test_a_repeat_waits_for_the_coordinator_as_the_first_batch_does(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with a_sender(tmp_path / "data") as sender:
            first, repeat = sender.send(0), sender.send(0)
            sender.coordinator_log.take_offline("its disk could not sync")
            return [(await first).error_code, (await repeat).error_code]

    assert asyncio.run(run()) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_a_repeat_is_acknowledged_where_the_first_batch_was(tmp_path: Path) -> None:
    async def run() -> list[tuple[int, int]]:
        async with a_sender(tmp_path / "data") as sender:
            answers = [await sender.send(0), await sender.send(0), await sender.send(1)]
            return [(answer.error_code, answer.base_offset) for answer in answers]

    assert asyncio.run(run()) == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]


def test_a_batch_that_was_acknowledged_before_the_coordinator_failed_may_be_repeated(
    tmp_path: Path,
) -> None:
    """What the coordinator has on its disk is there after the restart: the commit will cover it."""

    async def run() -> list[int]:
        async with a_sender(tmp_path / "data") as sender:
            answers = [await sender.send(0), await sender.send(1)]
            sender.coordinator_log.take_offline("its disk could not sync")
            answers.append(await sender.send(1))
            return [answer.error_code for answer in answers]

    assert asyncio.run(run()) == [ErrorCode.NONE] * 3
