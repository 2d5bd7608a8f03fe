"""From one generation to the next, and what time does to a group."""

from dataclasses import replace

import pytest

from oncelog.core.errors import IllegalGeneration, RebalanceInProgress, UnknownMemberId
from oncelog.core.groups.classic import NEW_MEMBER_JOIN_TIMEOUT_MS
from oncelog.core.groups.commands import Alive, GroupRebalanced, MemberExpired
from oncelog.core.groups.config import GroupConfig
from tests.core.groups.builders import CONFIG, GROUP, REBALANCE_MS, SESSION_MS, Coordinator

# --- the first members of a group


def test_an_empty_group_waits_for_company() -> None:
    coordinator = Coordinator(GroupConfig())
    first = coordinator.join("a")
    coordinator.advance(ms=2_999)
    assert first.answer is None

    coordinator.advance(ms=1)

    assert first.joined.generation_id == 1


def test_company_that_comes_in_time_is_in_the_first_generation() -> None:
    coordinator = Coordinator(GroupConfig())
    tickets = [coordinator.join("a")]
    coordinator.advance(ms=2_000)
    tickets.append(coordinator.join("b"))
    coordinator.advance(ms=2_000)
    tickets.append(coordinator.join("c"))
    assert all(ticket.answer is None for ticket in tickets), "company prolongs the wait"

    coordinator.advance(ms=6_000)

    assert [ticket.joined.generation_id for ticket in tickets] == [1, 1, 1]
    assert len(tickets[0].joined.members) == 3


def test_the_wait_for_company_ends_with_the_rebalance_timeout() -> None:
    coordinator = Coordinator(GroupConfig())
    first = coordinator.join("a", rebalance_ms=7_000)
    for name in "bcdefg":
        coordinator.advance(ms=1_000)
        coordinator.join(name, rebalance_ms=7_000)
    assert first.answer is None

    coordinator.advance(ms=1_000)

    assert len(first.joined.members) == 7


def test_a_group_that_was_empty_waits_for_company_again() -> None:
    coordinator = Coordinator(GroupConfig())
    coordinator.join("a")
    coordinator.advance(ms=3_000)
    coordinator.leave("a")

    again = coordinator.join("b")

    assert again.answer is None


def test_a_group_that_is_deserted_while_it_waits_for_company_is_empty() -> None:
    coordinator = Coordinator(GroupConfig())
    coordinator.join("a")
    coordinator.leave("a")

    coordinator.advance(ms=3_000)

    assert coordinator.describe().state == "Empty"


# --- members that are not heard of


def test_a_member_that_is_silent_for_its_session_is_removed() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")
    coordinator.advance(ms=SESSION_MS - 1)
    coordinator.heartbeat("a", generation_id)

    coordinator.advance(ms=1)

    assert [m.member_id for m in coordinator.describe().members] == ["a"]
    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=True)
    assert MemberExpired(group_id=GROUP, member_id="b") in coordinator.notes


def test_a_slow_consumer_that_comes_back_can_commit_nothing() -> None:
    """106: its partitions belong to others by now."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")
    coordinator.advance(ms=SESSION_MS - 1)
    coordinator.heartbeat("a", generation_id)
    coordinator.advance(ms=1)
    coordinator.join(member_id="a")

    with pytest.raises(UnknownMemberId):
        coordinator.commit(9, member_id="b", generation_id=generation_id)
    with pytest.raises(IllegalGeneration):
        coordinator.commit(9, member_id="a", generation_id=generation_id)
    assert coordinator.committed() is None


def test_a_commit_is_a_sign_of_life() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.advance(ms=SESSION_MS - 1)
    coordinator.commit(1, member_id="a", generation_id=generation_id)

    coordinator.advance(ms=SESSION_MS - 1)

    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=False)


def test_the_last_member_that_expires_leaves_an_empty_group() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")

    coordinator.advance(ms=SESSION_MS)

    assert coordinator.describe().state == "Empty"
    assert coordinator.notes[-1] == GroupRebalanced(group_id=GROUP, generation_id=2, member_count=0)


def test_a_jump_of_the_wall_clock_expires_nobody() -> None:
    """88."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")

    coordinator.advance(ms=1_000, wall_ms=3_600_000)
    coordinator.advance(ms=1_000, wall_ms=-7_200_000)

    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=False)


def test_a_member_whose_join_is_parked_does_not_expire() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")
    waiting = coordinator.join(member_id="a")
    for _ in range(3):
        coordinator.advance(ms=SESSION_MS - 1)
        coordinator.heartbeat("b", generation_id)
    assert waiting.answer is None

    coordinator.join(member_id="b")

    assert len(waiting.joined.members) == 2


def test_a_newcomer_whose_join_is_parked_waits_for_five_minutes_at_most() -> None:
    """It cannot heartbeat, and its connection may be long gone."""
    coordinator = Coordinator()
    coordinator.join("a", rebalance_ms=3_600_000)
    coordinator.sync("a", 1, {"a": b"a"})
    newcomer = coordinator.join("b")
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 6_000):
        assert newcomer.answer is None
        coordinator.heartbeat("a", 1)
        coordinator.advance(ms=6_000)

    assert isinstance(newcomer.answer, UnknownMemberId)


# --- rebalances that would never end


def test_a_member_that_does_not_join_in_time_is_left_behind() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")
    newcomer = coordinator.join("c")
    coordinator.join(member_id="a")
    for _ in range(REBALANCE_MS // 6_000):
        coordinator.heartbeat("b", generation_id)
        coordinator.advance(ms=6_000)

    assert newcomer.joined.generation_id == generation_id + 1
    assert [m.member_id for m in coordinator.describe().members] == ["a", "c"]


def test_another_member_leads_when_the_leader_does_not_join_in_time() -> None:
    coordinator = Coordinator()
    coordinator.settle("a", "b")
    coordinator.join("c")
    again = coordinator.join(member_id="b")

    coordinator.advance(ms=SESSION_MS)

    assert again.joined.leader == "b"
    assert [m.member_id for m in again.joined.members] == ["b", "c"]


def test_nobody_waits_for_ever_when_the_leader_dies_between_join_and_sync() -> None:
    """109."""
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id
    waiting = coordinator.sync("b", generation_id)

    coordinator.advance(ms=SESSION_MS)

    assert isinstance(waiting.answer, RebalanceInProgress)
    again = coordinator.join(member_id="b").joined
    assert (again.leader, again.generation_id) == ("b", generation_id + 1)


def test_a_leader_that_lives_but_never_syncs_is_removed() -> None:
    """109: heartbeats alone do not keep the others waiting."""
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id
    waiting = coordinator.sync("b", generation_id)
    for _ in range(REBALANCE_MS // 6_000):
        coordinator.heartbeat("a", generation_id)
        coordinator.advance(ms=6_000)

    assert isinstance(waiting.answer, RebalanceInProgress)
    assert [m.member_id for m in coordinator.describe().members] == ["b"]


def test_a_follower_that_never_syncs_is_removed() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id
    coordinator.sync("a", generation_id, {"a": b"a", "b": b"b"})
    for _ in range(REBALANCE_MS // 6_000):
        coordinator.heartbeat("a", generation_id)
        coordinator.heartbeat("b", generation_id)
        coordinator.advance(ms=6_000)

    assert [m.member_id for m in coordinator.describe().members] == ["a"]


def test_a_group_of_absent_static_members_waits_for_one_of_them() -> None:
    coordinator = Coordinator()
    coordinator.join("a-1", instance="A", session_ms=10 * REBALANCE_MS)
    coordinator.sync("a-1", 1, {"a-1": b"a"}, instance="A")
    newcomer = coordinator.join("b")
    coordinator.leave("b")
    assert isinstance(newcomer.answer, UnknownMemberId)
    coordinator.advance(ms=2 * REBALANCE_MS)
    assert coordinator.describe().state == "PreparingRebalance"

    joined = coordinator.join("a-2", instance="A").joined

    assert (joined.leader, joined.generation_id) == ("a-2", 2)


def test_a_rebalance_without_any_time_still_ends() -> None:
    coordinator = Coordinator()
    coordinator.join("a", rebalance_ms=0)

    coordinator.advance(ms=SESSION_MS)

    assert coordinator.describe().state == "Empty"


# --- crashes


def test_a_crash_between_join_and_sync_leads_to_a_higher_generation() -> None:
    """101: Kafka would hand out generation 2 a second time."""
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id

    coordinator.crash()

    with pytest.raises(RebalanceInProgress):
        coordinator.sync("a", generation_id, {"a": b"a"})
    coordinator.join(member_id="b")
    assert coordinator.join(member_id="a").joined.generation_id == generation_id + 1


def test_a_crash_during_a_rebalance_leaves_the_last_stable_generation() -> None:
    """101: join received, then crash; those whose join was parked ask again."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.join("b")

    coordinator.crash()

    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=False)
    with pytest.raises(UnknownMemberId):
        coordinator.join(member_id="b")


def test_members_get_a_whole_session_after_a_crash() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.advance(ms=SESSION_MS - 1)
    coordinator.crash()

    coordinator.advance(ms=SESSION_MS - 1)
    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=False)

    coordinator.advance(ms=SESSION_MS)
    assert coordinator.describe().state == "Empty"


def test_members_that_do_not_come_back_after_a_crash_expire() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.crash()
    assert coordinator.describe().state == "PreparingRebalance"

    coordinator.advance(ms=SESSION_MS)

    assert coordinator.describe().state == "Empty"


def test_a_group_above_a_lowered_limit_rebalances_after_the_restart() -> None:
    before = Coordinator()
    before.settle("a", "b", "c")
    coordinator = Coordinator(replace(CONFIG, group_max_size=2))
    coordinator.log = before.log
    coordinator.shard = coordinator.replay()
    coordinator.shard.loaded(coordinator.now)

    tickets = [coordinator.join(member_id=name) for name in "ab"]
    coordinator.advance(ms=SESSION_MS)

    assert [m.member_id for m in tickets[0].joined.members] == ["a", "b"]


# --- a crowd


def test_a_crowd_that_comes_and_goes_settles_in_one_generation() -> None:
    """110: 200 members join in a second, 50 leave, 50 die; stable within ten seconds."""
    coordinator = Coordinator(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    names = [f"m{number:03}" for number in range(200)]
    tickets = {name: coordinator.join(name, session_ms=6_000) for name in names}
    coordinator.advance(ms=6_000)
    first = tickets["m000"].joined
    assert len(first.members) == 200
    coordinator.sync("m000", first.generation_id, {name: name.encode() for name in names})
    for name in names[1:]:
        coordinator.sync(name, first.generation_id)

    coordinator.leave(*names[100:150])
    alive = names[:100]
    again = {name: coordinator.join(member_id=name, session_ms=6_000) for name in alive}
    coordinator.advance(ms=6_000)

    second = again["m000"].joined
    assert [m.member_id for m in second.members] == alive
    assert {ticket.joined.generation_id for ticket in again.values()} == {second.generation_id}
    coordinator.sync("m000", second.generation_id, {name: name.encode() for name in alive})
    assert coordinator.describe().state == "Stable"
