import pytest

from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.api.in_process import InProcessBroker

GROUP, TRANSACTION, SHARE = 0, 1, 2
INVALID_REQUEST = 42


@pytest.mark.parametrize("version", range(4))
def test_this_broker_coordinates_every_group(broker: InProcessBroker, version: int) -> None:
    response = broker.ask(FindCoordinatorRequest(key="orders"), version)

    assert (response.error_code, response.host, response.port) == (0, "127.0.0.1", broker.port)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_several_keys_are_answered_each(broker: InProcessBroker, version: int) -> None:
    keys = ["a", "b"]

    response = broker.ask(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=keys), version)

    assert [c.key for c in response.coordinators] == keys
    assert {(c.error_code, c.port) for c in response.coordinators} == {(0, broker.port)}


def test_looking_for_a_group_makes_the_topic_of_offsets(broker: InProcessBroker) -> None:
    assert broker.describe("__consumer_offsets").error_code != 0

    broker.ask(FindCoordinatorRequest(key="orders"), 0)

    topic = broker.describe("__consumer_offsets")
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 50)


def test_looking_for_a_transactional_id_makes_no_topic_of_offsets(broker: InProcessBroker) -> None:
    broker.ask(FindCoordinatorRequest(key="t", key_type=TRANSACTION), 1)

    assert broker.describe("__consumer_offsets").error_code != 0


@pytest.mark.parametrize("key_type", [SHARE, 9, -1])
def test_a_type_that_nobody_coordinates_is_refused_for_each_key(
    broker: InProcessBroker, key_type: int
) -> None:
    response = broker.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a"]), 6)

    (coordinator,) = response.coordinators
    assert (coordinator.error_code, coordinator.node_id) == (INVALID_REQUEST, -1)
    assert broker.ask(FindCoordinatorRequest(key_type=key_type, key="a"), 3).error_code == 42
