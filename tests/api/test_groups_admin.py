"""ListGroups, DescribeGroups, DeleteGroups and OffsetDelete: what an operator sees and removes."""

import pytest

from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.leave_group import LeaveGroupRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.api.conftest import StartBroker
from tests.api.group_members import (
    GROUP,
    TOPIC,
    commit,
    committed,
    find_coordinator,
    settle,
)
from tests.api.in_process import InProcessBroker
from tests.core.groups.builders import subscription

UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_NOT_AVAILABLE = 15
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_SUBSCRIBED_TO_TOPIC = 86


@pytest.fixture
def broker(start_broker: StartBroker) -> InProcessBroker:
    """One with two topics, a group with a member, and a simple group with an offset only."""
    broker = start_broker({})
    broker.create(TOPIC)
    broker.create("other")
    member = settle(broker)
    for topic in (TOPIC, "other"):
        assert commit(broker, 5, topic=topic, member=member) == 0
    assert commit(broker, 3, group_id="simple") == 0
    return broker


# --- ListGroups


@pytest.mark.parametrize("version", range(6))
def test_every_group_is_listed(broker: InProcessBroker, version: int) -> None:
    groups = {g.group_id: g for g in broker.ask(ListGroupsRequest(), version).groups}

    assert set(groups) == {GROUP, "simple"}
    assert groups[GROUP].protocol_type == "consumer"
    assert groups["simple"].protocol_type == ""
    assert groups[GROUP].group_state == ("Stable" if version >= 4 else "")
    assert groups["simple"].group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        (["Stable"], [], {GROUP}),
        (["stable", "EMPTY"], [], {GROUP, "simple"}),
        (["Dead"], [], set()),
        ([], ["Classic"], {GROUP, "simple"}),
        ([], ["consumer"], set()),
        (["Empty"], ["classic"], {"simple"}),
    ],
)
def test_groups_are_listed_by_state_and_type(
    broker: InProcessBroker, states: list[str], types: list[str], names: set[str]
) -> None:
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    assert {group.group_id for group in broker.ask(request, 5).groups} == names


def test_before_the_first_group_there_is_nothing_to_list(start_broker: StartBroker) -> None:
    response = start_broker({}).ask(ListGroupsRequest(), 5)

    assert (response.error_code, response.groups) == (0, [])


# --- DescribeGroups


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_described_with_its_members(broker: InProcessBroker, version: int) -> None:
    request = DescribeGroupsRequest(groups=[GROUP, "simple"], include_authorized_operations=True)

    stable, simple = broker.ask(request, version).groups

    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = stable.members
    assert member.client_host == "/127.0.0.1"
    assert (member.member_metadata, member.member_assignment) == (subscription(TOPIC), b"share")
    assert (simple.group_state, simple.members) == ("Empty", [])
    assert stable.authorized_operations == (3_400 if version >= 3 else -(1 << 31))


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_nobody_knows_is_dead(broker: InProcessBroker, version: int) -> None:
    (group,) = broker.ask(DescribeGroupsRequest(groups=["unknown"]), version).groups

    assert group.group_state == "Dead"
    assert group.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else 0)


# --- DeleteGroups


@pytest.mark.parametrize("version", range(3))
def test_a_group_is_deleted_when_nobody_is_in_it(broker: InProcessBroker, version: int) -> None:
    names = [GROUP, "simple", "unknown"]

    results = broker.ask(DeleteGroupsRequest(groups_names=names), version).results

    assert [(r.group_id, r.error_code) for r in results] == [
        (GROUP, NON_EMPTY_GROUP),
        ("simple", 0),
        ("unknown", GROUP_ID_NOT_FOUND),
    ]
    broker.crash()
    assert [group.group_id for group in broker.ask(ListGroupsRequest(), 5).groups] == [GROUP]


# --- OffsetDelete


def an_offset_delete(group_id: str, *topics: str, partition: int = 0) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
            for topic in topics
        ],
    )


def test_offsets_that_are_in_use_are_not_deleted(broker: InProcessBroker) -> None:
    response = broker.ask(an_offset_delete(GROUP, TOPIC, "other", "unknown"), 0)

    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert response.error_code == 0
    assert codes == [GROUP_SUBSCRIBED_TO_TOPIC, 0, UNKNOWN_TOPIC_OR_PARTITION]
    assert (committed(broker, TOPIC), committed(broker, "other")) == (5, -1)


def test_the_offsets_of_an_empty_group_are_deleted(broker: InProcessBroker) -> None:
    (group, _) = broker.ask(DescribeGroupsRequest(groups=[GROUP, "simple"]), 6).groups
    broker.ask(LeaveGroupRequest(group_id=GROUP, member_id=group.members[0].member_id), 2)

    response = broker.ask(an_offset_delete(GROUP, TOPIC), 0)

    assert response.topics[0].partitions[0].error_code == 0
    broker.crash()
    assert committed(broker, TOPIC) == -1


def test_an_unknown_group_has_no_offsets_to_delete(broker: InProcessBroker) -> None:
    assert broker.ask(an_offset_delete("unknown", TOPIC), 0).error_code == GROUP_ID_NOT_FOUND


def test_before_the_first_group_there_is_no_coordinator(start_broker: StartBroker) -> None:
    broker = start_broker({})

    (described,) = broker.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups
    (deleted,) = broker.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results

    assert described.error_code == deleted.error_code == COORDINATOR_NOT_AVAILABLE
    find_coordinator(broker)
    (described,) = broker.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups
    assert described.error_code == GROUP_ID_NOT_FOUND
