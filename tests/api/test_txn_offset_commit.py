"""Offsets inside a transaction over a real socket, and what OffsetFetch says of them meanwhile."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

import pytest

from oncelog.api.registry import RequestContext
from oncelog.api.txn_offset_commit import handle
from oncelog.client.errors import Disconnected
from oncelog.core.errors import BrokerError, ConcurrentTransactions, CoordinatorLoadInProgress
from oncelog.core.groups.commands import CommitTxnOffsets, PartitionOutcome
from oncelog.core.metadata.records import Topic
from oncelog.core.producers import ProducerTable
from oncelog.core.types import OFFSETS_TOPIC, TopicPartition
from oncelog.runtime.node import Node
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import JoinGroupResponse
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.api.conftest import StartBroker
from tests.api.group_members import GROUP, TOPIC, commit, committed, find_coordinator, join, settle
from tests.api.in_process import InProcessBroker

UNKNOWN = 3  # topic or partition
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_NOT_AVAILABLE = 15
ILLEGAL_GENERATION = 22
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
UNSTABLE_OFFSET_COMMIT = 88
TRANSACTION_ABORTABLE = 120
VERSIONS = range(6)
BEFORE_V2 = range(5)
V2 = 5


def a_topic(
    name: str, partition: int, offset: int, metadata: str | None
) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(
        name=name,
        partitions=[
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        ],
    )


@dataclass
class Producer:
    """A transactional producer, as far as it commits offsets."""

    broker: InProcessBroker
    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    def add_offsets(self, group_id: str = GROUP) -> None:
        request = AddOffsetsToTxnRequest(**self._identity, group_id=group_id)
        assert self.broker.ask(request, 3).error_code == 0

    def a_commit(
        self,
        *offsets: tuple[str, int, int],
        group_id: str = GROUP,
        member: JoinGroupResponse | None = None,
        metadata: str | None = None,
    ) -> TxnOffsetCommitRequest:
        """Offsets as (topic, partition, offset), by a member or by nobody in particular."""
        return TxnOffsetCommitRequest(
            **self._identity,
            group_id=group_id,
            generation_id=-1 if member is None else member.generation_id,
            member_id="" if member is None else member.member_id,
            topics=[a_topic(*each, metadata) for each in offsets or ((TOPIC, 0, 7),)],
        )

    def commit(self, version: int, *offsets: tuple[str, int, int], **wanted: Any) -> list[int]:
        """The error of each partition."""
        response = self.broker.ask(self.a_commit(*offsets, **wanted), version)
        return [int(p.error_code) for topic in response.topics for p in topic.partitions]

    def an_end(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(**self._identity, committed=committed)

    def end(self, version: int, *, committed: bool = True) -> None:
        response = self.broker.ask(self.an_end(committed=committed), version)
        assert response.error_code == 0, response
        if version >= V2:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch


def a_producer(broker: InProcessBroker, transactional_id: str = "t") -> Producer:
    broker.ask(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    response = broker.ask(request, 4)
    assert response.error_code == 0, response
    return Producer(broker, transactional_id, response.producer_id, response.producer_epoch)


@pytest.fixture
def broker(start_broker: StartBroker) -> InProcessBroker:
    """One with a topic, whose groups have a coordinator."""
    broker = start_broker({})
    broker.create(TOPIC, partitions=2)
    find_coordinator(broker)
    return broker


def stable(broker: InProcessBroker, version: int = 9) -> Any:
    """What OffsetFetch says of the first partition when it must be decided."""
    if version < 8:
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=True)
        return broker.ask(request, version).topics[0].partitions[0]
    topic_id = broker.describe(TOPIC).topic_id
    wanted = OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])
    response = broker.ask(OffsetFetchRequest(groups=[group], require_stable=True), version)
    return response.groups[0].topics[0].partitions[0]


def decided(broker: InProcessBroker) -> int:
    """What a consumer begins with: it asks again while the offset is undecided."""
    for _ in range(100):
        found = stable(broker)
        if found.error_code != UNSTABLE_OFFSET_COMMIT:
            assert found.error_code == 0, found
            return int(found.committed_offset)
    raise AssertionError("the offset stays undecided")


# --- the life of an offset


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_decided_with_their_transaction(
    broker: InProcessBroker, version: int, commits: bool
) -> None:
    """Checks 103 and 104; 105."""
    commit(broker, 3)
    producer = a_producer(broker)
    if version < V2:
        producer.add_offsets()

    assert producer.commit(version) == [0]
    assert (stable(broker).error_code, committed(broker)) == (UNSTABLE_OFFSET_COMMIT, 3)
    producer.end(version, committed=commits)

    assert decided(broker) == (7 if commits else 3)
    broker.crash()
    assert decided(broker) == (7 if commits else 3)


def test_a_crash_in_the_middle_leaves_the_offset_undecided(broker: InProcessBroker) -> None:
    """42, 98: until somebody decides the transaction, which its next instance does."""
    commit(broker, 3)
    producer = a_producer(broker)
    producer.commit(V2)

    broker.crash()
    assert (stable(broker).error_code, committed(broker)) == (UNSTABLE_OFFSET_COMMIT, 3)
    a_producer(broker)

    assert decided(broker) == 3


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_an_undecided_offset_is_shown_as_nothing_at_all(
    broker: InProcessBroker, version: int
) -> None:
    """Check 103."""
    commit(broker, 3, metadata="note", committed_leader_epoch=0)
    a_producer(broker).commit(V2)

    found = stable(broker, version)

    assert found.error_code == UNSTABLE_OFFSET_COMMIT
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (-1, -1, "")


@pytest.mark.parametrize("version", [7, 9, 10])
def test_asked_for_everything_what_is_only_pending_is_left_out(
    broker: InProcessBroker, version: int
) -> None:
    """As Kafka 4.3 does."""
    commit(broker, 3)
    a_producer(broker).commit(V2, (TOPIC, 0, 7), (TOPIC, 1, 8))
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    request = OffsetFetchRequest(group_id=GROUP, topics=None, groups=groups, require_stable=True)

    response = broker.ask(request, version)

    (topic,) = response.topics if version < 8 else response.groups[0].topics
    found = [(p.partition_index, p.error_code) for p in topic.partitions]
    assert found == [(0, UNSTABLE_OFFSET_COMMIT)]


def test_a_later_plain_commit_stands(broker: InProcessBroker) -> None:
    """Check 105, KAFKA-5247."""
    producer = a_producer(broker)
    producer.commit(V2, (TOPIC, 0, 100))
    commit(broker, 200)

    producer.end(V2)

    assert decided(broker) == 200


def test_a_deleted_group_is_not_brought_back(broker: InProcessBroker) -> None:
    """Check 106."""
    commit(broker, 3)
    producer = a_producer(broker)
    producer.commit(V2)

    (result,) = broker.ask(DeleteGroupsRequest(groups_names=[GROUP])).results
    producer.end(V2)

    assert result.error_code == 0
    assert decided(broker) == -1
    broker.crash()
    assert decided(broker) == -1


def test_one_transaction_after_the_other_commits_its_offsets(broker: InProcessBroker) -> None:
    """The next one begins while the markers of the last may still be under way (check 55)."""
    producer = a_producer(broker)

    for offset in range(20):
        assert producer.commit(V2, (TOPIC, 0, offset)) == [0]
        producer.end(V2)

    assert decided(broker) == 19


# --- the transaction that it is part of


@pytest.mark.parametrize(
    ("version", "code"),
    [(version, INVALID_TXN_STATE) for version in range(4)] + [(4, TRANSACTION_ABORTABLE), (5, 0)],
)
def test_the_group_has_to_be_part_of_the_transaction(
    broker: InProcessBroker, version: int, code: int
) -> None:
    """Check 57."""
    producer = a_producer(broker)
    producer.add_offsets("a-group-of-another-partition")

    assert producer.commit(version) == [code]

    assert stable(broker).error_code == (0 if code else UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize("version", BEFORE_V2)
def test_the_addition_does_not_outlast_its_transaction(
    broker: InProcessBroker, version: int
) -> None:
    producer = a_producer(broker)
    producer.add_offsets()
    assert producer.commit(version) == [0]
    producer.end(3)

    code = TRANSACTION_ABORTABLE if version == 4 else INVALID_TXN_STATE
    assert producer.commit(version, (TOPIC, 0, 8)) == [code]

    assert decided(broker) == 7


def test_verification_can_be_switched_off(start_broker: StartBroker) -> None:
    broker = start_broker({"transaction.partition.verification.enable": "false"})
    broker.create(TOPIC)
    find_coordinator(broker)

    assert a_producer(broker).commit(3) == [0]


@pytest.mark.parametrize("version", BEFORE_V2)
def test_offsets_that_were_held_up_in_the_network_do_not_overwrite_newer_ones(
    broker: InProcessBroker, version: int
) -> None:
    """KAFKA-17754: before V2 a request does not say which transaction it was meant for."""
    producer = a_producer(broker)
    producer.add_offsets()
    (response,) = broker.ask_all([producer.a_commit((TOPIC, 0, 9))], version)
    assert response.topics[0].partitions[0].error_code == 0

    with pytest.raises(Disconnected):
        producer.commit(version, (TOPIC, 0, 2))

    (ended,) = broker.ask_all([producer.an_end(committed=True)], 3)
    assert ended.error_code == 0
    broker.crash()
    assert decided(broker) == 9


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_was_replaced_is_told_so(broker: InProcessBroker, version: int) -> None:
    """It is INVALID_PRODUCER_EPOCH in every version of this API, never PRODUCER_FENCED."""
    old = a_producer(broker)
    a_producer(broker)

    assert old.commit(version) == [INVALID_PRODUCER_EPOCH]

    assert stable(broker).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stranger_has_no_transaction(broker: InProcessBroker, version: int) -> None:
    producer = a_producer(broker)
    producer.producer_id += 1

    assert producer.commit(version) == [INVALID_PRODUCER_ID_MAPPING]


# --- the group


def test_a_member_commits_in_its_generation_only(broker: InProcessBroker) -> None:
    """Check 58; 25, 97."""
    member = settle(broker)
    producer = a_producer(broker)
    producer.add_offsets()
    stale = replace(member, generation_id=member.generation_id - 1)
    stranger = replace(member, member_id="x")

    for version in (3, 4, 5):
        assert producer.commit(version, member=stale) == [ILLEGAL_GENERATION]
        assert producer.commit(version, member=stranger) == [UNKNOWN_MEMBER_ID]
    assert stable(broker).error_code == 0

    assert producer.commit(5, member=member) == [0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_clients_commit_while_the_group_rebalances(
    broker: InProcessBroker, version: int
) -> None:
    """Check 59."""
    join(broker)
    producer = a_producer(broker)
    producer.add_offsets()

    assert producer.commit(version) == [0]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_generation_of_a_group_that_nobody_knows_is_refused(
    broker: InProcessBroker, version: int
) -> None:
    member = settle(broker)
    producer = a_producer(broker)
    producer.add_offsets("unknown")

    codes = producer.commit(version, member=member, group_id="unknown")

    assert codes == [ILLEGAL_GENERATION]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_needs_a_name(broker: InProcessBroker, version: int) -> None:
    """Nothing is added to the transaction either: it has not begun, and there is nothing to end."""
    producer = a_producer(broker)

    assert producer.commit(version, group_id="") == [INVALID_GROUP_ID]

    assert broker.ask(producer.an_end(committed=True), 3).error_code == INVALID_TXN_STATE


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_topic_of_offsets_there_is_no_coordinator(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker({})
    broker.create(TOPIC)

    assert a_producer(broker).commit(version) == [COORDINATOR_NOT_AVAILABLE]


# --- each partition has an answer of its own


@pytest.mark.parametrize("version", VERSIONS)
def test_what_does_not_exist_is_refused_and_the_rest_is_stored(
    broker: InProcessBroker, version: int
) -> None:
    """Check 61. Kafka stores the negative offset."""
    producer = a_producer(broker)
    if version < V2:
        producer.add_offsets()
    offsets = [
        ("unknown", 0, 1),
        (TOPIC, 0, 7),
        (TOPIC, 2, 1),
        (TOPIC, -1, 1),
        (TOPIC, 1, -5),
        ("__cluster_metadata", 0, 1),
    ]

    codes = producer.commit(version, *offsets)

    assert codes == [UNKNOWN, 0, UNKNOWN, UNKNOWN, INVALID_REQUEST, UNKNOWN]
    producer.end(version)
    assert decided(broker) == 7
    assert committed(broker, partition=1) == -1


def test_where_nothing_exists_nothing_is_added(broker: InProcessBroker) -> None:
    producer = a_producer(broker)
    producer.producer_id += 1

    assert producer.commit(V2, ("unknown", 0, 1)) == [UNKNOWN]


def test_metadata_has_a_limit(broker: InProcessBroker) -> None:
    producer = a_producer(broker)

    assert producer.commit(V2, metadata="x" * 4_097) == [OFFSET_METADATA_TOO_LARGE]
    assert producer.commit(V2, metadata="x" * 4_096) == [0]


# --- what does not happen on one node in good health, shown on a stand-in


class Happening:
    """A node that answers as it is told, and remembers what was asked, and in which turn."""

    def __init__(self, *, busy: int = 0, refusal: BrokerError | None = None) -> None:
        self.metadata = self
        self.config = self
        self.transactions = self
        self.transaction_partition_verification_enable = True
        self.offsets_partition_count = 50
        self.topics = {TOPIC: Topic(name=TOPIC, topic_id=UUID(int=1), partition_count=1)}
        self.producers = ProducerTable()
        self.topic_partition = TopicPartition(OFFSETS_TOPIC, 0)
        self.busy = busy
        self.refusal = refusal
        self.turn = 0
        self.asked: list[tuple[str, int]] = []
        self.committed: list[TopicPartition] = []

    def partition(self, name: str, index: int) -> "Happening":
        return self

    def check_speaker(self, producer_id: int, producer_epoch: int, connection: int) -> None:
        return

    def join_now(self, *who: object, is_v2: bool) -> None:
        self.asked.append(("join_now", self.turn))
        self.busy -= 1
        if self.busy >= 0:
            raise ConcurrentTransactions("markers are under way")

    async def join(self, *who: object, is_v2: bool) -> None:
        await asyncio.sleep(0)
        self.turn += 1
        self.topics.clear()

    async def ask_group(
        self, group_id: str, command: CommitTxnOffsets
    ) -> tuple[PartitionOutcome, ...]:
        self.asked.append(("ask_group", self.turn))
        if self.refusal is not None:
            raise self.refusal
        self.committed += [each.partition for each in command.offsets]
        return tuple(PartitionOutcome(partition=p, error=None) for p in self.committed)

    def commit(self, version: int) -> int:
        """The error of a commit of one partition."""
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=GROUP,
            producer_id=1,
            producer_epoch=0,
            member_id="",
            topics=[a_topic(TOPIC, 0, 7, None)],
        )
        context = RequestContext(api_key=28, version=version, client_id="", client_host="")
        node = cast(Node, self)  # a stand-in with as much of it as the handler uses
        response = asyncio.run(handle(node, request, context))
        return int(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize(("version", "code"), [(0, 15), (1, 15), (2, 14), (5, 14)])
def test_old_clients_do_not_know_that_a_coordinator_may_be_loading(version: int, code: int) -> None:
    """Check 60, KAFKA-9656."""
    node = Happening(refusal=CoordinatorLoadInProgress("it is replaying its log"))

    assert node.commit(version) == code


def test_after_a_wait_for_markers_everything_is_looked_at_again() -> None:
    """KAFKA-15784: the topic was deleted meanwhile, so nothing may be written for it."""
    node = Happening(busy=1)

    assert node.commit(V2) == UNKNOWN

    assert node.committed == []
    assert node.asked == [("join_now", 0), ("join_now", 1), ("ask_group", 1)]


def test_markers_that_take_too_long_are_the_clients_to_wait_for() -> None:
    """CONCURRENT_TRANSACTIONS is told as it is."""
    node = Happening(busy=2)

    assert node.commit(V2) == 51
    assert node.committed == []
