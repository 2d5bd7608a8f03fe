"""CreateTopics over a real socket, in every version."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from tests.api.conftest import StartBroker
from tests.api.in_process import InProcessBroker

VERSIONS = CreateTopicsRequest.VERSIONS


def a_topic(name: str = "a", **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=2,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(
    broker: InProcessBroker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return list(broker.ask(request, version).topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_created(broker: InProcessBroker, version: int) -> None:
    (result,) = create(broker, a_topic(), version=version)

    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert len(broker.describe("a").partitions) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_exists_is_refused(broker: InProcessBroker, version: int) -> None:
    create(broker, a_topic())

    (result,) = create(broker, a_topic(), version=version)

    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert result.error_message


@pytest.mark.parametrize("version", [5, 6, 7])
def test_the_answer_says_what_the_topic_got(broker: InProcessBroker, version: int) -> None:
    (result,) = create(broker, a_topic(retention_ms="5"), version=version)

    found = {config.name: (config.value, config.config_source) for config in result.configs or ()}
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert found["retention.ms"] == ("5", 1)
    assert found["cleanup.policy"] == ("delete", 5)


def test_the_answer_names_the_id_of_the_topic(broker: InProcessBroker) -> None:
    (result,) = create(broker, a_topic())

    assert result.topic_id == broker.describe("a").topic_id


def test_left_to_the_broker_a_topic_gets_its_defaults(start_broker: StartBroker) -> None:
    broker = start_broker({"num.partitions": "3"})

    create(broker, CreatableTopic(name="a", num_partitions=-1, replication_factor=-1))

    assert len(broker.describe("a").partitions) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_only_asking_changes_nothing(broker: InProcessBroker, version: int) -> None:
    (result,) = create(broker, a_topic(), version=version, validate_only=True)

    assert result.error_code == ErrorCode.NONE
    assert broker.describe("a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_each_topic_succeeds_or_fails_by_itself(broker: InProcessBroker) -> None:
    results = create(broker, a_topic("a"), a_topic("not a name"), a_topic("b"))

    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.NONE),
        ("not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", ErrorCode.NONE),
    ]


def test_a_name_that_stands_twice_is_refused_once(broker: InProcessBroker) -> None:
    results = create(broker, a_topic("a"), a_topic("b"), a_topic("a"))

    assert [(result.name, result.error_code) for result in results] == [
        ("b", ErrorCode.NONE),
        ("a", ErrorCode.INVALID_REQUEST),
    ]


def test_an_existing_topic_is_told_before_anything_else_is_wrong(broker: InProcessBroker) -> None:
    create(broker, a_topic("a"))

    (result,) = create(broker, CreatableTopic(name="a", num_partitions=0, replication_factor=3))

    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_made_by_the_broker_alone(broker: InProcessBroker, name: str) -> None:
    (result,) = create(broker, a_topic(name))

    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_replicas_may_be_assigned_to_this_broker_alone(broker: InProcessBroker) -> None:
    def assigned(name: str, broker_id: int) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=1, broker_ids=[1]),
                CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id]),
            ],
        )

    here, elsewhere = create(broker, assigned("here", 1), assigned("elsewhere", 2))

    assert (here.error_code, here.num_partitions) == (ErrorCode.NONE, 2)
    assert elsewhere.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_more_partitions_than_the_broker_holds_are_refused(start_broker: StartBroker) -> None:
    broker = start_broker({"oncelog.partitions.max": "3"})
    broker.create("a", 2)

    (result,) = create(broker, a_topic("b"))

    assert result.error_code == ErrorCode.POLICY_VIOLATION


def test_a_bad_setting_is_explained(broker: InProcessBroker) -> None:
    (result,) = create(broker, a_topic(retentoin_ms="5"))

    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "retention.ms" in (result.error_message or "")


def test_of_two_clients_that_create_one_topic_one_succeeds(broker: InProcessBroker) -> None:
    replies = broker.ask_all([CreateTopicsRequest(topics=[a_topic()])] * 4)

    codes = sorted(reply.topics[0].error_code for reply in replies)
    assert codes == [ErrorCode.NONE, *[ErrorCode.TOPIC_ALREADY_EXISTS] * 3]


def test_a_topic_and_its_settings_survive_a_crash(broker: InProcessBroker) -> None:
    (made,) = create(broker, a_topic(retention_ms="5"))

    broker.crash()

    found = broker.describe("a")
    assert (found.topic_id, len(found.partitions)) == (made.topic_id, 2)
    assert broker.configs(2, "a")["retention.ms"].value == "5"
