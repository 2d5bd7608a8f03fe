import pytest

from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.api.group_members import GROUP, find_coordinator, heartbeat, settle
from tests.api.in_process import InProcessBroker

UNKNOWN_MEMBER_ID = 25
FENCED_INSTANCE_ID = 82


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves(broker: InProcessBroker, version: int) -> None:
    joined = settle(broker)
    request = LeaveGroupRequest(group_id=GROUP, member_id=joined.member_id)

    assert broker.ask(request, version).error_code == 0
    assert broker.ask(request, version).error_code == UNKNOWN_MEMBER_ID
    assert heartbeat(broker, joined) == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_several_members_leave_and_each_has_its_answer(
    broker: InProcessBroker, version: int
) -> None:
    settle(broker, instance="till")
    members = [
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id="someone-else", group_instance_id="till"),
        MemberIdentity(member_id="", group_instance_id="till"),
    ]

    response = broker.ask(LeaveGroupRequest(group_id=GROUP, members=members), version)

    assert response.error_code == 0
    assert [(m.group_instance_id, m.error_code) for m in response.members] == [
        (None, UNKNOWN_MEMBER_ID),
        ("till", FENCED_INSTANCE_ID),
        ("till", 0),
    ]


@pytest.mark.parametrize("version", range(6))
def test_leaving_a_group_that_does_not_exist(broker: InProcessBroker, version: int) -> None:
    find_coordinator(broker)
    members = [MemberIdentity(member_id="x")]
    request = LeaveGroupRequest(group_id=GROUP, member_id="x", members=members)

    response = broker.ask(request, version)

    codes = [response.error_code] if version < 3 else [m.error_code for m in response.members]
    assert codes == [UNKNOWN_MEMBER_ID]
