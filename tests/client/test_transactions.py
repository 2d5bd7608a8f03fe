"""Asking about transactions, against a broker that answers what a test tells it to."""

from typing import Any

import pytest

from oncelog.client import transactions
from oncelog.client.cluster import Cluster
from oncelog.client.errors import NoCommonVersion, Refused
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_configs import DescribeConfigsResponse
from oncelog.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.list_transactions import ListTransactionsResponse
from oncelog.wire.messages.list_transactions import TransactionState as Listed
from oncelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.client.fake_broker import FakeBroker, running

FIND_COORDINATOR, INIT_PRODUCER_ID, WRITE_TXN_MARKERS, DESCRIBE_CONFIGS = 10, 22, 27, 32
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66

PLACE = TopicPartition("t", 0)
NOW_MS, MAX_TIMEOUT_MS = 10_000_000, 900_000


class TransactionBroker(FakeBroker):
    """Topic t with one partition, in which producer 7 has had a transaction open for long."""

    def __init__(self, *owned: str, last_timestamp: int = 0) -> None:
        super().__init__()
        led = [MetadataResponsePartition(partition_index=0, leader_id=1)]
        self.topics = [MetadataResponseTopic(name="t", partitions=led)]
        self.producer = ProducerState(
            producer_id=7,
            producer_epoch=3,
            last_timestamp=last_timestamp,
            coordinator_epoch=-1,
            current_txn_start_offset=40,
        )
        idle = ProducerState(producer_id=8, coordinator_epoch=-1)
        found = PartitionResponse(partition_index=0, active_producers=[self.producer, idle])
        topics = [TopicResponse(name="t", partitions=[found])]
        self.owned = owned
        self.answers |= {
            FIND_COORDINATOR: self.find_coordinator,
            DESCRIBE_PRODUCERS: lambda *_: DescribeProducersResponse(topics=topics),
            LIST_TRANSACTIONS: self.list_transactions,
            DESCRIBE_TRANSACTIONS: self.describe_transactions,
        }

    def find_coordinator(self, request: Any, version: int) -> Any:
        here = Coordinator(key="x", node_id=1, host="127.0.0.1", port=self.port)
        return FindCoordinatorResponse(coordinators=[here])

    def list_transactions(self, request: Any, version: int) -> Any:
        assert list(request.producer_id_filters) == [7]
        listed = [Listed(transactional_id="x", producer_id=7)] if self.owned else []
        return ListTransactionsResponse(transaction_states=listed)

    def describe_transactions(self, request: Any, version: int) -> Any:
        topics = [TopicData(topic=topic, partitions=[0]) for topic in self.owned]
        state = TransactionState(transactional_id="x", producer_id=7, topics=topics)
        return DescribeTransactionsResponse(transaction_states=[state])


async def hanging(broker: TransactionBroker) -> list[transactions.Hanging]:
    async with broker, await Cluster.open(broker.bootstrap) as cluster:
        return await transactions.find_hanging(
            cluster, [PLACE], older_than_ms=MAX_TIMEOUT_MS, now_ms=NOW_MS
        )


@running
async def test_a_transaction_that_no_id_owns_hangs() -> None:
    (found,) = await hanging(TransactionBroker())

    assert (found.partition, found.producer.current_txn_start_offset) == (PLACE, 40)
    assert found.owner is None


@running
async def test_a_transaction_hangs_if_its_id_knows_other_partitions_only() -> None:
    (found,) = await hanging(TransactionBroker("another"))

    assert found.owner is not None
    assert found.owner.transactional_id == "x"


@running
async def test_a_transaction_that_its_coordinator_will_end_does_not_hang() -> None:
    assert await hanging(TransactionBroker("t")) == []


@running
async def test_a_transaction_that_may_still_be_young_does_not_hang() -> None:
    assert await hanging(TransactionBroker(last_timestamp=NOW_MS - MAX_TIMEOUT_MS)) == []


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH])
@running
async def test_a_hanging_transaction_is_ended_by_an_abort_marker_at_its_own_epoch(
    code: ErrorCode,
) -> None:
    broker = TransactionBroker()
    written = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = WritableTxnMarkerTopicResult(name="t", partitions=[written])
    result = WritableTxnMarkerResult(producer_id=7, topics=[topic])
    broker.answers[WRITE_TXN_MARKERS] = lambda *_: WriteTxnMarkersResponse(markers=[result])

    async with broker, await Cluster.open(broker.bootstrap) as cluster:
        if code:
            with pytest.raises(Refused, match="Partition t-0: INVALID_PRODUCER_EPOCH"):
                await transactions.abort_in_partition(cluster, PLACE, broker.producer)
        else:
            await transactions.abort_in_partition(cluster, PLACE, broker.producer)

    (marker,) = next(r for r, _ in broker.seen if isinstance(r, WriteTxnMarkersRequest)).markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)


@running
async def test_fencing_asks_again_while_the_last_transaction_is_being_ended() -> None:
    broker = TransactionBroker()
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0]
    broker.answers[INIT_PRODUCER_ID] = lambda *_: InitProducerIdResponse(
        error_code=codes.pop(0), producer_id=7, producer_epoch=5
    )

    async with broker, await Cluster.open(broker.bootstrap) as cluster:
        reply = await transactions.fence(cluster, "x", timeout_ms=30_000, wait_s=20)

    asked = [request for request, _ in broker.seen if isinstance(request, InitProducerIdRequest)]
    assert reply.producer_epoch == 5
    assert len(asked) == 3
    assert {(each.producer_id, each.producer_epoch) for each in asked} == {(-1, -1)}


@running
async def test_fencing_gives_up_when_its_time_is_up() -> None:
    broker = TransactionBroker()
    broker.answers[INIT_PRODUCER_ID] = lambda *_: InitProducerIdResponse(
        error_code=ErrorCode.CONCURRENT_TRANSACTIONS
    )

    async with broker, await Cluster.open(broker.bootstrap) as cluster:
        with pytest.raises(Refused, match="CONCURRENT_TRANSACTIONS"):
            await transactions.fence(cluster, "x", timeout_ms=30_000, wait_s=0.15)


@running
async def test_a_broker_that_would_leave_a_filter_out_is_not_asked() -> None:
    broker = TransactionBroker()
    broker.versions[LIST_TRANSACTIONS] = range(0, 2)

    async with broker, await Cluster.open(broker.bootstrap) as cluster:
        with pytest.raises(NoCommonVersion):
            await transactions.find(cluster, pattern="x.*")


@running
async def test_a_broker_that_does_not_tell_has_kafkas_longest_timeout() -> None:
    broker = TransactionBroker()
    broker.answers[DESCRIBE_CONFIGS] = lambda *_: DescribeConfigsResponse()

    async with broker, await Cluster.open(broker.bootstrap) as cluster:
        assert await transactions.max_timeout_ms(cluster) == MAX_TIMEOUT_MS
