from typing import Any
from uuid import UUID

import pytest

from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.api.conftest import StartBroker
from tests.api.group_members import GROUP, TOPIC, commit, committed, find_coordinator
from tests.api.in_process import InProcessBroker

COORDINATOR_NOT_AVAILABLE = 15
UNKNOWN_TOPIC_ID = 100


@pytest.fixture
def broker(start_broker: StartBroker) -> InProcessBroker:
    """One where the group has committed 7 for the first of two partitions."""
    broker = start_broker({})
    broker.create(TOPIC, partitions=2)
    find_coordinator(broker)
    commit(broker, 7, metadata="note", committed_leader_epoch=0)
    return broker


def ask(
    broker: InProcessBroker, version: int, *partitions: int, topic_id: UUID | None = None
) -> Any:
    """The partitions of the topic, in whatever shape the version has; none asks for all."""
    if version < 8:
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=partitions)]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics if partitions else None)
        response = broker.ask(request, version)
        assert response.error_code == 0
        return response.topics[0].partitions
    wanted = OffsetFetchRequestTopics(
        name=TOPIC,
        topic_id=topic_id or broker.describe(TOPIC).topic_id,
        partition_indexes=partitions,
    )
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted] if partitions else None)
    (answer,) = broker.ask(OffsetFetchRequest(groups=[group]), version).groups
    assert (answer.group_id, answer.error_code) == (GROUP, 0)
    return answer.topics[0].partitions


@pytest.mark.parametrize("version", range(1, 11))
def test_what_was_committed_is_found(broker: InProcessBroker, version: int) -> None:
    first, second = ask(broker, version, 0, 1)

    assert (first.committed_offset, first.metadata, first.error_code) == (7, "note", 0)
    assert first.committed_leader_epoch == (0 if version >= 5 else -1)
    assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)


@pytest.mark.parametrize("version", range(2, 11))
def test_null_asks_for_everything(broker: InProcessBroker, version: int) -> None:
    assert [p.committed_offset for p in ask(broker, version)] == [7]


@pytest.mark.parametrize("version", [1, 5, 7])
def test_a_group_that_nobody_knows_has_committed_nothing(
    broker: InProcessBroker, version: int
) -> None:
    """111."""
    topics = [OffsetFetchRequestTopic(name="whatever", partition_indexes=[0, 1])]

    response = broker.ask(OffsetFetchRequest(group_id="unknown", topics=topics), version)

    found = [(p.committed_offset, p.error_code) for p in response.topics[0].partitions]
    assert (response.error_code, found) == (0, [(-1, 0), (-1, 0)])


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_are_answered_each(broker: InProcessBroker, version: int) -> None:
    commit(broker, 9, group_id="another")
    groups = [
        OffsetFetchRequestGroup(group_id=group_id, topics=None)
        for group_id in (GROUP, "unknown", "another")
    ]

    response = broker.ask(OffsetFetchRequest(groups=groups, require_stable=True), version)

    found = {
        group.group_id: [p.committed_offset for t in group.topics for p in t.partitions]
        for group in response.groups
    }
    assert found == {GROUP: [7], "unknown": [], "another": [9]}


def test_an_id_that_no_topic_has_is_refused(broker: InProcessBroker) -> None:
    (partition,) = ask(broker, 10, 0, topic_id=UUID(int=77))

    assert (partition.committed_offset, partition.error_code) == (-1, UNKNOWN_TOPIC_ID)


def test_a_new_topic_does_not_inherit_the_offsets_of_its_namesake(broker: InProcessBroker) -> None:
    broker.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1_000), 5)
    broker.create(TOPIC, partitions=2)

    assert [p.committed_offset for p in ask(broker, 10, 0)] == [-1]
    assert committed(broker) == -1

    broker.crash()
    assert committed(broker) == -1


@pytest.mark.parametrize("version", [1, 7, 8])
def test_without_a_coordinator_there_is_an_error(start_broker: StartBroker, version: int) -> None:
    broker = start_broker({})
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]

    response = broker.ask(OffsetFetchRequest(group_id=GROUP, topics=topics, groups=groups), version)

    place = {
        1: lambda: response.topics[0].partitions[0],
        7: lambda: response,
        8: lambda: response.groups[0],
    }[version]()
    assert place.error_code == COORDINATOR_NOT_AVAILABLE
