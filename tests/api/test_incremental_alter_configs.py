"""IncrementalAlterConfigs over a real socket, in every version."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.api.conftest import StartBroker
from tests.api.in_process import InProcessBroker, a_batch

VERSIONS = IncrementalAlterConfigsRequest.VERSIONS
TOPIC = 2
BROKER = 4
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[int, str, str | None]


def a_request(
    kind: int, name: str, *changes: Change, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, key, value in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def alter(
    broker: InProcessBroker,
    kind: int,
    name: str,
    *changes: Change,
    version: int = 1,
    validate_only: bool = False,
) -> AlterConfigsResourceResponse:
    request = a_request(kind, name, *changes, validate_only=validate_only)
    result: AlterConfigsResourceResponse = broker.ask(request, version).responses[0]
    return result


def value(broker: InProcessBroker, kind: int, name: str, key: str) -> tuple[str | None, int]:
    config = broker.configs(kind, name)[key]
    return config.value, config.config_source


@pytest.mark.parametrize("version", VERSIONS)
def test_a_setting_is_set_and_deleted(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 1, {"segment.ms": "6"})

    result = alter(broker, TOPIC, "a", (SET, "retention.ms", "5"), version=version)

    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert value(broker, TOPIC, "a", "retention.ms") == ("5", 1)
    assert value(broker, TOPIC, "a", "segment.ms") == ("6", 1)
    alter(broker, TOPIC, "a", (DELETE, "retention.ms", None), version=version)
    assert value(broker, TOPIC, "a", "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_grows_and_shrinks_from_the_value_in_force(
    broker: InProcessBroker, version: int
) -> None:
    broker.create("a")

    alter(broker, TOPIC, "a", (APPEND, "cleanup.policy", "compact"), version=version)
    assert value(broker, TOPIC, "a", "cleanup.policy") == ("compact,delete", 1)

    alter(broker, TOPIC, "a", (APPEND, "cleanup.policy", "compact"), version=version)
    assert value(broker, TOPIC, "a", "cleanup.policy") == ("compact,delete", 1)

    alter(broker, TOPIC, "a", (SUBTRACT, "cleanup.policy", "delete"), version=version)
    assert value(broker, TOPIC, "a", "cleanup.policy") == ("compact", 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        ((SET, "retention.ms", "x"), ErrorCode.INVALID_CONFIG),
        ((SET, "nonsense", "5"), ErrorCode.INVALID_CONFIG),
        ((DELETE, "nonsense", None), ErrorCode.NONE),
        ((APPEND, "retention.ms", "5"), ErrorCode.INVALID_CONFIG),
        ((SUBTRACT, "retention.ms", "5"), ErrorCode.INVALID_CONFIG),
        ((APPEND, "nonsense", "5"), ErrorCode.INVALID_CONFIG),
        ((9, "retention.ms", "5"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    broker: InProcessBroker, change: Change, code: int
) -> None:
    broker.create("a")

    assert alter(broker, TOPIC, "a", change).error_code == code


def test_of_two_changes_of_a_resource_both_are_made_or_none(broker: InProcessBroker) -> None:
    broker.create("a")

    result = alter(broker, TOPIC, "a", (SET, "retention.ms", "5"), (SET, "segment.ms", "x"))

    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert value(broker, TOPIC, "a", "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_asking_changes_nothing(broker: InProcessBroker, version: int) -> None:
    broker.create("a")

    for kind, name, key in ((TOPIC, "a", "retention.ms"), (BROKER, "1", "log.retention.ms")):
        good = alter(broker, kind, name, (SET, key, "5"), version=version, validate_only=True)
        bad = alter(broker, kind, name, (SET, key, "x"), version=version, validate_only=True)

        assert good.error_code == ErrorCode.NONE
        assert bad.error_code != ErrorCode.NONE
    assert value(broker, TOPIC, "a", "retention.ms") == ("604800000", 5)


def test_no_change_is_lost_when_clients_change_one_topic_at_once(broker: InProcessBroker) -> None:
    broker.create("a")
    keys = ["retention.ms", "segment.ms", "flush.ms", "delete.retention.ms"]

    broker.ask_all([a_request(TOPIC, "a", (SET, key, "55")) for key in keys])

    assert [value(broker, TOPIC, "a", key) for key in keys] == [("55", 1)] * 4


def test_a_new_limit_holds_for_the_next_batch(broker: InProcessBroker) -> None:
    broker.create("a")

    alter(broker, TOPIC, "a", (SET, "max.message.bytes", "100"))

    assert produce_code(broker, "a", b"x" * 200) == ErrorCode.MESSAGE_TOO_LARGE


# --- settings of the broker -----------------------------------------------------------------


def produce_code(broker: InProcessBroker, topic: str, content: bytes) -> int:
    data = PartitionProduceData(index=0, records=a_batch([content]))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return int(broker.ask(request, 12).responses[0].partition_responses[0].error_code)


def test_a_default_of_the_broker_holds_for_its_topics_at_once(broker: InProcessBroker) -> None:
    broker.create("a")
    broker.create("b", 1, {"max.message.bytes": "10000"})

    alter(broker, BROKER, "", (SET, "message.max.bytes", "100"))

    assert value(broker, TOPIC, "a", "max.message.bytes") == ("100", 3)
    assert produce_code(broker, "a", b"x" * 200) == ErrorCode.MESSAGE_TOO_LARGE
    assert produce_code(broker, "b", b"x" * 200) == ErrorCode.NONE
    broker.create("c")
    assert produce_code(broker, "c", b"x" * 200) == ErrorCode.MESSAGE_TOO_LARGE


def test_one_broker_is_set_before_all_and_both_before_the_start(start_broker: StartBroker) -> None:
    broker = start_broker({"message.max.bytes": "2000"})
    alter(broker, BROKER, "", (SET, "message.max.bytes", "3000"))
    alter(broker, BROKER, "1", (SET, "message.max.bytes", "4000"))

    assert value(broker, BROKER, "1", "message.max.bytes") == ("4000", 2)
    alter(broker, BROKER, "1", (DELETE, "message.max.bytes", None))
    assert value(broker, BROKER, "1", "message.max.bytes") == ("3000", 3)
    alter(broker, BROKER, "", (DELETE, "message.max.bytes", None))
    assert value(broker, BROKER, "1", "message.max.bytes") == ("2000", 4)


def test_changed_settings_of_a_broker_survive_a_restart_and_a_crash(
    broker: InProcessBroker,
) -> None:
    broker.create("a")
    alter(broker, BROKER, "1", (SET, "message.max.bytes", "100"))
    alter(broker, BROKER, "", (SET, "producer.id.expiration.ms", "7000"))

    broker.restart()
    broker.crash()

    assert value(broker, BROKER, "1", "message.max.bytes") == ("100", 2)
    assert value(broker, BROKER, "1", "producer.id.expiration.ms") == ("7000", 3)
    assert value(broker, TOPIC, "a", "max.message.bytes") == ("100", 2)
    assert produce_code(broker, "a", b"x" * 200) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "change",
    [
        (SET, "node.id", "5"),
        (SET, "num.partitions", "5"),
        (SET, "log.retention.hours", "5"),
        (SET, "nonsense", "5"),
        (SET, "retention.ms", "5"),
        (SET, "log.retention.ms", "x"),
        (SET, "log.retention.ms", "0"),
        (APPEND, "node.id", "5"),
    ],
)
@pytest.mark.parametrize("name", ["1", ""])
def test_what_cannot_change_while_the_broker_runs_is_refused_with_a_sentence(
    broker: InProcessBroker, name: str, change: Change
) -> None:
    result = alter(broker, BROKER, name, change)

    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert change[1] in (result.error_message or "")


def test_a_default_that_a_topic_contradicts_is_refused(broker: InProcessBroker) -> None:
    broker.create("a", 1, {"min.compaction.lag.ms": "1000"})

    result = alter(broker, BROKER, "", (SET, "log.cleaner.max.compaction.lag.ms", "500"))

    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "topic a" in (result.error_message or "")


def test_another_broker_is_not_ours_to_set(broker: InProcessBroker) -> None:
    result = alter(broker, BROKER, "2", (SET, "message.max.bytes", "100"))

    assert result.error_code == ErrorCode.INVALID_REQUEST
