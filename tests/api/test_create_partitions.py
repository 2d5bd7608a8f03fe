"""CreatePartitions over a real socket, in every version."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.api.in_process import InProcessBroker

VERSIONS = CreatePartitionsRequest.VERSIONS


def grow(
    broker: InProcessBroker,
    *wanted: tuple[str, int],
    version: int = 3,
    replicas: list[list[int]] | None = None,
    validate_only: bool = False,
) -> list[CreatePartitionsTopicResult]:
    assigned = None
    if replicas is not None:
        assigned = [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
    topics = [
        CreatePartitionsTopic(name=name, count=count, assignments=assigned)
        for name, count in wanted
    ]
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return list(broker.ask(request, version).results)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_grows_and_the_new_partitions_take_records(
    broker: InProcessBroker, version: int
) -> None:
    broker.create("a", 1, {"retention.ms": "-1"})
    broker.produce("a", 0, [b"1"])

    (result,) = grow(broker, ("a", 3), version=version)

    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert len(broker.describe("a").partitions) == 3
    assert [broker.produce("a", index, [b"2"]) for index in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_asking_changes_nothing(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 1)

    (result,) = grow(broker, ("a", 3), version=version, validate_only=True)

    assert result.error_code == ErrorCode.NONE
    assert len(broker.describe("a").partitions) == 1


@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_a_topic_never_shrinks(broker: InProcessBroker, count: int) -> None:
    broker.create("a", 2)

    (result,) = grow(broker, ("a", count))

    assert result.error_code == ErrorCode.INVALID_PARTITIONS


def test_each_topic_succeeds_or_fails_by_itself(broker: InProcessBroker) -> None:
    broker.create("a", 1)
    broker.create("b", 1)

    results = grow(broker, ("a", 2), ("nowhere", 2), ("b", 2), ("b", 3))

    assert {result.name: result.error_code for result in results} == {
        "a": ErrorCode.NONE,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.INVALID_REQUEST,
    }


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([[1], [1]], ErrorCode.NONE),
        ([[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], [2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], []], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], [1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_new_replicas_live_on_this_broker(
    broker: InProcessBroker, replicas: list[list[int]], code: int
) -> None:
    broker.create("a", 1)

    (result,) = grow(broker, ("a", 3), replicas=replicas)

    assert result.error_code == code


def test_the_new_count_survives_a_crash(broker: InProcessBroker) -> None:
    broker.create("a", 1)
    grow(broker, ("a", 4))

    broker.crash()

    assert len(broker.describe("a").partitions) == 4
