"""ElectLeaders over a real socket, in every version."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.api.in_process import InProcessBroker

VERSIONS = ElectLeadersRequest.VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("election_type", [0, 1])
def test_the_only_replica_leads_already(
    broker: InProcessBroker, version: int, election_type: int
) -> None:
    broker.create("a", 2)
    wanted = [
        TopicPartitions(topic="a", partitions=[0, 9]),
        TopicPartitions(topic="nowhere", partitions=[0]),
    ]

    response = broker.ask(
        ElectLeadersRequest(election_type=election_type, topic_partitions=wanted), version
    )

    assert response.error_code == ErrorCode.NONE
    assert [
        (topic.topic, each.partition_id, each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ] == [
        ("a", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ("a", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_for_all_partitions_there_is_nothing_to_say(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 2)

    response = broker.ask(ElectLeadersRequest(topic_partitions=None), version)

    (topic,) = response.replica_election_results
    assert (response.error_code, topic.topic, list(topic.partition_result)) == (0, "a", [])


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_kind_of_election_is_refused(broker: InProcessBroker, version: int) -> None:
    wanted = [TopicPartitions(topic="a", partitions=[0])]

    response = broker.ask(ElectLeadersRequest(election_type=7, topic_partitions=wanted), version)

    assert response.error_code == ErrorCode.INVALID_REQUEST
