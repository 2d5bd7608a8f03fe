"""DescribeTopicPartitions over a real socket. Which page is cut where is in tests/peers."""

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.api.in_process import InProcessBroker


def page(
    broker: InProcessBroker, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    response: DescribeTopicPartitionsResponse = broker.ask(request, 0)
    return response


def test_a_topic_is_described(broker: InProcessBroker) -> None:
    broker.create("a", 2)

    (topic,) = page(broker, "a").topics

    assert (topic.name, topic.topic_id) == ("a", broker.describe("a").topic_id)
    assert not topic.is_internal
    for index, partition in enumerate(topic.partitions):
        assert (partition.error_code, partition.partition_index) == (ErrorCode.NONE, index)
        assert partition.leader_id == 1
        assert list(partition.replica_nodes) == list(partition.isr_nodes) == [1]
        assert list(partition.offline_replicas) == []


def test_without_names_all_topics_come_page_by_page(broker: InProcessBroker) -> None:
    for name in ("c", "a", "b"):
        broker.create(name, 3)

    found = []
    cursor = None
    for _ in range(10):
        answer = page(broker, limit=2, cursor=cursor)
        for topic in answer.topics:
            found += [(topic.name, each.partition_index) for each in topic.partitions]
        cursor = answer.next_cursor
        if cursor is None:
            break

    assert found == [(name, index) for name in "abc" for index in range(3)]


def test_a_topic_that_was_deleted_between_two_pages_is_passed_over(
    broker: InProcessBroker,
) -> None:
    broker.create("a", 2)
    broker.create("c", 2)

    answer = page(broker, cursor=Cursor(topic_name="b", partition_index=1))

    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("c", 2)]


def test_an_unknown_topic_is_named_with_its_error(broker: InProcessBroker) -> None:
    broker.create("a", 1)

    answer = page(broker, "nowhere", "a", "not a name")

    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
