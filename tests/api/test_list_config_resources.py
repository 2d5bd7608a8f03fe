"""ListConfigResources over a real socket, in both versions."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.api.in_process import InProcessBroker

TOPIC = 2
BROKER = 4


def test_version_0_asks_for_client_metrics_of_which_there_are_none(
    broker: InProcessBroker,
) -> None:
    broker.create("a")

    response = broker.ask(ListConfigResourcesRequest(), 0)

    assert (response.error_code, list(response.config_resources)) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], [("1", BROKER), ("a", TOPIC), ("b", TOPIC)]),
        ([TOPIC], [("a", TOPIC), ("b", TOPIC)]),
        ([BROKER, 8, 16, 32], [("1", BROKER)]),
    ],
)
def test_version_1_lists_what_has_settings(
    broker: InProcessBroker, kinds: list[int], expected: list[tuple[str, int]]
) -> None:
    broker.create("b")
    broker.create("a")

    response = broker.ask(ListConfigResourcesRequest(resource_types=kinds), 1)

    assert [
        (each.resource_name, each.resource_type) for each in response.config_resources
    ] == expected


def test_an_unknown_kind_is_refused(broker: InProcessBroker) -> None:
    response = broker.ask(ListConfigResourcesRequest(resource_types=[TOPIC, 99]), 1)

    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
