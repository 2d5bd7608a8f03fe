"""The table of a group: complete, and each cell answered by the code that reads it."""

import pytest

from oncelog.core.errors import BrokerError
from oncelog.core.groups.changes import GroupChanged
from oncelog.core.groups.commands import (
    Command,
    CommitOffsets,
    CommitTxnOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
    SyncGroup,
    TopicDeleted,
)
from oncelog.core.groups.group import ClassicGroup, GroupState
from oncelog.core.groups.machine import NEXT, Hold, Input, refusal
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode, error_code
from tests.core.groups.builders import GROUP, RANGE, Coordinator, a_group, a_member, protocols
from tests.core.shard_properties import assert_total

S = GroupState
PLACE = TopicPartition("in", 0)


def test_every_state_has_an_answer_to_every_input() -> None:
    assert_total(NEXT, Input, GroupState)


@pytest.mark.parametrize("hold", [Hold.REBALANCE, Hold.UNKNOWN, Hold.OCCUPIED, Hold.MISSING])
def test_a_hold_that_refuses_has_an_error(hold: Hold) -> None:
    assert isinstance(refusal(hold, a_group()), BrokerError)


def test_a_group_that_does_not_exist_is_never_kept() -> None:
    """DEAD is what an absent group answers; nothing but DeleteGroups leads there."""
    leading_there = {step for step, row in NEXT.items() if S.DEAD in row.values()}

    assert leading_there == {Input.DELETE}


GROUPS: dict[GroupState, ClassicGroup] = {
    S.EMPTY: a_group(state=S.EMPTY),
    S.PREPARING_REBALANCE: a_group(
        a_member("a"), a_member("b", join_ticket=900, instance="B"), state=S.PREPARING_REBALANCE
    ),
    S.COMPLETING_REBALANCE: a_group(
        a_member("a"), a_member("b", sync_ticket=901, instance="B"), state=S.COMPLETING_REBALANCE
    ),
    S.STABLE: a_group(a_member("a"), a_member("b", instance="B")),
}


def commands() -> list[Command]:
    shard = Coordinator()
    found: list[Command] = [
        shard.a_join(
            "new", member_id=member_id, instance=instance, offers=offers, needs_id=needs_id
        )
        for member_id, instance in (("", None), ("a", None), ("b", "B"), ("", "B"), ("x", None))
        for offers in (RANGE, protocols("range", "other"), protocols("other"))
        for needs_id in (False, True)
    ]
    found += [
        SyncGroup(
            ticket=990,
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=None,
            generation_id=generation_id,
            protocol_type=None,
            protocol_name=None,
            assignments=(),
        )
        for member_id in ("a", "b", "x")
        for generation_id in (3, 4)
    ]
    found += [
        Heartbeat(group_id=GROUP, member_id=member_id, group_instance_id=instance, generation_id=3)
        for member_id, instance in (("a", None), ("b", "B"), ("old", "B"), ("x", None))
    ]
    found += [
        LeaveGroup(
            group_id=GROUP, members=(LeavingMember(member_id=who, group_instance_id=instance),)
        )
        for who, instance in (("a", None), ("", "B"), ("b", "B"), ("x", None))
    ]
    found += [
        CommitOffsets(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=None,
            generation_id=generation_id,
            retention_ms=None,
            offsets=(OffsetToCommit(partition=PLACE, offset=1, leader_epoch=0, metadata=""),),
        )
        for member_id, generation_id in (("", None), ("a", 3), ("a", 2), ("a", None), ("x", 3))
    ]
    found += [
        CommitTxnOffsets(
            group_id=GROUP,
            producer_id=4_000,
            producer_epoch=0,
            member_id=member_id,
            group_instance_id=instance,
            generation_id=generation_id,
            offsets=(OffsetToCommit(partition=PLACE, offset=1, leader_epoch=0, metadata=""),),
        )
        for member_id, instance, generation_id in (
            ("", None, None),
            ("a", None, 3),
            ("a", None, 2),
            ("old", "B", 3),
            ("", "B", None),
            ("x", None, 3),
        )
    ]
    found += [
        FetchOffsets(group_id=GROUP, topics=None),
        DeleteOffsets(group_id=GROUP, partitions=(PLACE,)),
        DeleteGroups(group_ids=(GROUP,)),
        DescribeGroup(group_id=GROUP),
        ListGroups(),
        TopicDeleted(topic="in"),
    ]
    return found


@pytest.mark.parametrize("state", list(GroupState), ids=lambda state: state.name)
@pytest.mark.parametrize("number", range(len(commands())))
def test_a_command_is_answered_or_refused_in_every_state(state: GroupState, number: int) -> None:
    command = commands()[number]
    coordinator = Coordinator()
    if state in GROUPS:
        coordinator.shard.apply(GroupChanged(group=GROUPS[state]), offset=None)

    outcome: object
    try:
        outcome = coordinator.ask(command)
    except BrokerError as error:
        outcome = error_code(error)

    assert outcome is not None
    assert outcome is not ErrorCode.NONE
