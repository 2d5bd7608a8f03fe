"""Committed offsets: who may commit, what is found again, and what is forgotten when."""

from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.core.errors import (
    BrokerError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.core.groups.commands import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroups,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    GroupListing,
    GroupOutcome,
    ListGroups,
    OffsetsExpired,
    OffsetsForgotten,
    OffsetToCommit,
    PartitionOutcome,
    TopicDeleted,
    WantedOffsets,
)
from oncelog.core.groups.records import OffsetCommitted
from oncelog.core.types import TopicPartition
from tests.core.groups.builders import (
    CONFIG,
    GROUP,
    IN,
    RANGE,
    SESSION_MS,
    Coordinator,
    protocols,
)

OTHER = TopicPartition("other", 0)
RETENTION_MS = CONFIG.offsets_retention_ms
SWEEP_MS = CONFIG.offsets_retention_check_interval_ms
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


def delete(coordinator: Coordinator, *partitions: TopicPartition) -> list[BrokerError | None]:
    reply = coordinator.ask(DeleteOffsets(group_id=GROUP, partitions=partitions))
    assert isinstance(reply, tuple)
    return [each.error for each in reply if isinstance(each, PartitionOutcome)]


def delete_group(coordinator: Coordinator, group_id: str = GROUP) -> BrokerError | None:
    reply = coordinator.ask(DeleteGroups(group_ids=(group_id,)))
    assert isinstance(reply, tuple)
    (outcome,) = reply
    assert isinstance(outcome, GroupOutcome)
    return outcome.error


def keep_alive(coordinator: Coordinator, member_id: str, generation_id: int, *, ms: int) -> None:
    """Let time pass while a member heartbeats."""
    step_ms = SESSION_MS - 1
    for _ in range(ms // step_ms + 1):
        coordinator.heartbeat(member_id, generation_id)
        coordinator.advance(ms=step_ms)


# --- committing


def test_a_member_commits_and_the_next_owner_finds_it() -> None:
    """95: the owner dies; whoever is next starts where it committed."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")
    coordinator.commit(7, member_id="b", generation_id=generation_id, metadata="note")
    coordinator.advance(ms=SESSION_MS)

    assert coordinator.committed() == CommittedOffset(offset=7, leader_epoch=None, metadata="note")


def test_a_client_outside_the_protocol_commits_to_a_group_without_members() -> None:
    coordinator = Coordinator()

    assert coordinator.commit(3) is None

    assert coordinator.committed() == CommittedOffset(offset=3, leader_epoch=None, metadata="")
    assert coordinator.describe().state == "Empty"
    assert coordinator.describe().protocol_type == ""


def test_a_client_outside_the_protocol_cannot_commit_to_a_group_with_members() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")

    with pytest.raises(UnknownMemberId):
        coordinator.commit(3)


def test_anyone_may_commit_to_an_empty_group_without_a_generation() -> None:
    """`kafka-consumer-groups --reset-offsets` does."""
    coordinator = Coordinator()
    coordinator.settle("a")
    coordinator.leave("a")

    assert coordinator.commit(3, member_id="tool") is None


def test_a_generation_of_a_group_that_does_not_exist_is_refused() -> None:
    """Clients older than OffsetCommit v9 are told ILLEGAL_GENERATION instead."""
    with pytest.raises(GroupIdNotFound):
        Coordinator().commit(3, member_id="a", generation_id=1)


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [
        ("x", 1, UnknownMemberId),
        ("a", 0, IllegalGeneration),
        ("a", 2, IllegalGeneration),
        ("a", None, IllegalGeneration),
    ],
)
def test_a_commit_is_for_members_of_this_generation(
    member_id: str, generation_id: int | None, error: type[BrokerError]
) -> None:
    coordinator = Coordinator()
    coordinator.settle("a")

    with pytest.raises(error):
        coordinator.commit(3, member_id=member_id, generation_id=generation_id)


def test_a_member_may_commit_what_it_has_read_before_it_joins_a_rebalance() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.join("b")

    assert coordinator.commit(3, member_id="a", generation_id=generation_id) is None


def test_nobody_commits_between_join_and_sync() -> None:
    coordinator = Coordinator()
    coordinator.join("a")

    with pytest.raises(RebalanceInProgress):
        coordinator.commit(3, member_id="a", generation_id=1)


def test_metadata_above_the_limit_fails_its_own_partition_only() -> None:
    coordinator = Coordinator()
    offsets = tuple(
        OffsetToCommit(
            partition=TopicPartition("in", number), offset=9, leader_epoch=2, metadata="x" * size
        )
        for number, size in enumerate((4_096, 4_097))
    )

    reply = coordinator.ask(
        CommitOffsets(
            group_id=GROUP,
            member_id="",
            group_instance_id=None,
            generation_id=None,
            retention_ms=None,
            offsets=offsets,
        )
    )

    assert isinstance(reply, tuple)
    kinds = [type(each.error) for each in reply if isinstance(each, PartitionOutcome)]
    assert kinds == [type(None), OffsetMetadataTooLarge]
    assert coordinator.committed(TopicPartition("in", 0)) is not None
    assert coordinator.committed(TopicPartition("in", 1)) is None


def test_what_does_not_fit_into_a_record_is_never_committed() -> None:
    """203."""
    coordinator = Coordinator(replace(CONFIG, offset_metadata_max_bytes=100_000))

    assert isinstance(coordinator.commit(1, metadata="x" * 32_768), OffsetMetadataTooLarge)
    with pytest.raises(InvalidGroupId):
        coordinator.commit(1, group_id="x" * 32_768)


def test_the_last_commit_wins_and_survives_a_restart() -> None:
    """102: a repeat, then an older commit that arrives late."""
    coordinator = Coordinator()
    for offset in (5, 9, 9, 4):
        coordinator.commit(offset)

    coordinator.crash()

    found = coordinator.committed()
    assert found is not None
    assert found.offset == 4


def test_a_confirmed_commit_stands_after_a_crash() -> None:
    """101."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.commit(5, member_id="a", generation_id=generation_id)

    coordinator.crash()

    assert coordinator.committed() == CommittedOffset(offset=5, leader_epoch=None, metadata="")
    assert coordinator.commit(6, member_id="a", generation_id=generation_id) is None


# --- fetching


def test_a_group_that_nobody_knows_has_committed_nothing() -> None:
    """111."""
    coordinator = Coordinator()

    assert coordinator.committed(group_id="unknown") is None
    assert coordinator.ask(FetchOffsets(group_id="unknown", topics=None)) == ()


def test_all_offsets_of_a_group_come_in_order() -> None:
    coordinator = Coordinator()
    places = [OTHER, TopicPartition("in", 10), TopicPartition("in", 2)]
    for number, place in enumerate(places):
        coordinator.commit(number, partition=place)
    coordinator.commit(99, group_id="another")

    reply = coordinator.ask(FetchOffsets(group_id=GROUP, topics=None))

    assert isinstance(reply, tuple)
    found = [each for each in reply if isinstance(each, FetchedOffset)]
    assert [each.partition for each in found] == [places[2], places[1], places[0]]
    assert all(each.is_stable for each in found)


def test_an_offset_of_a_deleted_topic_is_not_one_of_its_namesake() -> None:
    coordinator = Coordinator()
    coordinator.ask(
        CommitOffsets(
            group_id=GROUP,
            member_id="",
            group_instance_id=None,
            generation_id=None,
            retention_ms=None,
            offsets=(
                OffsetToCommit(
                    partition=IN, offset=9, leader_epoch=None, metadata="", topic_id=OLD_ID
                ),
            ),
        )
    )

    def ask(topic_id: UUID | None) -> bool:
        wanted = WantedOffsets(topic="in", partitions=(0,), topic_id=topic_id)
        reply = coordinator.ask(FetchOffsets(group_id=GROUP, topics=(wanted,)))
        assert isinstance(reply, tuple)
        (found,) = reply
        assert isinstance(found, FetchedOffset)
        return found.committed is not None

    assert [ask(OLD_ID), ask(None), ask(NEW_ID)] == [True, True, False]


# --- deleting


def test_offsets_of_a_topic_in_use_stay() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", offers=protocols("range", topics=["in"]))
    coordinator.commit(1, member_id="a", generation_id=generation_id, partition=IN)
    coordinator.commit(1, member_id="a", generation_id=generation_id, partition=OTHER)

    errors = delete(coordinator, IN, OTHER, TopicPartition("other", 5))

    assert [type(error) for error in errors] == [GroupSubscribedToTopic, type(None), type(None)]
    assert coordinator.committed(IN) is not None
    assert coordinator.committed(OTHER) is None


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.commit(1, member_id="a", generation_id=generation_id)
    coordinator.leave("a")

    assert delete(coordinator, IN) == [None]

    coordinator.crash()
    assert coordinator.committed() is None


def test_nothing_is_deleted_while_nobody_knows_what_the_members_read() -> None:
    coordinator = Coordinator()
    coordinator.join("w", protocol_type="connect", offers=protocols("default"))

    with pytest.raises(NonEmptyGroup):
        delete(coordinator, IN)


def test_metadata_that_does_not_parse_counts_as_a_subscription_to_everything() -> None:
    coordinator = Coordinator()
    garbage = tuple(replace(each, metadata=b"\1") for each in RANGE)
    generation_id = coordinator.settle("a", offers=garbage)
    coordinator.commit(1, member_id="a", generation_id=generation_id, partition=OTHER)

    assert [type(error) for error in delete(coordinator, OTHER)] == [GroupSubscribedToTopic]


def test_offsets_of_an_unknown_group_cannot_be_deleted() -> None:
    with pytest.raises(GroupIdNotFound):
        delete(Coordinator(), IN)


def test_a_group_without_members_is_deleted_with_its_offsets() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.commit(1, member_id="a", generation_id=generation_id)
    coordinator.leave("a")

    assert delete_group(coordinator) is None

    coordinator.crash()
    assert coordinator.ask(ListGroups()) == ()
    assert coordinator.committed() is None


def test_a_group_with_members_is_not_deleted() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")

    assert isinstance(delete_group(coordinator), NonEmptyGroup)


def test_a_group_that_does_not_exist_is_not_deleted() -> None:
    assert isinstance(delete_group(Coordinator()), GroupIdNotFound)


def test_the_offsets_of_a_deleted_topic_go_with_it() -> None:
    coordinator = Coordinator()
    coordinator.commit(1, partition=IN)
    coordinator.commit(2, partition=OTHER)
    coordinator.commit(3, partition=IN, group_id="another")

    reply = coordinator.ask(TopicDeleted(topic="in"))

    assert reply == OffsetsForgotten(count=2)
    coordinator.crash()
    assert coordinator.committed(IN) is None
    assert coordinator.committed(IN, group_id="another") is None
    assert coordinator.committed(OTHER) is not None


# --- listing


def test_groups_are_listed_in_order_with_their_state() -> None:
    coordinator = Coordinator()
    coordinator.commit(1, group_id="simple")
    coordinator.settle("a")

    assert coordinator.ask(ListGroups()) == (
        GroupListing(
            group_id=GROUP, protocol_type="consumer", state="Stable", group_type="classic"
        ),
        GroupListing(group_id="simple", protocol_type="", state="Empty", group_type="classic"),
    )


# --- expiry (KIP-211)


def test_a_group_that_lives_keeps_its_offsets() -> None:
    coordinator = Coordinator(replace(CONFIG, offsets_retention_minutes=10))
    generation_id = coordinator.settle("a")
    coordinator.commit(1, member_id="a", generation_id=generation_id)

    keep_alive(coordinator, "a", generation_id, ms=3 * SWEEP_MS)

    assert coordinator.committed() is not None


def test_a_topic_that_no_member_reads_any_longer_is_forgotten() -> None:
    coordinator = Coordinator(replace(CONFIG, offsets_retention_minutes=10))
    generation_id = coordinator.settle("a", offers=protocols("range", topics=["in"]))
    coordinator.commit(1, member_id="a", generation_id=generation_id, partition=IN)
    coordinator.commit(1, member_id="a", generation_id=generation_id, partition=OTHER)

    keep_alive(coordinator, "a", generation_id, ms=2 * SWEEP_MS)

    assert coordinator.committed(IN) is not None
    assert coordinator.committed(OTHER) is None


def test_members_whose_topics_are_unknown_keep_all_offsets() -> None:
    coordinator = Coordinator(replace(CONFIG, offsets_retention_minutes=10))
    garbage = tuple(replace(each, metadata=b"\1") for each in RANGE)
    generation_id = coordinator.settle("a", offers=garbage)
    coordinator.commit(1, member_id="a", generation_id=generation_id, partition=OTHER)

    keep_alive(coordinator, "a", generation_id, ms=2 * SWEEP_MS)

    assert coordinator.committed(OTHER) is not None


def test_the_offsets_of_a_dead_group_count_from_its_death_and_not_from_the_commit() -> None:
    coordinator = Coordinator(replace(CONFIG, offsets_retention_minutes=60))
    generation_id = coordinator.settle("a")
    coordinator.commit(1, member_id="a", generation_id=generation_id)
    keep_alive(coordinator, "a", generation_id, ms=3_000_000)
    coordinator.leave("a")

    coordinator.advance(ms=3_000_000)
    assert coordinator.committed() is not None

    coordinator.advance(ms=600_000 + SWEEP_MS)
    assert coordinator.committed() is None
    assert coordinator.ask(ListGroups()) == ()
    assert coordinator.notes[-1] == OffsetsExpired(offset_count=1, group_count=1)


def test_the_time_of_death_survives_a_restart() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.commit(1, member_id="a", generation_id=generation_id)
    coordinator.leave("a")
    coordinator.advance(ms=RETENTION_MS - SWEEP_MS)
    coordinator.crash()
    assert coordinator.committed() is not None

    coordinator.advance(ms=2 * SWEEP_MS)

    assert coordinator.committed() is None


def test_offsets_without_a_group_count_from_their_commit() -> None:
    coordinator = Coordinator()
    coordinator.commit(1, partition=IN)
    coordinator.advance(ms=RETENTION_MS // 2)
    coordinator.commit(2, partition=OTHER)

    coordinator.advance(ms=RETENTION_MS // 2 + SWEEP_MS)

    assert coordinator.committed(IN) is None
    assert coordinator.committed(OTHER) is not None


def test_a_client_may_choose_how_long_its_offsets_last() -> None:
    """OffsetCommit v2-4."""
    coordinator = Coordinator()
    coordinator.commit(1, partition=IN, retention_ms=1_000)
    coordinator.commit(1, partition=OTHER, retention_ms=10 * RETENTION_MS)
    coordinator.crash()

    coordinator.advance(ms=SWEEP_MS)
    assert coordinator.committed(IN) is None

    coordinator.advance(ms=2 * RETENTION_MS)
    assert coordinator.committed(OTHER) is not None


def test_a_group_that_never_had_a_member_is_forgotten() -> None:
    coordinator = Coordinator()
    coordinator.ask_for_id("a")

    coordinator.advance(ms=SWEEP_MS)

    assert coordinator.ask(ListGroups()) == ()


def test_many_offsets_expire_in_several_steps() -> None:
    """Other requests get a turn in between."""
    coordinator = Coordinator(replace(CONFIG, offsets_retention_minutes=10))
    for number in range(2_100):
        offset = OffsetCommitted(
            group_id=f"g{number}",
            partition=IN,
            offset=1,
            leader_epoch=None,
            metadata="",
            committed_at_ms=coordinator.now.wall_ms,
            expires_at_ms=None,
            topic_id=None,
        )
        coordinator.shard.apply(offset, offset=number)

    coordinator.advance(ms=SWEEP_MS)

    assert coordinator.ask(ListGroups()) == ()
    counts = [note.offset_count for note in coordinator.notes if isinstance(note, OffsetsExpired)]
    assert sum(counts) == 2_100
    assert max(counts) < 1_000
