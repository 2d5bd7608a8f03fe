"""Offsets inside transactions: pending until the marker, then visible or gone, crash or not.

Numbers such as "check 58" are those of the list of checks; a bare number is a scenario.
"""

from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.core.errors import (
    BrokerError,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidRequest,
    OffsetMetadataTooLarge,
    UnknownMemberId,
)
from oncelog.core.groups.commands import (
    CommitTxnOffsets,
    DeleteGroups,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    GroupOutcome,
    ListGroups,
    OffsetsForgotten,
    OffsetToCommit,
    PartitionOutcome,
    TopicDeleted,
)
from oncelog.core.groups.records import OffsetPending
from oncelog.core.groups.shard import GroupShard
from oncelog.core.types import TopicPartition
from tests.core.groups.builders import CONFIG, GROUP, IN, PRODUCER, SESSION_MS, Coordinator
from tests.core.shard_properties import START, Logged

OTHER = TopicPartition("other", 0)
RETENTION_MS = CONFIG.offsets_retention_ms
SWEEP_MS = CONFIG.offsets_retention_check_interval_ms
SECOND_PRODUCER = PRODUCER + 1
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


def visible(coordinator: Coordinator, partition: TopicPartition = IN) -> int | None:
    """The offset that a consumer would be given without require_stable."""
    found = coordinator.committed(partition)
    return None if found is None else found.offset


def is_stable(coordinator: Coordinator, partition: TopicPartition = IN) -> bool:
    return coordinator.fetched(partition).is_stable


# --- the marker decides


def test_an_offset_inside_a_transaction_is_not_visible_before_the_marker() -> None:
    """Check 103: only its own partition is undecided, and the old offset is still there."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit(1, partition=OTHER)

    assert coordinator.commit_in_txn(7) is None

    assert (visible(coordinator), is_stable(coordinator)) == (3, False)
    assert (visible(coordinator, OTHER), is_stable(coordinator, OTHER)) == (1, True)


def test_a_commit_marker_makes_the_offset_visible_at_once() -> None:
    """Check 104, KAFKA-17507: whoever asks after the marker was written finds it."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit_in_txn(7, metadata="note")

    coordinator.end_transaction(PRODUCER, committed=True)

    found = coordinator.fetched()
    assert found.is_stable
    assert found.committed is not None
    assert (found.committed.offset, found.committed.metadata) == (7, "note")


@pytest.mark.parametrize("crashes", [False, True])
def test_an_abort_marker_leaves_the_old_offset(crashes: bool) -> None:
    """105, check 104: before and after a restart."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit_in_txn(7)

    coordinator.end_transaction(PRODUCER, committed=False)
    if crashes:
        coordinator.crash()

    assert (visible(coordinator), is_stable(coordinator)) == (3, True)


def test_a_transaction_that_commits_no_offsets_changes_none() -> None:
    """36: the group's partition was added to the transaction, and then nothing was sent to it."""
    coordinator = Coordinator()
    coordinator.commit(3)

    coordinator.end_transaction(PRODUCER, committed=True)

    assert (visible(coordinator), is_stable(coordinator)) == (3, True)


def test_the_last_offset_of_a_transaction_is_the_one_that_counts() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)
    coordinator.commit_in_txn(9)

    coordinator.end_transaction(PRODUCER, committed=True)

    assert visible(coordinator) == 9


def test_a_marker_decides_what_its_own_producer_has_committed_and_nothing_else() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)
    coordinator.commit_in_txn(8, producer_id=SECOND_PRODUCER)
    coordinator.commit_in_txn(1, partition=OTHER)
    coordinator.commit_in_txn(5, group_id="another")

    coordinator.end_transaction(PRODUCER, committed=True)

    assert (visible(coordinator), is_stable(coordinator)) == (7, False)
    assert (visible(coordinator, OTHER), is_stable(coordinator, OTHER)) == (1, True)
    assert coordinator.fetched(group_id="another").is_stable


def test_markers_that_come_in_the_other_order_leave_the_offset_that_was_written_later() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)
    coordinator.commit_in_txn(8, producer_id=SECOND_PRODUCER)

    coordinator.end_transaction(SECOND_PRODUCER, committed=True)
    coordinator.end_transaction(PRODUCER, committed=True)

    assert visible(coordinator) == 8


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_later_plain_commit_is_not_overwritten_by_an_older_one_of_a_transaction(
    crashes: bool, committed: bool
) -> None:
    """Check 105, 103, KAFKA-5247: the record that stands later in the log wins, as in compaction."""
    coordinator = Coordinator()
    coordinator.commit_in_txn(100)
    coordinator.commit(200)
    if crashes:
        coordinator.crash()

    coordinator.end_transaction(PRODUCER, committed=committed)

    assert (visible(coordinator), is_stable(coordinator)) == (200, True)
    coordinator.crash()
    assert visible(coordinator) == 200


def test_an_older_plain_commit_gives_way_to_the_transaction() -> None:
    coordinator = Coordinator()
    coordinator.commit(200)
    coordinator.commit_in_txn(100)

    coordinator.end_transaction(PRODUCER, committed=True)

    assert visible(coordinator) == 100


@pytest.mark.parametrize("committed", [True, False])
def test_c42_a_crash_between_the_offsets_and_their_marker_loses_neither(committed: bool) -> None:
    """42: until the marker comes, nobody is shown the old offset as the decided one."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit_in_txn(7)

    coordinator.crash()
    assert (visible(coordinator), is_stable(coordinator)) == (3, False)
    coordinator.end_transaction(PRODUCER, committed=committed)

    assert (visible(coordinator), is_stable(coordinator)) == (7 if committed else 3, True)


def test_a_new_owner_waits_until_the_old_owners_transaction_is_decided() -> None:
    """98: undecided, and then the decided value."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.commit(3, member_id="a", generation_id=generation_id)
    coordinator.commit_in_txn(7, member_id="a", generation_id=generation_id)
    coordinator.advance(ms=SESSION_MS)
    coordinator.join("b")

    assert not is_stable(coordinator)
    coordinator.end_transaction(PRODUCER, committed=True)

    assert (visible(coordinator), is_stable(coordinator)) == (7, True)


def test_all_offsets_of_a_group_leave_out_what_is_only_pending() -> None:
    """As Kafka 4.3 does: what has a visible offset too is there, and undecided."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit_in_txn(7)
    coordinator.commit_in_txn(7, partition=OTHER)

    reply = coordinator.ask(FetchOffsets(group_id=GROUP, topics=None))

    assert isinstance(reply, tuple)
    found = [each for each in reply if isinstance(each, FetchedOffset)]
    assert [(each.partition, each.is_stable) for each in found] == [(IN, False)]


def test_a_pending_offset_of_a_deleted_topic_does_not_unsettle_its_namesake() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_txn(7, topic_id=OLD_ID)

    stable = [coordinator.fetched(topic_id=each).is_stable for each in (OLD_ID, NEW_ID, None)]

    assert stable == [False, True, False]


# --- who may commit


@pytest.mark.parametrize(
    ("member_id", "instance", "generation_id", "error"),
    [
        ("a", None, 0, IllegalGeneration),
        ("a", None, 9, IllegalGeneration),
        ("a", None, None, IllegalGeneration),
        ("x", None, 1, UnknownMemberId),
        ("", None, 1, UnknownMemberId),
        ("", "unheard-of", None, UnknownMemberId),
    ],
)
def test_a_transaction_of_someone_who_is_not_in_the_generation_is_refused(
    member_id: str, instance: str | None, generation_id: int | None, error: type[BrokerError]
) -> None:
    """Check 58; one thing that the client says of itself is enough to hold it to all of them."""
    coordinator = Coordinator()
    coordinator.settle("a")

    with pytest.raises(error):
        coordinator.commit_in_txn(
            7, member_id=member_id, instance=instance, generation_id=generation_id
        )

    assert is_stable(coordinator)


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    """Check 58."""
    coordinator = Coordinator()
    generation_id = coordinator.join("a", instance="A").joined.generation_id
    coordinator.sync("a", generation_id, {"a": b"share"}, instance="A")
    coordinator.join("b", instance="A")

    with pytest.raises(FencedInstanceId):
        coordinator.commit_in_txn(7, member_id="a", instance="A", generation_id=generation_id)


def test_a_member_that_was_left_behind_cannot_commit_its_transaction() -> None:
    """25, 97: the group went on while it was paused; the offsets are what they were."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")
    coordinator.commit(3, member_id="a", generation_id=generation_id)
    coordinator.join("c")
    coordinator.join(member_id="b")
    coordinator.advance(ms=SESSION_MS)

    with pytest.raises(UnknownMemberId):
        coordinator.commit_in_txn(7, member_id="a", generation_id=generation_id)
    with pytest.raises(IllegalGeneration):
        coordinator.commit_in_txn(7, member_id="b", generation_id=generation_id)

    assert (visible(coordinator), is_stable(coordinator)) == (3, True)


def test_a_client_that_says_nothing_of_itself_commits_in_any_state_of_the_group() -> None:
    """Check 59: TxnOffsetCommit before v3 has no place for a member id."""
    coordinator = Coordinator()
    states = []

    def commit() -> None:
        assert coordinator.commit_in_txn(7) is None
        states.append(coordinator.describe().state)

    commit()
    generation_id = coordinator.join("a").joined.generation_id
    commit()
    coordinator.assign(generation_id, "a")
    commit()
    coordinator.join("b")
    commit()

    assert states == ["Empty", "CompletingRebalance", "Stable", "PreparingRebalance"]


def test_a_rebalance_alone_does_not_refuse_a_members_transaction() -> None:
    """KIP-447: a plain commit between join and sync is refused, a transaction's is not."""
    coordinator = Coordinator()
    generation_id = coordinator.join("a").joined.generation_id

    assert coordinator.commit_in_txn(7, member_id="a", generation_id=generation_id) is None
    coordinator.assign(generation_id, "a")
    coordinator.join("b")

    assert coordinator.commit_in_txn(8, member_id="a", generation_id=generation_id) is None


def test_a_group_that_nobody_knows_is_made_by_a_client_without_a_generation() -> None:
    coordinator = Coordinator()

    assert coordinator.commit_in_txn(7) is None

    assert coordinator.describe().state == "Empty"
    coordinator.crash()
    assert coordinator.describe().state == "Empty"


def test_a_generation_of_a_group_that_nobody_knows_is_refused() -> None:
    """Clients are told ILLEGAL_GENERATION up to v5, and GROUP_ID_NOT_FOUND from v6 on."""
    with pytest.raises(GroupIdNotFound):
        Coordinator().commit_in_txn(7, member_id="a", generation_id=1)


def test_a_consumer_that_assigns_itself_partitions_may_have_an_instance_id() -> None:
    """It has no generation, and there is nobody whose place it could have lost."""
    coordinator = Coordinator()

    assert coordinator.commit_in_txn(7, instance="A") is None
    assert coordinator.commit_in_txn(8, instance="A") is None


def test_a_transaction_does_not_count_as_a_sign_of_life() -> None:
    """Kafka does not count it either: a client that only produces has stopped consuming."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.advance(ms=SESSION_MS - 1)
    coordinator.commit_in_txn(7, member_id="a", generation_id=generation_id)

    coordinator.advance(ms=1)

    assert coordinator.describe().state == "Empty"


@pytest.mark.parametrize("group_id", ["", "x" * 32_768])
def test_a_group_needs_a_name_that_a_record_can_hold(group_id: str) -> None:
    with pytest.raises(InvalidGroupId):
        Coordinator().commit_in_txn(7, group_id=group_id)


def test_a_bad_offset_fails_its_own_partition_only() -> None:
    """Kafka stores negative offsets; a consumer would take one for "nothing committed"."""
    coordinator = Coordinator()
    offers = [("x" * 4_097, 1), ("", -1), ("x" * 4_096, 9)]
    offsets = tuple(
        OffsetToCommit(
            partition=TopicPartition("in", number), offset=offset, leader_epoch=2, metadata=metadata
        )
        for number, (metadata, offset) in enumerate(offers)
    )

    reply = coordinator.ask(
        CommitTxnOffsets(
            group_id=GROUP,
            producer_id=PRODUCER,
            producer_epoch=0,
            member_id="",
            group_instance_id=None,
            generation_id=None,
            offsets=offsets,
        )
    )

    assert isinstance(reply, tuple)
    kinds = [type(each.error) for each in reply if isinstance(each, PartitionOutcome)]
    assert kinds == [OffsetMetadataTooLarge, InvalidRequest, type(None)]
    coordinator.end_transaction(PRODUCER, committed=True)
    found = [visible(coordinator, each.partition) for each in offsets]
    assert found == [None, None, 9]


def test_the_offsets_are_written_as_a_batch_of_the_transaction() -> None:
    """The bytes are those of a plain commit; that they wait is said by the batch."""
    shard = GroupShard(CONFIG)
    command = CommitTxnOffsets(
        group_id=GROUP,
        producer_id=PRODUCER,
        producer_epoch=5,
        member_id="",
        group_instance_id=None,
        generation_id=None,
        offsets=(OffsetToCommit(partition=IN, offset=7, leader_epoch=None, metadata="note"),),
    )
    plain = Coordinator()
    plain.commit(7, metadata="note")

    decision = shard.decide(command, START)

    assert decision.producer == (PRODUCER, 5)
    (record,) = decision.records
    assert isinstance(record, OffsetPending)
    assert plain.log == [Logged(*shard.encode(record), producer_id=None)]


# --- forgetting


def test_deleting_an_offset_takes_the_pending_one_along() -> None:
    """Check 106: the marker does not bring it back."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit_in_txn(7)
    coordinator.commit_in_txn(8, producer_id=SECOND_PRODUCER)
    coordinator.commit_in_txn(1, partition=OTHER)

    coordinator.ask(DeleteOffsets(group_id=GROUP, partitions=(IN,)))
    assert is_stable(coordinator)
    coordinator.crash()
    for producer_id in (PRODUCER, SECOND_PRODUCER):
        coordinator.end_transaction(producer_id, committed=True)

    assert visible(coordinator) is None
    assert visible(coordinator, OTHER) == 1


def test_an_offset_that_is_only_pending_can_be_deleted() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)

    coordinator.ask(DeleteOffsets(group_id=GROUP, partitions=(IN,)))
    coordinator.end_transaction(PRODUCER, committed=True)

    assert visible(coordinator) is None


@pytest.mark.parametrize("crashes", [False, True])
def test_a_deleted_group_is_not_brought_back_by_a_marker(crashes: bool) -> None:
    """Check 106, KAFKA-17877: pending offsets do not keep a group from being deleted."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit_in_txn(7)
    coordinator.commit_in_txn(1, partition=OTHER)

    reply = coordinator.ask(DeleteGroups(group_ids=(GROUP,)))
    if crashes:
        coordinator.crash()
    coordinator.end_transaction(PRODUCER, committed=True)

    assert reply == (GroupOutcome(group_id=GROUP, error=None),)
    assert coordinator.ask(ListGroups()) == ()
    assert [visible(coordinator, each) for each in (IN, OTHER)] == [None, None]


def test_a_transaction_may_go_on_after_its_group_was_deleted() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)
    coordinator.ask(DeleteGroups(group_ids=(GROUP,)))

    coordinator.commit_in_txn(8)
    coordinator.end_transaction(PRODUCER, committed=True)

    assert visible(coordinator) == 8


def test_the_pending_offsets_of_a_deleted_topic_go_with_it() -> None:
    """Check 106."""
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)
    coordinator.commit_in_txn(1, partition=OTHER)

    reply = coordinator.ask(TopicDeleted(topic="in"))
    coordinator.end_transaction(PRODUCER, committed=True)

    assert reply == OffsetsForgotten(count=1)
    assert [visible(coordinator, each) for each in (IN, OTHER)] == [None, 1]


def test_a_namesakes_pending_offset_outlives_the_deleted_topic() -> None:
    """The topic is there again, and in use, before its old offsets are forgotten."""
    coordinator = Coordinator()
    coordinator.commit_in_txn(3, topic_id=OLD_ID)
    coordinator.end_transaction(PRODUCER, committed=True)
    coordinator.commit_in_txn(7, topic_id=NEW_ID)

    coordinator.ask(TopicDeleted(topic="in", topic_id=OLD_ID))
    coordinator.end_transaction(PRODUCER, committed=True)

    found = coordinator.fetched(topic_id=NEW_ID).committed
    assert found is not None
    assert found.offset == 7


# --- expiry


@pytest.mark.parametrize("crashes", [False, True])
def test_a_group_with_only_pending_offsets_survives_the_sweep(crashes: bool) -> None:
    """Check 106, 104, KAFKA-19163: and then its commit is seen."""
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)

    coordinator.advance(ms=RETENTION_MS + 2 * SWEEP_MS)
    if crashes:
        coordinator.crash()
    assert coordinator.describe().state == "Empty"
    coordinator.end_transaction(PRODUCER, committed=True)

    assert visible(coordinator) == 7


def test_an_offset_does_not_expire_while_a_transaction_over_it_is_open() -> None:
    """104: the sweep touches neither; other offsets of the same group are not spared."""
    coordinator = Coordinator()
    coordinator.commit(3)
    coordinator.commit(1, partition=OTHER)
    coordinator.commit_in_txn(7)

    coordinator.advance(ms=RETENTION_MS + 2 * SWEEP_MS)
    assert (visible(coordinator), visible(coordinator, OTHER)) == (3, None)
    coordinator.end_transaction(PRODUCER, committed=False)

    assert visible(coordinator) == 3


def test_the_sweep_goes_on_when_the_transaction_is_decided() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_txn(7)
    coordinator.advance(ms=RETENTION_MS)

    coordinator.end_transaction(PRODUCER, committed=False)
    coordinator.advance(ms=SWEEP_MS)

    assert coordinator.ask(ListGroups()) == ()


def test_a_topic_that_no_member_reads_keeps_its_offset_while_a_transaction_is_open() -> None:
    coordinator = Coordinator(replace(CONFIG, offsets_retention_minutes=10))
    generation_id = coordinator.settle("a")
    coordinator.commit(1, member_id="a", generation_id=generation_id, partition=OTHER)
    coordinator.commit_in_txn(2, member_id="a", generation_id=generation_id, partition=OTHER)

    for _ in range(2 * SWEEP_MS // (SESSION_MS - 1) + 1):
        coordinator.heartbeat("a", generation_id)
        coordinator.advance(ms=SESSION_MS - 1)

    assert visible(coordinator, OTHER) == 1
