"""What members ask of a classic group. Numbers are those of the failure scenarios."""

from dataclasses import replace

import pytest

from oncelog.core.errors import (
    BrokerError,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.core.groups.commands import Alive, GroupProtocol, LeavingMember
from oncelog.core.groups.records import GroupMetadata
from tests.core.groups.builders import (
    CONFIG,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    protocols,
    subscription,
)

# --- joining


def test_the_first_member_leads_and_is_shown_the_members() -> None:
    coordinator = Coordinator()

    joined = coordinator.join("a", offers=protocols("range", topics=["in"])).joined

    assert (joined.generation_id, joined.leader, joined.member_id) == (1, "a", "a")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [m.metadata for m in joined.members] == [subscription("in")]
    assert not joined.skip_assignment


def test_only_the_leader_is_shown_the_members() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    follower = coordinator.join("b")
    leader = coordinator.join(member_id="a")

    assert [m.member_id for m in leader.joined.members] == ["a", "b"]
    assert follower.joined.members == ()
    assert follower.joined.leader == "a"
    assert follower.joined.generation_id == leader.joined.generation_id == 2


def test_a_generation_is_written_before_anyone_hears_of_it() -> None:
    """101: a crash between join and sync must not hand out the same generation again."""
    coordinator = Coordinator()

    decision = coordinator.shard.decide(coordinator.a_join("a"), coordinator.now)

    written = [record for record in decision.records if isinstance(record, GroupMetadata)]
    assert [record.generation_id for record in written] == [1]


def test_a_client_without_an_id_is_sent_away_to_come_back_with_it() -> None:
    """KIP-394."""
    coordinator = Coordinator()

    member_id = coordinator.ask_for_id("a")

    assert member_id == "a"
    assert coordinator.describe().state == "Empty"
    assert coordinator.join(member_id="a").joined.generation_id == 1


def test_a_static_member_is_never_sent_away() -> None:
    coordinator = Coordinator()

    reply = coordinator.ask(coordinator.a_join("a", instance="A", needs_id=True))

    assert getattr(reply, "member_id", None) == "a"
    assert getattr(reply, "generation_id", None) == 1


def test_an_id_that_nobody_came_back_with_is_forgotten() -> None:
    coordinator = Coordinator()
    coordinator.ask_for_id("a")

    coordinator.advance(ms=SESSION_MS)

    with pytest.raises(UnknownMemberId):
        coordinator.join(member_id="a")


def test_a_rebalance_waits_for_those_who_only_have_an_id() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.ask_for_id("b")
    again = coordinator.join(member_id="a")
    assert again.answer is None

    newcomer = coordinator.join(member_id="b")

    assert again.joined.generation_id == newcomer.joined.generation_id == generation_id + 1


def test_a_rebalance_goes_on_when_the_owner_of_an_id_does_not_come() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")
    coordinator.ask_for_id("b")
    again = coordinator.join(member_id="a")

    coordinator.advance(ms=SESSION_MS)

    assert [m.member_id for m in again.joined.members] == ["a"]


@pytest.mark.parametrize("member_id", ["a", "b"])
def test_an_unknown_member_is_told_so(member_id: str) -> None:
    coordinator = Coordinator()
    if member_id == "b":
        coordinator.settle("a")

    with pytest.raises(UnknownMemberId):
        coordinator.join(member_id=member_id)


def test_a_group_needs_a_name() -> None:
    with pytest.raises(InvalidGroupId):
        Coordinator().join("a", group_id="")


@pytest.mark.parametrize("name", ["x" * 32_768, "\N{CAT}" * 8_192])
@pytest.mark.parametrize("place", ["group", "instance", "member", "protocol"])
def test_a_name_that_does_not_fit_into_a_record_is_refused_at_once(place: str, name: str) -> None:
    """203: it would fail later, when the generation is written and nobody can be refused."""
    coordinator = Coordinator()
    names = {place: name}

    with pytest.raises(InvalidRequest):
        coordinator.join(
            names.get("member", "a"),
            group_id=names.get("group", "g"),
            instance=names.get("instance"),
            offers=protocols(names.get("protocol", "range")),
        )


def test_the_longest_name_that_fits_is_taken() -> None:
    coordinator = Coordinator()

    assert coordinator.join("x" * 32_767).joined.generation_id == 1


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_outside_the_limits_is_refused(session_ms: int) -> None:
    with pytest.raises(InvalidSessionTimeout):
        Coordinator().join("a", session_ms=session_ms)


@pytest.mark.parametrize(
    ("protocol_type", "offers"),
    [
        ("consumer", ()),
        ("", protocols("range")),
        ("consumer", protocols("roundrobin")),
        ("connect", protocols("range")),
    ],
)
def test_a_member_must_share_a_protocol_with_the_group(
    protocol_type: str, offers: tuple[GroupProtocol, ...]
) -> None:
    coordinator = Coordinator()
    coordinator.settle("a")

    with pytest.raises(InconsistentGroupProtocol):
        coordinator.join("b", protocol_type=protocol_type, offers=offers)


@pytest.mark.parametrize(("protocol_type", "names"), [("", ("range",)), ("consumer", ())])
def test_even_an_empty_group_wants_a_protocol(protocol_type: str, names: tuple[str, ...]) -> None:
    with pytest.raises(InconsistentGroupProtocol):
        Coordinator().join("a", protocol_type=protocol_type, offers=protocols(*names))


def test_an_empty_group_may_change_its_type() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")
    coordinator.leave("a")

    joined = coordinator.join("w", protocol_type="connect", offers=protocols("default")).joined

    assert joined.protocol_type == "connect"


def test_the_members_vote_for_the_assignor() -> None:
    coordinator = Coordinator()
    coordinator.join("a", offers=protocols("range", "sticky"))
    coordinator.join("b", offers=protocols("sticky", "range"))
    coordinator.join("c", offers=protocols("own", "sticky", "range"))

    joined = coordinator.join(member_id="a", offers=protocols("range", "sticky")).joined

    assert joined.protocol_name == "sticky", "b and c against a; nobody else knows c's own"


def test_a_full_group_takes_nobody_else() -> None:
    coordinator = Coordinator(replace(CONFIG, group_max_size=2))
    coordinator.settle("a", "b")

    with pytest.raises(GroupMaxSizeReached):
        coordinator.join("c")

    assert coordinator.join(member_id="b").joined.member_id == "b"


def test_a_full_group_takes_back_its_static_member() -> None:
    coordinator = Coordinator(replace(CONFIG, group_max_size=1))
    coordinator.join("a-1", instance="A")
    coordinator.sync("a-1", 1, {"a-1": b"x"}, instance="A")

    assert coordinator.join("a-2", instance="A").joined.generation_id == 1


def test_a_follower_that_has_missed_the_answer_gets_it_again() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")

    assert coordinator.join(member_id="b").joined.generation_id == generation_id
    assert coordinator.describe().state == "Stable"


def test_the_leader_may_ask_for_a_new_assignment() -> None:
    """It joins again, unchanged, when it sees that a topic has grown."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")

    leader = coordinator.join(member_id="a")
    coordinator.join(member_id="b")

    assert leader.joined.generation_id == generation_id + 1


def test_a_member_with_other_topics_causes_a_rebalance() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")

    changed = coordinator.join(member_id="b", offers=protocols("range", topics=["in", "more"]))

    assert changed.answer is None
    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=True)


def test_the_leader_that_joins_again_before_it_syncs_gets_the_same_generation() -> None:
    coordinator = Coordinator()
    first = coordinator.join("a").joined

    assert coordinator.join(member_id="a").joined == first


def test_a_join_that_is_sent_twice_is_answered_twice() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")
    first = coordinator.join("b")

    second = coordinator.join(member_id="b")
    coordinator.join(member_id="a")

    assert isinstance(first.answer, RebalanceInProgress)
    assert second.joined.generation_id == 2


# --- static members


def a_static_group(*names: str) -> tuple[Coordinator, int]:
    """A stable group of static members: instance `A` is member `a-1`, and so on."""
    coordinator = Coordinator()
    for name in names:
        ticket = coordinator.join(f"{name}-1", instance=name.upper())
    if len(names) > 1:
        ticket = coordinator.join(member_id=f"{names[0]}-1", instance=names[0].upper())
    generation_id = ticket.joined.generation_id
    shares = {f"{name}-1": name.encode() for name in names}
    coordinator.sync(f"{names[0]}-1", generation_id, shares, instance=names[0].upper())
    for name in names[1:]:
        coordinator.sync(f"{name}-1", generation_id, instance=name.upper())
    return coordinator, generation_id


def test_a_static_member_that_restarts_keeps_its_partitions_without_a_rebalance() -> None:
    """100."""
    coordinator, generation_id = a_static_group("a", "b")

    joined = coordinator.join("b-2", instance="B").joined

    assert joined.generation_id == generation_id
    synced = coordinator.sync("b-2", generation_id, instance="B").synced
    assert synced.assignment == b"b"
    assert coordinator.heartbeat("a-1", generation_id, instance="A") == Alive(is_rebalancing=False)


def test_a_static_member_keeps_its_partitions_when_the_coordinator_restarts_too() -> None:
    """100."""
    coordinator, generation_id = a_static_group("a", "b")
    coordinator.join("b-2", instance="B")

    coordinator.crash()

    assert coordinator.sync("b-2", generation_id, instance="B").synced.assignment == b"b"
    with pytest.raises(FencedInstanceId):
        coordinator.heartbeat("b-1", generation_id, instance="B")


def test_a_leader_that_restarts_leads_but_need_not_assign() -> None:
    """KIP-814."""
    coordinator, generation_id = a_static_group("a", "b")

    joined = coordinator.join("a-2", instance="A").joined

    assert (joined.leader, joined.generation_id) == ("a-2", generation_id)
    assert joined.skip_assignment
    assert [m.member_id for m in joined.members] == ["a-2", "b-1"]


def test_a_leader_too_old_to_skip_is_not_told_that_it_leads() -> None:
    coordinator, generation_id = a_static_group("a", "b")

    joined = coordinator.join("a-2", instance="A", can_skip=False).joined

    assert (joined.leader, joined.members) == ("a-1", ())
    assert not joined.skip_assignment
    assert coordinator.sync("a-2", generation_id, instance="A").synced.assignment == b"a"


def test_the_replaced_instance_is_fenced_on_heartbeat_sync_and_commit() -> None:
    """31."""
    coordinator, generation_id = a_static_group("a")
    coordinator.join("a-2", instance="A")

    with pytest.raises(FencedInstanceId):
        coordinator.heartbeat("a-1", generation_id, instance="A")
    with pytest.raises(FencedInstanceId):
        coordinator.sync("a-1", generation_id, instance="A")
    with pytest.raises(FencedInstanceId):
        coordinator.commit(5, member_id="a-1", generation_id=generation_id, instance="A")
    with pytest.raises(FencedInstanceId):
        coordinator.join(member_id="a-1", instance="A")
    assert coordinator.committed() is None


def test_an_instance_that_is_replaced_while_it_waits_hears_of_it() -> None:
    """31."""
    coordinator, _ = a_static_group("a")
    waiting = coordinator.join("b-1", instance="B")

    coordinator.join("b-2", instance="B")

    assert isinstance(waiting.answer, FencedInstanceId)


def test_a_restart_with_other_topics_causes_a_rebalance() -> None:
    coordinator, generation_id = a_static_group("a", "b")

    again = coordinator.join("b-2", instance="B", offers=protocols("range", topics=["other"]))
    coordinator.join(member_id="a-1", instance="A")

    assert again.joined.generation_id == generation_id + 1


def test_a_restart_that_changes_the_assignor_causes_a_rebalance() -> None:
    coordinator = Coordinator()
    both = protocols("range", "sticky")
    coordinator.join("a-1", instance="A", offers=both)
    coordinator.sync("a-1", 1, {"a-1": b"x"}, instance="A")

    joined = coordinator.join("a-2", instance="A", offers=protocols("sticky")).joined

    assert (joined.generation_id, joined.protocol_name) == (2, "sticky")


def test_a_restart_between_join_and_sync_begins_anew() -> None:
    """The leader may already be assigning to the old member id."""
    coordinator, generation_id = a_static_group("a", "b")
    coordinator.join(member_id="a-1", instance="A")
    coordinator.join(member_id="b-1", instance="B")

    again = coordinator.join("b-2", instance="B")
    coordinator.join(member_id="a-1", instance="A")

    assert again.joined.generation_id == generation_id + 2


def test_an_absent_static_member_keeps_its_place_in_a_rebalance() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b-1", instance="B", session_ms=10 * REBALANCE_MS)
    generation_id = coordinator.join(member_id="a").joined.generation_id
    coordinator.assign(generation_id, "a")
    coordinator.sync("b-1", generation_id, instance="B")

    leader = coordinator.join(member_id="a")
    coordinator.advance(ms=REBALANCE_MS)

    assert [m.group_instance_id for m in leader.joined.members] == [None, "B"]
    assert leader.joined.generation_id == generation_id + 1


def test_an_absent_static_member_owes_no_sync_of_a_generation_it_has_not_heard_of() -> None:
    """Kafka removes it when the rebalance timeout is over, however long its session may last."""
    coordinator = Coordinator()
    coordinator.join("a", session_ms=10 * REBALANCE_MS)
    coordinator.join("b-1", instance="B", session_ms=10 * REBALANCE_MS)
    coordinator.assign(coordinator.join(member_id="a").joined.generation_id, "a")
    leader = coordinator.join(member_id="a", session_ms=10 * REBALANCE_MS)
    coordinator.advance(ms=REBALANCE_MS)
    coordinator.assign(leader.joined.generation_id, "a")

    coordinator.advance(ms=2 * REBALANCE_MS)

    assert coordinator.describe().state == "Stable"
    assert [m.member_id for m in coordinator.describe().members] == ["a", "b-1"]


# --- syncing


def test_followers_wait_for_the_leaders_assignment() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id
    follower = coordinator.sync("b", generation_id)
    assert follower.answer is None

    leader = coordinator.sync("a", generation_id, {"a": b"1", "b": b"2", "stranger": b"3"})

    assert (leader.synced.assignment, follower.synced.assignment) == (b"1", b"2")
    assert follower.synced.protocol_name == "range"
    assert coordinator.describe().state == "Stable"


def test_an_assignment_is_written_before_anyone_acts_on_it() -> None:
    """101: sync stored, then crash: everyone finds the same assignment."""
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")

    coordinator.crash()

    assert coordinator.sync("b", generation_id).synced.assignment == b"b"
    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=False)


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id

    coordinator.sync("a", generation_id, {"a": b"1"})

    assert coordinator.sync("b", generation_id).synced.assignment == b""


def test_a_second_assignment_does_not_replace_the_first() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")

    assert coordinator.sync("a", generation_id, {"a": b"other"}).synced.assignment == b"a"


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [("x", 1, UnknownMemberId), ("a", 0, IllegalGeneration), ("a", 2, IllegalGeneration)],
)
def test_sync_and_heartbeat_are_for_members_of_this_generation(
    member_id: str, generation_id: int, error: type[BrokerError]
) -> None:
    coordinator = Coordinator()
    coordinator.settle("a")

    with pytest.raises(error):
        coordinator.sync(member_id, generation_id)
    with pytest.raises(error):
        coordinator.heartbeat(member_id, generation_id)


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "sticky")]
)
def test_a_sync_for_another_protocol_is_refused(protocol_type: str, protocol_name: str) -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")

    with pytest.raises(InconsistentGroupProtocol):
        coordinator.sync(
            "a", generation_id, protocol_type=protocol_type, protocol_name=protocol_name
        )


def test_a_sync_during_a_rebalance_is_told_to_join_again() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.join("b")

    with pytest.raises(RebalanceInProgress):
        coordinator.sync("a", generation_id)


def test_who_waits_for_an_assignment_is_released_by_a_rebalance() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id
    follower = coordinator.sync("b", generation_id)

    coordinator.join("c")

    assert isinstance(follower.answer, RebalanceInProgress)


# --- heartbeats


@pytest.mark.parametrize("group_exists", [False, True])
def test_a_heartbeat_of_a_stranger_is_refused(group_exists: bool) -> None:
    coordinator = Coordinator()
    if group_exists:
        coordinator.settle("a")
        coordinator.leave("a")

    with pytest.raises(UnknownMemberId):
        coordinator.heartbeat("a", 1)


def test_a_heartbeat_between_join_and_sync_is_fine() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.join("a").joined.generation_id

    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=False)


def test_a_heartbeat_during_a_rebalance_counts_and_says_so() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.join("b")

    for _ in range(3):
        coordinator.advance(ms=SESSION_MS - 1)
        assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=True)


# --- leaving


def test_a_group_that_everyone_has_left_is_empty_at_a_higher_generation() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")

    assert coordinator.leave("a", "b") == (None, None)

    assert coordinator.describe().state == "Empty"
    coordinator.crash()
    assert coordinator.describe().state == "Empty"
    assert coordinator.join("c").joined.generation_id == generation_id + 2


def test_each_leaving_member_has_an_answer_of_its_own() -> None:
    coordinator, _ = a_static_group("a", "b", "c")

    errors = coordinator.leave(
        LeavingMember(member_id="", group_instance_id="A"),
        LeavingMember(member_id="b-9", group_instance_id="B"),
        LeavingMember(member_id="", group_instance_id="Z"),
        "nobody",
        "c-1",
        "c-1",
    )

    kinds = [type(error) for error in errors]
    assert kinds == [
        type(None),
        FencedInstanceId,
        UnknownMemberId,
        UnknownMemberId,
        type(None),
        UnknownMemberId,
    ]
    assert [m.member_id for m in coordinator.describe().members] == ["b-1"]


def test_leaving_a_group_that_does_not_exist() -> None:
    (error,) = Coordinator().leave("a")

    assert isinstance(error, UnknownMemberId)


def test_the_others_rebalance_when_one_leaves() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a", "b")

    coordinator.leave("a")

    assert coordinator.heartbeat("b", generation_id) == Alive(is_rebalancing=True)
    joined = coordinator.join(member_id="b").joined
    assert (joined.leader, joined.generation_id) == ("b", generation_id + 1)


def test_who_leaves_while_its_join_is_parked_hears_that_it_is_out() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")
    waiting = coordinator.join("b")

    coordinator.leave("b")

    assert isinstance(waiting.answer, UnknownMemberId)


def test_who_leaves_while_its_sync_is_parked_hears_that_it_is_out() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    generation_id = coordinator.join(member_id="a").joined.generation_id
    waiting = coordinator.sync("b", generation_id)

    coordinator.leave("b")

    assert isinstance(waiting.answer, UnknownMemberId)


def test_giving_back_an_id_before_joining_disturbs_nobody() -> None:
    coordinator = Coordinator()
    generation_id = coordinator.settle("a")
    coordinator.ask_for_id("b")

    assert coordinator.leave("b") == (None,)

    assert coordinator.heartbeat("a", generation_id) == Alive(is_rebalancing=False)


def test_a_parked_rebalance_goes_on_when_the_last_missing_member_leaves() -> None:
    coordinator = Coordinator()
    coordinator.settle("a", "b")
    waiting = coordinator.join("c")
    coordinator.join(member_id="a")

    coordinator.leave("b")

    assert waiting.joined.generation_id == 3


# --- describing


def test_a_stable_group_shows_what_everyone_wants_and_has() -> None:
    coordinator = Coordinator()
    coordinator.settle("a", "b")

    group = coordinator.describe()

    assert (group.state, group.protocol_type, group.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [(m.member_id, m.metadata, m.assignment) for m in group.members] == [
        ("a", subscription("in"), b"a"),
        ("b", subscription("in"), b"b"),
    ]
    assert {(m.client_id, m.client_host) for m in group.members} == {("app", "/10.0.0.1")}


def test_a_rebalancing_group_does_not_show_what_may_have_changed() -> None:
    coordinator = Coordinator()
    coordinator.settle("a")
    coordinator.join("b")

    group = coordinator.describe()

    assert (group.state, group.protocol_name) == ("PreparingRebalance", "")
    assert [m.metadata for m in group.members] == [b"", b""]


def test_the_rebalance_timeout_is_the_longest_of_all_members() -> None:
    coordinator = Coordinator()
    coordinator.join("a", rebalance_ms=REBALANCE_MS * 2)
    coordinator.sync("a", 1, {"a": b"a"})
    waiting = coordinator.join("b")
    for _ in range(REBALANCE_MS // 5_000 + 1):
        coordinator.heartbeat("a", 1)
        coordinator.advance(ms=5_000)

    assert waiting.answer is None
