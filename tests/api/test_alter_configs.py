"""AlterConfigs over a real socket, in every version: what is not named goes back to its default."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from tests.api.in_process import InProcessBroker

VERSIONS = AlterConfigsRequest.VERSIONS
TOPIC = 2
BROKER = 4


def a_resource(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs],
    )


def replace(
    broker: InProcessBroker,
    *resources: AlterConfigsResource,
    version: int = 2,
    validate_only: bool = False,
) -> list[AlterConfigsResourceResponse]:
    request = AlterConfigsRequest(resources=resources, validate_only=validate_only)
    return list(broker.ask(request, version).responses)


def own(broker: InProcessBroker, name: str) -> dict[str, str | None]:
    return {
        config.name: config.value
        for config in broker.configs(TOPIC, name).values()
        if config.config_source == 1
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_all_settings_of_a_topic_are_replaced(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 1, {"retention.ms": "5", "segment.ms": "6"})

    (result,) = replace(broker, a_resource(TOPIC, "a", ("segment.ms", "7")), version=version)

    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert own(broker, "a") == {"segment.ms": "7"}


@pytest.mark.parametrize("version", VERSIONS)
def test_only_asking_changes_nothing(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 1, {"retention.ms": "5"})

    good, bad = a_resource(TOPIC, "a"), a_resource(TOPIC, "a", ("retention.ms", "x"))
    (accepted,) = replace(broker, good, version=version, validate_only=True)
    (refused,) = replace(broker, bad, version=version, validate_only=True)

    assert accepted.error_code == ErrorCode.NONE
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert own(broker, "a") == {"retention.ms": "5"}


def test_all_settings_of_a_broker_are_replaced(broker: InProcessBroker) -> None:
    replace(broker, a_resource(BROKER, "1", ("log.retention.ms", "5000")))
    replace(broker, a_resource(BROKER, "1", ("message.max.bytes", "6000")))

    configs = broker.configs(BROKER, "1")

    assert configs["log.retention.ms"].value is None
    assert (configs["message.max.bytes"].value, configs["message.max.bytes"].config_source) == (
        "6000",
        2,
    )


def test_resources_succeed_or_fail_one_by_one(broker: InProcessBroker) -> None:
    broker.create("a")
    broker.create("b")

    results = replace(
        broker,
        a_resource(TOPIC, "a", ("retention.ms", "5")),
        a_resource(TOPIC, "nowhere", ("retention.ms", "5")),
        a_resource(TOPIC, "b", ("retention.ms", None)),
        a_resource(32, "group"),
    )

    assert [result.error_code for result in results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert own(broker, "a") == {"retention.ms": "5"}


def test_a_resource_stands_in_a_request_once(broker: InProcessBroker) -> None:
    broker.create("a")

    results = replace(
        broker,
        a_resource(TOPIC, "a", ("retention.ms", "5")),
        a_resource(TOPIC, "a", ("segment.ms", "5")),
    )

    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert own(broker, "a") == {}
