from uuid import UUID

import pytest

from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.api.conftest import StartBroker
from tests.api.group_members import (
    GROUP,
    TOPIC,
    a_commit,
    commit,
    committed,
    find_coordinator,
    settle,
)
from tests.api.in_process import InProcessBroker

UNKNOWN = 3  # topic or partition
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_NOT_AVAILABLE = 15
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
GROUP_ID_NOT_FOUND = 69
UNKNOWN_TOPIC_ID = 100


@pytest.fixture
def broker(start_broker: StartBroker) -> InProcessBroker:
    """One with a topic, whose groups have a coordinator."""
    broker = start_broker({})
    broker.create(TOPIC, partitions=2)
    find_coordinator(broker)
    return broker


@pytest.mark.parametrize("version", range(2, 10))
def test_a_member_commits(broker: InProcessBroker, version: int) -> None:
    member = settle(broker)

    response = broker.ask(a_commit(7, member=member), version)

    assert response.topics[0].partitions[0].error_code == 0
    assert committed(broker) == 7


def test_a_topic_is_named_by_its_id(broker: InProcessBroker) -> None:
    topic_id = broker.describe(TOPIC).topic_id
    request = a_commit(7)
    request.topics[0].topic_id = topic_id

    response = broker.ask(request, 10)

    assert response.topics[0].topic_id == topic_id
    assert response.topics[0].partitions[0].error_code == 0
    assert committed(broker) == 7


def test_an_id_that_no_topic_has_is_refused(broker: InProcessBroker) -> None:
    request = a_commit(7)
    request.topics[0].topic_id = UUID(int=77)

    assert broker.ask(request, 10).topics[0].partitions[0].error_code == UNKNOWN_TOPIC_ID


def test_each_partition_has_an_answer_of_its_own(broker: InProcessBroker) -> None:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_metadata=metadata
        )
        for index, metadata in ((0, None), (1, "x" * 5_000), (2, ""), (-1, ""))
    ]
    topics = [
        OffsetCommitRequestTopic(name=name, partitions=partitions)
        for name in (TOPIC, "unknown", "__cluster_metadata")
    ]

    response = broker.ask(OffsetCommitRequest(group_id=GROUP, member_id="", topics=topics), 9)

    codes = [[p.error_code for p in topic.partitions] for topic in response.topics]
    assert codes == [[0, OFFSET_METADATA_TOO_LARGE, UNKNOWN, UNKNOWN], [UNKNOWN] * 4, [UNKNOWN] * 4]
    assert committed(broker, partition=0) == 5


@pytest.mark.parametrize("version", [2, 8, 9, 10])
def test_a_generation_of_a_group_that_is_gone(broker: InProcessBroker, version: int) -> None:
    member = settle(broker)
    request = a_commit(7, member=member)
    request.group_id = "unknown"
    request.topics[0].topic_id = broker.describe(TOPIC).topic_id

    code = broker.ask(request, version).topics[0].partitions[0].error_code

    assert code == (GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION)


def test_a_client_outside_the_protocol_cannot_disturb_a_group(broker: InProcessBroker) -> None:
    settle(broker)

    assert commit(broker, 7) == UNKNOWN_MEMBER_ID


def test_a_confirmed_commit_survives_a_crash(broker: InProcessBroker) -> None:
    """101, 102."""
    member = settle(broker)
    assert commit(broker, 9, member=member) == 0
    assert commit(broker, 4, member=member) == 0

    broker.crash()

    assert committed(broker) == 4


def test_without_a_topic_of_offsets_nothing_is_committed(start_broker: StartBroker) -> None:
    broker = start_broker({})
    broker.create(TOPIC)

    assert commit(broker, 7) == COORDINATOR_NOT_AVAILABLE
