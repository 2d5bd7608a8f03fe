"""DeleteRecords over a real socket, in every version."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.api.in_process import InProcessBroker

VERSIONS = DeleteRecordsRequest.VERSIONS


def delete(
    broker: InProcessBroker, topic: str, *offsets: tuple[int, int], version: int = 2
) -> list[tuple[int, int, int]]:
    wanted = [DeleteRecordsPartition(partition_index=index, offset=to) for index, to in offsets]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=wanted)])
    (answer,) = broker.ask(request, version).topics
    return [(p.partition_index, p.low_watermark, p.error_code) for p in answer.partitions]


def fetch(broker: InProcessBroker, topic: str, partition: int, offset: int) -> PartitionData:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    data: PartitionData = broker.ask(request, 12).responses[0].partitions[0]
    return data


@pytest.mark.parametrize("version", VERSIONS)
def test_records_below_the_offset_can_no_longer_be_read(
    broker: InProcessBroker, version: int
) -> None:
    broker.create("a")
    broker.produce("a", 0, [b"0", b"1", b"2"])

    answer = delete(broker, "a", (0, 2), version=version)

    assert answer == [(0, 2, ErrorCode.NONE)]
    assert fetch(broker, "a", 0, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(broker, "a", 0, 2).log_start_offset == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_one_deletes_up_to_the_high_watermark(broker: InProcessBroker, version: int) -> None:
    broker.create("a")
    broker.produce("a", 0, [b"0", b"1", b"2"])

    assert delete(broker, "a", (0, -1), version=version) == [(0, 3, ErrorCode.NONE)]


def test_the_log_start_never_moves_back(broker: InProcessBroker) -> None:
    broker.create("a")
    broker.produce("a", 0, [b"0", b"1", b"2"])
    delete(broker, "a", (0, 2))

    assert delete(broker, "a", (0, 1)) == [(0, 2, ErrorCode.NONE)]


@pytest.mark.parametrize("offset", [4, -2])
def test_an_offset_beyond_the_high_watermark_is_refused(
    broker: InProcessBroker, offset: int
) -> None:
    broker.create("a")
    broker.produce("a", 0, [b"0", b"1", b"2"])

    assert delete(broker, "a", (0, offset)) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]


def test_each_partition_succeeds_or_fails_by_itself(broker: InProcessBroker) -> None:
    broker.create("a", 2)
    broker.produce("a", 1, [b"0"])

    answer = delete(broker, "a", (7, 0), (1, 1), (0, 1))

    assert answer == [
        (7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, 1, ErrorCode.NONE),
        (0, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]


def test_a_topic_that_is_only_compacted_keeps_its_records(broker: InProcessBroker) -> None:
    broker.create("compacted", 1, {"cleanup.policy": "compact"})
    broker.create("both", 1, {"cleanup.policy": "compact,delete"})

    assert delete(broker, "compacted", (0, 0)) == [(0, -1, ErrorCode.POLICY_VIOLATION)]
    assert delete(broker, "both", (0, 0)) == [(0, 0, ErrorCode.NONE)]


def test_the_records_of_internal_topics_stay(broker: InProcessBroker) -> None:
    broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]))

    answer = delete(broker, "__consumer_offsets", (0, 0))

    assert answer == [(0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)]


def test_deleted_records_do_not_come_back_after_a_crash(broker: InProcessBroker) -> None:
    broker.create("a", 1, {"segment.bytes": "200"})
    for value in range(10):
        broker.produce("a", 0, [b"%d" % value])
    delete(broker, "a", (0, 7))

    broker.crash()

    assert fetch(broker, "a", 0, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(broker, "a", 0, 7).log_start_offset == 7
    assert broker.produce("a", 0, [b"next"]) == 10


def test_segments_that_hold_only_deleted_records_go(broker: InProcessBroker) -> None:
    broker.create("a", 1, {"segment.bytes": "200"})
    for value in range(10):
        broker.produce("a", 0, [b"%d" % value])
    before = len(list((broker.data_dir / "a-0").glob("*.log")))

    delete(broker, "a", (0, -1))

    assert len(list((broker.data_dir / "a-0").glob("*.log"))) < before
