import pytest

from tests.api.conftest import StartBroker
from tests.api.group_members import a_join, a_sync, find_coordinator, join, settle
from tests.api.in_process import InProcessBroker

ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25


@pytest.mark.parametrize("version", range(6))
def test_the_leader_gets_the_share_it_gave_itself(broker: InProcessBroker, version: int) -> None:
    find_coordinator(broker)
    joined = join(broker)

    response = broker.ask(a_sync(joined, {joined.member_id: b"all"}), version)

    assert (response.error_code, response.assignment) == (0, b"all")
    assert response.protocol_name == ("range" if version >= 5 else None)


def test_followers_wait_for_the_leader(start_broker: StartBroker) -> None:
    broker = start_broker({"group.initial.rebalance.delay.ms": "200"})
    find_coordinator(broker)
    joined = broker.ask_all([a_join(instance=f"i{number}") for number in range(3)], 9)
    shares = {each.member_id: each.member_id.encode() for each in joined}

    responses = broker.ask_all(
        [a_sync(each, shares if each.leader == each.member_id else None) for each in joined], 5
    )

    assert [r.assignment for r in responses] == [each.member_id.encode() for each in joined]


def test_a_stranger_and_an_old_generation_get_nothing(broker: InProcessBroker) -> None:
    joined = settle(broker)

    stranger = a_sync(joined)
    stranger.member_id = "stranger"
    late = a_sync(joined)
    late.generation_id -= 1

    assert broker.ask(stranger, 5).error_code == UNKNOWN_MEMBER_ID
    assert broker.ask(late, 5).error_code == ILLEGAL_GENERATION


def test_since_version_5_the_protocol_is_named(broker: InProcessBroker) -> None:
    joined = settle(broker)
    nameless = a_sync(joined)
    nameless.protocol_name = None
    other = a_sync(joined)
    other.protocol_name = "sticky"

    assert broker.ask(nameless, 5).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert broker.ask(other, 5).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert broker.ask(other, 4).error_code == 0


def test_an_assignment_survives_a_crash(broker: InProcessBroker) -> None:
    """101: the answer left only when the assignment was stored."""
    joined = settle(broker)

    broker.crash()

    assert broker.ask(a_sync(joined), 5).assignment == b"share"
