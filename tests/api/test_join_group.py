import pytest

from tests.api.conftest import StartBroker
from tests.api.group_members import a_join, find_coordinator, heartbeat, join, settle
from tests.api.in_process import InProcessBroker

COORDINATOR_NOT_AVAILABLE = 15
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82


@pytest.mark.parametrize("version", range(10))
def test_the_first_member_leads_the_first_generation(broker: InProcessBroker, version: int) -> None:
    find_coordinator(broker)

    joined = join(broker, version)

    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.leader == joined.member_id == joined.members[0].member_id


@pytest.mark.parametrize("version", range(4, 10))
def test_a_newcomer_is_sent_away_to_come_back_with_its_id(
    broker: InProcessBroker, version: int
) -> None:
    find_coordinator(broker)

    response = broker.ask(a_join(), version)

    assert (response.error_code, response.generation_id) == (MEMBER_ID_REQUIRED, -1)
    assert len(response.member_id.rsplit("-", 5)) == 6, "the client id and a uuid"


def test_a_static_member_is_named_after_its_instance(broker: InProcessBroker) -> None:
    find_coordinator(broker)

    joined = join(broker, 9, instance="till-1")

    assert joined.member_id.startswith("till-1-")


def test_members_that_join_at_the_same_time_share_a_generation(start_broker: StartBroker) -> None:
    broker = start_broker({"group.initial.rebalance.delay.ms": "200"})
    find_coordinator(broker)
    requests = [a_join(instance=f"i{number}") for number in range(3)]

    responses = broker.ask_all(requests, 9)

    assert {response.generation_id for response in responses} == {1}
    assert len({response.leader for response in responses}) == 1
    assert sorted(len(response.members) for response in responses) == [0, 0, 3]


def test_a_second_member_causes_a_rebalance(broker: InProcessBroker) -> None:
    first = settle(broker)
    response = broker.ask(a_join(), 9)
    assert response.error_code == MEMBER_ID_REQUIRED

    again = [a_join(response.member_id), a_join(first.member_id)]
    joined = broker.ask_all(again, 9)

    assert [each.generation_id for each in joined] == [2, 2]
    assert heartbeat(broker, first) == 22


def test_a_static_leader_that_restarts_skips_the_assignment(broker: InProcessBroker) -> None:
    first = settle(broker, instance="till")

    again = join(broker, 9, instance="till")

    assert (again.generation_id, again.skip_assignment) == (first.generation_id, True)
    assert heartbeat(broker, first, instance="till") == FENCED_INSTANCE_ID
    assert heartbeat(broker, again, instance="till") == 0


@pytest.mark.parametrize("version", [0, 6, 9])
def test_an_error_has_no_generation(broker: InProcessBroker, version: int) -> None:
    find_coordinator(broker)

    response = broker.ask(a_join("stranger"), version)

    assert (response.error_code, response.generation_id) == (UNKNOWN_MEMBER_ID, -1)
    assert (response.protocol_name or "", response.members) == ("", [])


def test_limits_of_the_session_timeout(broker: InProcessBroker) -> None:
    find_coordinator(broker)

    assert broker.ask(a_join(session_ms=5_999), 9).error_code == INVALID_SESSION_TIMEOUT


def test_without_a_topic_of_offsets_there_is_no_coordinator(broker: InProcessBroker) -> None:
    assert broker.ask(a_join(), 9).error_code == COORDINATOR_NOT_AVAILABLE


def test_a_generation_survives_a_crash(broker: InProcessBroker) -> None:
    """101: what was answered is stored."""
    first = settle(broker)

    broker.crash()

    assert heartbeat(broker, first) == 0
    assert broker.ask(a_join(first.member_id), 9).generation_id == first.generation_id + 1


def test_a_crash_between_join_and_sync_never_repeats_a_generation(broker: InProcessBroker) -> None:
    """101."""
    find_coordinator(broker)
    first = join(broker, 9)

    broker.crash()

    assert heartbeat(broker, first) == REBALANCE_IN_PROGRESS
    assert broker.ask(a_join(first.member_id), 9).generation_id == first.generation_id + 1


def test_the_group_needs_a_name(broker: InProcessBroker) -> None:
    find_coordinator(broker)

    assert broker.ask(a_join(group_id=""), 9).error_code == 24
