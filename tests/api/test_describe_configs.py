"""DescribeConfigs over a real socket, in every version."""

from collections.abc import Sequence

import pytest

from oncelog.core.topic_config import TOPIC_SETTINGS
from oncelog.runtime.config import BROKER_SETTINGS
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from tests.api.conftest import StartBroker
from tests.api.in_process import InProcessBroker

VERSIONS = DescribeConfigsRequest.VERSIONS
TOPIC = 2
BROKER = 4
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7


def describe(
    broker: InProcessBroker,
    kind: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    result: DescribeConfigsResult = broker.ask(request, version).results[0]
    return result


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_shows_every_setting(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 1, {"retention.ms": "5"})

    result = describe(broker, TOPIC, "a", version=version)

    found = {config.name: config for config in result.configs}
    assert sorted(found) == sorted(TOPIC_SETTINGS)
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("5", 1)
    assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == (
        "1073741824",
        5,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_shows_every_setting(start_broker: StartBroker, version: int) -> None:
    broker = start_broker({"num.partitions": "3"})

    result = describe(broker, BROKER, "1", version=version)

    found = {config.name: config for config in result.configs}
    assert sorted(found) == sorted(BROKER_SETTINGS)
    assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("3", 4)
    assert found["num.partitions"].read_only
    assert found["log.retention.hours"].read_only
    assert not found["log.retention.ms"].read_only


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_named_settings_are_shown(broker: InProcessBroker, version: int) -> None:
    broker.create("a")

    result = describe(broker, TOPIC, "a", ["segment.ms", "nonsense"], version=version)

    assert [config.name for config in result.configs] == ["segment.ms"]


def test_an_empty_list_of_names_asks_for_all(broker: InProcessBroker) -> None:
    broker.create("a")

    assert len(describe(broker, TOPIC, "a", []).configs) == len(TOPIC_SETTINGS)


def test_synonyms_come_when_asked_for_and_in_the_order_that_counts(
    start_broker: StartBroker,
) -> None:
    broker = start_broker({"log.retention.minutes": "7", "message.max.bytes": "3000"})
    broker.create("a", 1, {"max.message.bytes": "2000"})

    size, age = describe(
        broker, TOPIC, "a", ["max.message.bytes", "retention.ms"], synonyms=True
    ).configs

    assert [(each.name, each.value, each.source) for each in size.synonyms] == [
        ("max.message.bytes", "2000", 1),
        ("message.max.bytes", "3000", 4),
        ("message.max.bytes", "1048588", 5),
    ]
    assert (age.value, age.config_source) == ("420000", 4)
    assert [(each.name, each.value, each.source) for each in age.synonyms] == [
        ("log.retention.minutes", "7", 4),
        ("log.retention.hours", "168", 5),
    ]
    plain = describe(broker, TOPIC, "a", ["max.message.bytes"]).configs[0]
    assert list(plain.synonyms) == []


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_and_types(broker: InProcessBroker, version: int) -> None:
    broker.create("a")

    result = describe(broker, TOPIC, "a", version=version, documentation=True)

    types = {config.name: config.config_type for config in result.configs}
    assert all(config.documentation for config in result.configs)
    assert types["preallocate"] == BOOLEAN
    assert types["compression.type"] == STRING
    assert types["segment.bytes"] == INT
    assert types["retention.ms"] == LONG
    assert types["min.cleanable.dirty.ratio"] == DOUBLE
    assert types["cleanup.policy"] == LIST
    without = describe(broker, TOPIC, "a", version=version)
    assert not any(config.documentation for config in without.configs)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (99, "a", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_here_is_refused(
    broker: InProcessBroker, version: int, kind: int, name: str, code: int
) -> None:
    result = describe(broker, kind, name, version=version)

    assert result.error_code == code
    assert result.error_message
    assert (result.resource_type, result.resource_name) == (kind, name)


def test_without_a_name_brokers_show_what_was_set_for_all_of_them(
    broker: InProcessBroker,
) -> None:
    result = describe(broker, BROKER, "")

    assert (result.error_code, list(result.configs)) == (ErrorCode.NONE, [])
