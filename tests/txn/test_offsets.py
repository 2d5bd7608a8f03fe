"""Offsets of a group inside a transaction: when they count, and what the group is told before."""

import pytest

from oncelog.core.types import partition_for
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from tests.txn.conftest import StartWorld
from tests.txn.markers import MarkerRequest, describe_producers
from tests.txn.offsets import Committed, a_join, a_sync, commit_plainly, committed, join_alone
from tests.txn.producer import GROUP, OK, TOPIC, Producer, find_coordinator
from tests.txn.reader import read
from tests.txn.world import Disconnected, World

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
NOTHING = Committed(OK, -1)


def with_offsets(world: World, offset: int, *, is_v2: bool = False) -> Producer:
    """A transaction that has moved the group's offset."""
    find_coordinator(world, GROUP, key_type=0)
    producer = Producer(world, is_v2=is_v2).ready()
    if not is_v2:
        assert producer.add_offsets() == OK
    assert producer.commit_offsets({0: offset}) == [OK]
    return producer


# --- adding ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(0, 48), (2, 48), (3, 48), (4, 120), (5, OK)])
def test_offsets_belong_to_the_transaction_or_are_refused(
    world: World, version: int, code: int
) -> None:
    """Check 57."""
    find_coordinator(world, GROUP, key_type=0)
    producer = Producer(world).ready()

    assert producer.commit_offsets({0: 5}, version=version) == [code]
    assert producer.state().transaction_state == ("Ongoing" if code == OK else "Empty")
    assert committed(world) == [NOTHING]


@pytest.mark.parametrize("version", range(5))
def test_offsets_that_were_added_are_taken(world: World, version: int) -> None:
    """Check 57 in every version, and the same once more."""
    find_coordinator(world, GROUP, key_type=0)
    producer = Producer(world).ready()
    assert producer.add_offsets(version=min(version, 4)) == OK

    assert producer.commit_offsets({0: 5}, version=version) == [OK]
    assert producer.commit_offsets({0: 6}, version=version) == [OK]
    producer.commit()

    assert committed(world) == [Committed(OK, 6)]


@pytest.mark.parametrize("is_v2", [False, True])
def test_offsets_that_come_after_the_end_are_refused(world: World, is_v2: bool) -> None:
    """Flaw 10.1 for offsets: nothing stays pending."""
    producer = with_offsets(world, 5, is_v2=is_v2)
    late = producer.twin()
    producer.abort()

    (code,) = late.commit_offsets({0: 9})

    assert code == (ErrorCode.INVALID_PRODUCER_EPOCH if is_v2 else ErrorCode.TRANSACTION_ABORTABLE)
    assert committed(world, require_stable=True) == [NOTHING]


# --- deciding -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
def test_g98_pending_offsets_are_unstable_until_they_are_decided(world: World, is_v2: bool) -> None:
    """Check 103, scenario G98: 88 for that partition alone, and the old offset without the flag."""
    find_coordinator(world, GROUP, key_type=0)
    assert commit_plainly(world, 3) == OK
    assert commit_plainly(world, 4, partition=1) == OK
    producer = with_offsets(world, 7, is_v2=is_v2)

    strict = committed(world, 0, 1, require_stable=True)
    loose = committed(world, 0, 1)
    producer.commit()

    assert strict == [Committed(UNSTABLE, -1), Committed(OK, 4)]
    assert loose == [Committed(OK, 3), Committed(OK, 4)]
    assert committed(world, 0, 1, require_stable=True) == [Committed(OK, 7), Committed(OK, 4)]


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("crashes", [True, False])
def test_g105_offsets_share_the_fate_of_their_transaction(
    world: World, is_v2: bool, commits: bool, crashes: bool
) -> None:
    """Check 104, flaw 10.22 a, scenario G105: when it is complete they are decided."""
    find_coordinator(world, GROUP, key_type=0)
    assert commit_plainly(world, 3) == OK
    producer = with_offsets(world, 7, is_v2=is_v2)
    producer.begin({0: [b"a"]})
    producer.decide(commits)
    if crashes:
        world.crash()
        producer = producer.twin(world)
    producer.settle()

    assert committed(world, require_stable=True) == [Committed(OK, 7 if commits else 3)]
    assert read(world) == ([b"a"] if commits else [])
    world.crash()
    assert committed(world, require_stable=True) == [Committed(OK, 7 if commits else 3)]


def test_a_marker_is_answered_when_its_offsets_are_decided(world: World) -> None:
    """Check 104 (KAFKA-17507): whoever has the answer sees the offset."""
    producer = with_offsets(world, 7)
    marker = MarkerRequest(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
        topic="__consumer_offsets",
        partition=partition_for(GROUP, 2),
    )

    assert marker.send(world) == OK
    assert committed(world, require_stable=True) == [Committed(OK, 7)]


@pytest.mark.parametrize("plain_first", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_g103_a_later_plain_commit_is_not_overwritten(
    world: World, plain_first: bool, commits: bool
) -> None:
    """Check 105, flaw 10.22 c (KAFKA-5247); the same after a replay, scenario G103."""
    find_coordinator(world, GROUP, key_type=0)
    if plain_first:
        assert commit_plainly(world, 200) == OK
    producer = with_offsets(world, 100)
    if not plain_first:
        assert commit_plainly(world, 200) == OK
    producer.decide(commits)
    producer.settle()

    before = committed(world, require_stable=True)
    world.crash()

    expected = [Committed(OK, 100 if plain_first and commits else 200)]
    assert before == committed(world, require_stable=True) == expected


def test_a_timeout_drops_what_was_pending(world: World) -> None:
    """Check 104 where nobody asks for the end."""
    find_coordinator(world, GROUP, key_type=0)
    producer = Producer(world, timeout_ms=10_000).ready()
    assert producer.add_offsets() == OK
    assert producer.commit_offsets({0: 7}) == [OK]
    world.pass_ms(11_000)

    assert committed(world, require_stable=True) == [NOTHING]


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("commits", [True, False])
def test_h118_a_transaction_of_offsets_alone_is_a_transaction(
    world: World, is_v2: bool, commits: bool
) -> None:
    """Scenario H118: also where offsets were added and none was sent."""
    producer = with_offsets(world, 7, is_v2=is_v2)
    producer.decide(commits)
    producer.settle()
    if not is_v2:
        assert producer.add_offsets() == OK
        producer.decide(commits)
        producer.settle()

    assert committed(world, require_stable=True) == [Committed(OK, 7) if commits else NOTHING]


# --- groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_a_deleted_group_does_not_come_back_with_its_pending_offsets(
    world: World, commits: bool
) -> None:
    """Check 106, flaw 10.22 b."""
    find_coordinator(world, GROUP, key_type=0)
    assert commit_plainly(world, 3) == OK
    producer = with_offsets(world, 7)
    (deleted,) = world.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results

    producer.decide(commits)
    producer.settle()

    assert deleted.error_code == OK
    assert committed(world, require_stable=True) == [NOTHING]
    world.crash()
    assert committed(world, require_stable=True) == [NOTHING]


def test_g104_a_group_with_pending_offsets_does_not_expire(start_world: StartWorld) -> None:
    """Check 106, scenario G104 (KAFKA-19163): neither the old value nor the pending one goes."""
    world = start_world(
        {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    )
    find_coordinator(world, GROUP, key_type=0)
    assert commit_plainly(world, 3) == OK
    producer = Producer(world, timeout_ms=900_000).ready()
    assert producer.add_offsets() == OK
    assert producer.commit_offsets({0: 7}) == [OK]
    world.pass_ms(300_000)

    loose = committed(world)
    producer.commit()

    assert loose == [Committed(OK, 3)]
    assert committed(world, require_stable=True) == [Committed(OK, 7)]


@pytest.mark.parametrize("is_v2", [False, True])
def test_b25_g97_a_member_that_was_replaced_moves_no_offset(world: World, is_v2: bool) -> None:
    """Checks 58 and 59, scenarios B25 and G97: the generation is that of the member's poll."""
    member, generation = join_alone(world)
    producer = Producer(world, is_v2=is_v2).ready()
    if not is_v2:
        assert producer.add_offsets() == OK
    assert producer.commit_offsets({0: 5}, member=(member, generation)) == [OK]

    # Another one joins; the old member has to come back, and so the generation moves on.
    other = world.connect()
    known = other.ask(a_join(), 9)
    joining = other.begin(a_join(known.member_id), 9)
    world.pass_ms(100)
    during = producer.commit_offsets({0: 6}, member=(member, generation))
    back = world.ask(a_join(member), 9)
    other.answer(joining)
    assert world.ask(a_sync(back), 5).error_code == OK
    stale = producer.commit_offsets({0: 9}, member=(member, generation))
    unknown = producer.commit_offsets({0: 9}, member=("nobody", back.generation_id))
    without = producer.commit_offsets({0: 8}, version=2 if not is_v2 else 5)

    # KIP-447: while a group settles its members may still finish what they have begun.
    assert during == [OK]
    assert stale == [ErrorCode.ILLEGAL_GENERATION]
    assert unknown == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert without == [OK]
    producer.abort()
    assert committed(world, require_stable=True) == [NOTHING]


def test_g98_a_new_owner_waits_for_the_last_transaction_of_the_old_one(impatient: World) -> None:
    """Scenario G98: while the coordinator is slow the new owner gets no offset to start from."""
    world = impatient
    producer = with_offsets(world, 7)
    index = partition_for(GROUP, 2)
    world.disk.full.add(f"__consumer_offsets-{index}")
    producer.decide(True)
    world.pass_ms(500)

    undecided = committed(world, require_stable=True)
    world.disk.full.clear()
    world.pass_ms(3_000)

    assert undecided == [Committed(UNSTABLE, -1)]
    assert committed(world, require_stable=True) == [Committed(OK, 7)]


def test_a_bad_partition_does_not_spoil_the_others(world: World) -> None:
    """Check 61."""
    find_coordinator(world, GROUP, key_type=0)
    producer = Producer(world, is_v2=True).ready()

    codes = producer.commit_offsets({0: 5, 9: 5, 1: 6})
    producer.commit()

    assert codes == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OK]
    assert committed(world, 0, 1) == [Committed(OK, 5), Committed(OK, 6)]


# --- what comes late ------------------------------------------------------------------------


def test_a_late_marker_of_v2_does_not_publish_the_next_offsets(world: World) -> None:
    """Flaw 10.5 (KAFKA-19446): the marker of T1 once more, while T2 holds offsets."""
    producer = with_offsets(world, 7, is_v2=True)
    producer.commit()
    index = partition_for(GROUP, 2)
    (known,) = describe_producers(world, topic="__consumer_offsets", partition=index)
    assert producer.commit_offsets({0: 100}) == [OK]

    late = MarkerRequest(
        producer_id=producer.producer_id,
        producer_epoch=known.producer_epoch,
        committed=True,
        coordinator_epoch=known.coordinator_epoch,
        transaction_version=2,
        topic="__consumer_offsets",
        partition=index,
    )

    assert late.send(world) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(world) == [Committed(OK, 7)]
    producer.abort()
    assert committed(world, require_stable=True) == [Committed(OK, 7)]


def test_offsets_of_an_earlier_connection_do_not_join_the_next_transaction(world: World) -> None:
    """Flaw 10.4 for offsets of a V1 producer: the connection that was left is closed."""
    old, new = world.connect(), world.connect()
    producer = with_offsets(world, 7).twin(new)
    assert producer.commit_offsets({0: 8}) == [OK]
    producer.abort()
    assert producer.add_offsets() == OK

    with pytest.raises(Disconnected):
        producer.twin(old).commit_offsets({0: 9})
    assert producer.commit_offsets({0: 10}) == [OK]
    producer.commit()

    assert committed(world, require_stable=True) == [Committed(OK, 10)]
    assert (TOPIC, 0) not in producer.partitions()
