"""AlterPartitionReassignments and ListPartitionReassignments over a real socket."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.api.in_process import InProcessBroker


@pytest.mark.parametrize("version", AlterPartitionReassignmentsRequest.VERSIONS)
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("a", 0, [1], ErrorCode.NONE),
        ("a", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("a", 0, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 0, [1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 9, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_replica_is_where_it_can_be(
    broker: InProcessBroker,
    version: int,
    topic: str,
    index: int,
    replicas: list[int] | None,
    code: int,
) -> None:
    broker.create("a")
    wanted = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[wanted])]
    )

    response = broker.ask(request, version)

    assert response.error_code == ErrorCode.NONE
    assert [each.error_code for each in response.responses[0].partitions] == [code]


@pytest.mark.parametrize(
    "topics", [None, [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0])]]
)
def test_nothing_is_being_moved(
    broker: InProcessBroker, topics: list[ListPartitionReassignmentsTopics] | None
) -> None:
    broker.create("a")

    response = broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)

    assert (response.error_code, list(response.topics)) == (ErrorCode.NONE, [])
