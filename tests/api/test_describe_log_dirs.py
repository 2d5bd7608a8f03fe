"""DescribeLogDirs over a real socket, in every version."""

import pytest

from oncelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.api.in_process import InProcessBroker

VERSIONS = DescribeLogDirsRequest.VERSIONS


def sizes(result: DescribeLogDirsResult) -> dict[str, dict[int, int]]:
    return {
        topic.name: {each.partition_index: each.partition_size for each in topic.partitions}
        for topic in result.topics
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_logs_are_as_large_as_their_files(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 2)
    broker.produce("a", 1, [b"x" * 1000])

    (result,) = broker.ask(DescribeLogDirsRequest(topics=None), version).results

    (file,) = (broker.data_dir / "a-1").glob("*.log")
    assert result.log_dir == str(broker.data_dir)
    assert sizes(result) == {"a": {0: 0, 1: file.stat().st_size}}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_here_is_left_out(broker: InProcessBroker, version: int) -> None:
    broker.create("a", 2)
    topics = [
        DescribableLogDirTopic(topic="a", partitions=[1, 9, -1]),
        DescribableLogDirTopic(topic="nowhere", partitions=[0]),
        DescribableLogDirTopic(topic="__cluster_metadata", partitions=[0]),
    ]

    (result,) = broker.ask(DescribeLogDirsRequest(topics=topics), version).results

    assert sizes(result) == {"a": {1: 0}}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_disk_tells_its_size(broker: InProcessBroker, version: int) -> None:
    (result,) = broker.ask(DescribeLogDirsRequest(topics=[]), version).results

    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    else:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)
