import pytest

from oncelog.wire.messages.heartbeat import HeartbeatRequest
from tests.api.group_members import a_heartbeat, a_join, heartbeat, settle
from tests.api.in_process import InProcessBroker

NOT_COORDINATOR_YET = 15
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27


@pytest.mark.parametrize("version", range(5))
def test_a_member_is_heard(broker: InProcessBroker, version: int) -> None:
    assert heartbeat(broker, settle(broker), version) == 0


def test_a_rebalance_is_announced(broker: InProcessBroker) -> None:
    """The second member's join is parked until the first one has joined again."""
    first = settle(broker)
    newcomer = broker.ask(a_join(), 9)

    responses = broker.ask_all(
        [a_join(newcomer.member_id), a_heartbeat(first), a_join(first.member_id)], 3
    )

    assert [response.error_code for response in responses] == [0, REBALANCE_IN_PROGRESS, 0]


def test_a_stranger_is_told_so(broker: InProcessBroker) -> None:
    settle(broker)

    for group_id in ("orders", "unknown"):
        request = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="x")
        assert broker.ask(request, 4).error_code == UNKNOWN_MEMBER_ID


def test_before_the_first_group_there_is_no_coordinator(broker: InProcessBroker) -> None:
    request = HeartbeatRequest(group_id="orders", generation_id=1, member_id="x")

    assert broker.ask(request, 4).error_code == NOT_COORDINATOR_YET
