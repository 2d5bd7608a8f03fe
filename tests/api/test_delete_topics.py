"""DeleteTopics over a real socket, in every version."""

from uuid import UUID, uuid4

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.api.conftest import StartBroker
from tests.api.in_process import InProcessBroker

VERSIONS = DeleteTopicsRequest.VERSIONS


def delete(
    broker: InProcessBroker, *wanted: str | UUID, version: int = 6
) -> list[DeletableTopicResult]:
    states = [
        DeleteTopicState(topic_id=each) if isinstance(each, UUID) else DeleteTopicState(name=each)
        for each in wanted
    ]
    names = [each for each in wanted if isinstance(each, str)]
    request = DeleteTopicsRequest(topics=states, topic_names=names, timeout_ms=1000)
    return list(broker.ask(request, version).responses)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_goes_with_its_records(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 2)
    broker.produce("a", 0, [b"1"])

    (result,) = delete(broker, "a", version=version)

    assert (result.name, result.error_code) == ("a", ErrorCode.NONE)
    assert broker.describe("a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [path for path in broker.data_dir.iterdir() if path.name.startswith("a-")] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_is_refused(broker: InProcessBroker, version: int) -> None:
    (result,) = delete(broker, "nowhere", version=version)

    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted_by_its_id(broker: InProcessBroker) -> None:
    broker.create("a")
    topic_id = broker.describe("a").topic_id

    known, unknown = delete(broker, topic_id, uuid4())

    assert (known.name, known.topic_id, known.error_code) == ("a", topic_id, ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_topic_that_is_named_twice_stays(broker: InProcessBroker) -> None:
    broker.create("a")
    topic_id = broker.describe("a").topic_id

    results = delete(broker, "a", topic_id)

    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST]
    assert broker.describe("a").error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "state", [DeleteTopicState(), DeleteTopicState(name="a", topic_id=uuid4())]
)
def test_a_topic_has_a_name_or_an_id(broker: InProcessBroker, state: DeleteTopicState) -> None:
    (result,) = broker.ask(DeleteTopicsRequest(topics=[state]), 6).responses

    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_can_be_told_to_delete_no_topics(start_broker: StartBroker, version: int) -> None:
    broker = start_broker({"delete.topic.enable": "false"})
    broker.create("a")

    (result,) = delete(broker, "a", version=version)

    old = version < 3
    assert result.error_code == (
        ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
    )
    assert broker.describe("a").error_code == ErrorCode.NONE


def test_internal_topics_stay(broker: InProcessBroker) -> None:
    broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]))

    (result,) = delete(broker, "__consumer_offsets")

    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_of_the_same_name_is_another_one(broker: InProcessBroker) -> None:
    broker.create("a")
    broker.produce("a", 0, [b"1", b"2"])
    old = broker.describe("a").topic_id
    delete(broker, "a")
    broker.create("a")

    by_old_id = broker.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=old)])
    ).topics[0]

    assert broker.describe("a").topic_id != old
    assert by_old_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.produce("a", 0, [b"3"]) == 0


def test_a_deletion_survives_a_crash(broker: InProcessBroker) -> None:
    broker.create("a", 3)
    broker.produce("a", 1, [b"1"])
    delete(broker, "a")

    broker.crash()

    assert broker.describe("a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_of_two_clients_that_delete_one_topic_one_succeeds(broker: InProcessBroker) -> None:
    broker.create("a")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])

    replies = broker.ask_all([request] * 3)

    codes = [reply.responses[0].error_code for reply in replies]
    assert codes.count(ErrorCode.NONE) == 1
