"""A transactional producer that does what it is told: any step, in any version, at any moment.

    producer = Producer(line, "id", is_v2=True)
    producer.init()
    producer.send(0, b"a")
    producer.commit()

V1 adds partitions first and keeps its epoch; V2 sends at once and takes its epoch from each end. What
a step is answered with is returned, not judged; `begin`, `decide`, `commit` and `abort` insist.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from oncelog.core.packing import Codec, encode_batch
from oncelog.core.records import Record
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.txn.world import Line

TOPIC: Final = "t"
GROUP: Final = "g"
OK: Final = ErrorCode.NONE
#: What a coordinator that has just been made answers for a moment.
TRANSIENT: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
#: The newest versions of each generation of clients.
ADD_VERSION: Final = 3
INIT_VERSION: Final = 5
PRODUCE_V1: Final = 11
PRODUCE_V2: Final = 12
END_V1: Final = 4
END_V2: Final = 5


class Producer:
    """One instance: it knows its identity, and counts its records."""

    def __init__(
        self,
        line: Line,
        transactional_id: str = "x",
        *,
        is_v2: bool = False,
        timeout_ms: int = 60_000,
        topic: str = TOPIC,
    ) -> None:
        self.line = line
        self.transactional_id = transactional_id
        self.is_v2 = is_v2
        self.timeout_ms = timeout_ms
        self.topic = topic
        self.producer_id = -1
        self.producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    # --- identity -----------------------------------------------------------------------------------

    def init(
        self,
        version: int = INIT_VERSION,
        *,
        supplied: tuple[int, int] | None = None,
        timeout_ms: int | None = None,
    ) -> InitProducerIdResponse:
        """Ask for an identity, and take it over."""
        producer_id, epoch = supplied or (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        reply: InitProducerIdResponse = self.line.ask(request, version)
        if reply.error_code == 0:
            self.take_over(reply.producer_id, reply.producer_epoch)
        return reply

    def take_over(self, producer_id: int, producer_epoch: int) -> None:
        """This is who it is from now on."""
        if (producer_id, producer_epoch) != self.identity:
            self._sequences = {}
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def ready(self) -> "Producer":
        """With an identity."""
        find_coordinator(self.line, self.transactional_id)
        deadline = time.monotonic() + 20
        while (reply := self.init()).error_code in TRANSIENT:
            assert time.monotonic() < deadline, reply
        assert reply.error_code == OK, reply
        return self

    def twin(self, line: Line | None = None) -> "Producer":
        """The same producer, on another connection or at an earlier moment of its life."""
        twin = Producer(
            line or self.line,
            self.transactional_id,
            is_v2=self.is_v2,
            timeout_ms=self.timeout_ms,
            topic=self.topic,
        )
        twin.producer_id, twin.producer_epoch = self.identity
        twin._sequences = dict(self._sequences)
        return twin

    # --- steps --------------------------------------------------------------------------------------

    def add(self, *partitions: int, version: int = ADD_VERSION, epoch: int | None = None) -> int:
        """AddPartitionsToTxn of partitions of its topic: the error code that all of them got."""
        codes = set(self.add_all({self.topic: partitions}, version=version, epoch=epoch).values())
        (code,) = codes
        return code

    def add_all(
        self,
        partitions: Mapping[str, Sequence[int]],
        *,
        version: int = ADD_VERSION,
        epoch: int | None = None,
        producer_id: int | None = None,
        verify_only: bool = False,
    ) -> dict[tuple[str, int], int]:
        """AddPartitionsToTxn: each partition's error code."""
        reply = self.line.ask(
            self.an_add(partitions, epoch=epoch, producer_id=producer_id, verify_only=verify_only),
            version,
        )
        return add_codes(reply)

    def an_add(
        self,
        partitions: Mapping[str, Sequence[int]],
        *,
        epoch: int | None = None,
        producer_id: int | None = None,
        verify_only: bool = False,
    ) -> AddPartitionsToTxnRequest:
        """The request, for any version."""
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in partitions.items()
        ]
        producer_id = self.producer_id if producer_id is None else producer_id
        epoch = self.producer_epoch if epoch is None else epoch
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=self.transactional_id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    verify_only=verify_only,
                    topics=topics,
                )
            ],
        )

    def verify(self, *partitions: int, version: int = 5) -> list[int]:
        """As a broker asks: are these part of the transaction?"""
        return list(
            self.add_all({self.topic: partitions}, version=version, verify_only=True).values()
        )

    def add_offsets(self, group: str = GROUP, version: int = 4, epoch: int | None = None) -> int:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch if epoch is None else epoch,
            group_id=group,
        )
        return int(self.line.ask(request, version).error_code)

    def commit_offsets(
        self,
        offsets: Mapping[int, int],
        *,
        group: str = GROUP,
        version: int | None = None,
        member: tuple[str, int] = ("", -1),
        group_instance_id: str | None = None,
        epoch: int | None = None,
    ) -> list[int]:
        """TxnOffsetCommit: each partition's error code."""
        if version is None:
            version = 5 if self.is_v2 else 4
        partitions = [
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            for index, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch if epoch is None else epoch,
            generation_id=member[1],
            member_id=member[0],
            group_instance_id=group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=partitions)],
        )
        reply = self.line.ask(request, version)
        return [part.error_code for topic in reply.topics for part in topic.partitions]

    def send(
        self,
        partition: int,
        *values: bytes,
        version: int | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        acks: int = -1,
        topic: str | None = None,
        **options: Any,
    ) -> PartitionProduceResponse:
        """Produce one batch; the count goes on where the broker has taken it."""
        topic = topic or self.topic
        place = (topic, partition)
        first = self._sequences.get(place, 0) if sequence is None else sequence
        batch = self.batch(*values, sequence=first, epoch=epoch, **options)
        if version is None:
            version = PRODUCE_V2 if self.is_v2 else PRODUCE_V1
        request = self.a_produce({place: batch}, acks=acks)
        reply = self.line.ask(request, version)
        answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
        if answer.error_code == OK and sequence is None:
            self._sequences[place] = first + len(values)
        return answer

    def batch(
        self,
        *values: bytes,
        sequence: int = 0,
        epoch: int | None = None,
        codec: Codec = Codec.NONE,
        is_transactional: bool = True,
        producer_id: int | None = None,
        timestamp_ms: int | None = None,
    ) -> bytes:
        """A batch of its own."""
        return a_batch(
            *values,
            producer_id=self.producer_id if producer_id is None else producer_id,
            epoch=self.producer_epoch if epoch is None else epoch,
            sequence=sequence,
            codec=codec,
            is_transactional=is_transactional,
            timestamp_ms=self.line.now_ms if timestamp_ms is None else timestamp_ms,
        )

    def a_produce(
        self, batches: Mapping[tuple[str, int], bytes], *, acks: int = -1
    ) -> ProduceRequest:
        """A Produce request of its own, with these batches."""
        return a_produce(batches, transactional_id=self.transactional_id, acks=acks)

    def end(
        self, committed: bool, version: int | None = None, *, epoch: int | None = None,
        producer_id: int | None = None,
    ) -> EndTxnResponse:  # fmt: skip
        """EndTxn; a V2 producer takes over what it is answered with."""
        if version is None:
            version = END_V2 if self.is_v2 else END_V1
        reply: EndTxnResponse = self.line.ask(
            self.an_end(committed, epoch=epoch, producer_id=producer_id), version
        )
        if version >= END_V2 and reply.error_code == OK:
            self.take_over(reply.producer_id, reply.producer_epoch)
        return reply

    def an_end(
        self, committed: bool, *, epoch: int | None = None, producer_id: int | None = None
    ) -> EndTxnRequest:
        """The request."""
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.producer_epoch if epoch is None else epoch,
            committed=committed,
        )

    # --- what has to succeed ------------------------------------------------------------------------

    def begin(self, writes: Mapping[int, Sequence[bytes]]) -> "Producer":
        """Open a transaction, or go on with it: a batch for each partition."""
        if not self.is_v2:
            assert self.add(*writes) == OK
        for partition, values in writes.items():
            answer = self.send(partition, *values)
            assert answer.error_code == OK, answer
        return self

    def decide(self, committed: bool) -> None:
        """End the transaction; its markers may still be under way."""
        reply = self.end(committed)
        assert reply.error_code == OK, reply

    def commit(self) -> None:
        """End the transaction, and wait for its markers."""
        self.decide(True)
        self.settle()

    def abort(self) -> None:
        """End the transaction, and wait for its markers."""
        self.decide(False)
        self.settle()

    def settle(self) -> None:
        """Wait until every marker is written."""
        deadline = time.monotonic() + 20
        while not (state := self.state().transaction_state).startswith("Complete"):
            assert time.monotonic() < deadline, state

    def state(self) -> TransactionState:
        """What DescribeTransactions says of it."""
        return describe(self.line, self.transactional_id)

    def partitions(self) -> list[tuple[str, int]]:
        """The partitions of its transaction, as DescribeTransactions names them."""
        return [(topic.topic, index) for topic in self.state().topics for index in topic.partitions]


def find_coordinator(line: Line, *keys: str, key_type: int = 1) -> list[int]:
    """FindCoordinator 4, until the coordinator is there: the error code of each key."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    deadline = time.monotonic() + 20
    while True:
        reply = line.ask(request, 4)
        codes = [int(found.error_code) for found in reply.coordinators]
        if ErrorCode.COORDINATOR_NOT_AVAILABLE not in codes or time.monotonic() > deadline:
            return codes


def describe(line: Line, transactional_id: str) -> TransactionState:
    """DescribeTransactions of one id."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = line.ask(request, 0).transaction_states
    assert isinstance(state, TransactionState)
    return state


def add_codes(reply: AddPartitionsToTxnResponse) -> dict[tuple[str, int], int]:
    """The error code of each partition, whichever version was asked."""
    topics = [
        *reply.results_by_topic_v3_and_below,
        *(topic for result in reply.results_by_transaction for topic in result.topic_results),
    ]
    return {
        (topic.name, part.partition_index): part.partition_error_code
        for topic in topics
        for part in topic.results_by_partition
    }


def a_batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
    timestamp_ms: int,
) -> bytes:
    """Any batch, with a record for each value."""
    return encode_batch(
        [Record(0, timestamp_ms, b"k", value, ()) for value in values],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def a_produce(
    batches: Mapping[tuple[str, int], bytes],
    *,
    transactional_id: str | None = None,
    acks: int = -1,
) -> ProduceRequest:
    """A Produce request with one batch for each partition."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=index, records=batch)]
            )
            for (topic, index), batch in batches.items()
        ],
    )


def produce(
    line: Line,
    batch: bytes,
    *,
    partition: int = 0,
    topic: str = TOPIC,
    version: int = 11,
    transactional_id: str | None = None,
) -> PartitionProduceResponse:
    """Send one batch as it is."""
    request = a_produce({(topic, partition): batch}, transactional_id=transactional_id)
    reply = line.ask(request, version)
    answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
    return answer
