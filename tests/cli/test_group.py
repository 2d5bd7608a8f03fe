"""`oncelog group` against a broker that answers what a test tells it to."""

import json
import struct
from typing import Any

import pytest

from oncelog.cli import group
from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.main import parser_for
from oncelog.cli.verbs import Verb
from oncelog.client.admin import read_assignment
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Refused
from oncelog.core.types import TopicPartition
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from oncelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.client.fake_broker import FakeBroker, running

LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH = 2, 8, 9
FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 10, 15, 16

# Topic t, partition 0, as a consumer writes its assignment.
ASSIGNED = struct.pack(">hih1siii", 1, 1, 1, b"t", 1, 0, -1)

START, END, AT_A_TIME = 10, 100, 40


class GroupBroker(FakeBroker):
    """Topic t with two partitions; group g has committed 60 in the first of them."""

    def __init__(self, *, state: str = "Empty", members: int = 0) -> None:
        super().__init__()
        led = [MetadataResponsePartition(partition_index=p, leader_id=1) for p in (0, 1)]
        self.topics = [MetadataResponseTopic(name="t", partitions=led)]
        one = DescribedGroupMember(
            member_id="m-1", client_id="c", client_host="/127.0.0.1", member_assignment=ASSIGNED
        )
        described = DescribedGroup(
            group_id="g",
            group_state=state,
            protocol_type="consumer",
            protocol_data="range",
            members=[one] * members,
        )
        committed = OffsetFetchResponseTopics(
            name="t",
            partitions=[
                OffsetFetchResponsePartitions(partition_index=0, committed_offset=60),
                OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
            ],
        )
        fetched = OffsetFetchResponseGroup(group_id="g", topics=[committed])
        self.answers |= {
            FIND_COORDINATOR: self.find_coordinator,
            LIST_OFFSETS: self.list_offsets,
            DESCRIBE_GROUPS: lambda *_: DescribeGroupsResponse(groups=[described]),
            OFFSET_FETCH: lambda *_: OffsetFetchResponse(groups=[fetched]),
            OFFSET_COMMIT: lambda *_: OffsetCommitResponse(),
        }

    def find_coordinator(self, request: Any, version: int) -> Any:
        here = Coordinator(key="g", node_id=1, host="127.0.0.1", port=self.port)
        return FindCoordinatorResponse(coordinators=[here])

    def list_offsets(self, request: Any, version: int) -> Any:
        (topic,) = request.topics
        offsets = {-2: START, -1: END}
        found = [
            ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                offset=offsets.get(asked.timestamp, AT_A_TIME),
            )
            for asked in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])

    @property
    def commits(self) -> list[dict[int, int]]:
        return [
            {p.partition_index: p.committed_offset for p in request.topics[0].partitions}
            for request, _ in self.seen
            if isinstance(request, OffsetCommitRequest)
        ]


async def do(broker: FakeBroker, verb: Verb, *words: str) -> None:
    argv = ["group", *words, "--bootstrap", broker.bootstrap]
    async with await Cluster.open(broker.bootstrap) as cluster:
        await verb(cluster, parser_for(argv).parse_args(argv))


@running
async def test_list_is_a_table_of_all_groups(capsys: pytest.CaptureFixture[str]) -> None:
    async with GroupBroker() as broker:
        listed = [
            ListedGroup(
                group_id=name, protocol_type="consumer", group_state="Empty", group_type="classic"
            )
            for name in ("b", "a")
        ]
        broker.answers[LIST_GROUPS] = lambda *_: ListGroupsResponse(groups=listed)

        await do(broker, group.list_, "list")

    assert capsys.readouterr().out.splitlines() == [
        "GROUP  STATE  PROTOCOL  TYPE",
        "a      Empty  consumer  classic",
        "b      Empty  consumer  classic",
    ]


@running
async def test_describe_shows_members_and_lag(capsys: pytest.CaptureFixture[str]) -> None:
    async with GroupBroker(state="Stable", members=1) as broker:
        await do(broker, group.describe, "describe", "g")

    assert capsys.readouterr().out.splitlines() == [
        "Group g, Stable, 1 member, protocol range, coordinator 1",
        "",
        "MEMBER  INSTANCE  CLIENT  HOST        PARTITIONS",
        "m-1     -         c       /127.0.0.1           1",
        "",
        "TOPIC  PARTITION  COMMITTED  END  LAG  MEMBER",
        "t              0         60  100   40  m-1",
    ]


@running
async def test_describe_of_a_topic_that_is_gone_has_no_lag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with GroupBroker() as broker:
        broker.topics = []

        await do(broker, group.describe, "describe", "g", "--json")

    (row,) = json.loads(capsys.readouterr().out)["offsets"]
    assert (row["committed"], row["end"], row["lag"]) == (60, None, None)


@running
async def test_a_group_that_is_dead_does_not_exist() -> None:
    async with GroupBroker(state="Dead") as broker:
        with pytest.raises(Refused, match="Group g: GROUP_ID_NOT_FOUND"):
            await do(broker, group.describe, "describe", "g")


@pytest.mark.parametrize(
    ("words", "moved"),
    [
        (("--topic", "t", "--to-earliest"), {0: START, 1: START}),
        (("--topic", "t", "--to-latest"), {0: END, 1: END}),
        (("--topic", "t:1", "--to-offset", "50"), {1: 50}),
        (("--topic", "t:1", "--to-offset", "5"), {1: START}),
        (("--topic", "t:1", "--to-offset", "500"), {1: END}),
        (("--topic", "t:0,1", "--to-datetime", "2026-01-31"), {0: AT_A_TIME, 1: AT_A_TIME}),
        (("--all-topics", "--shift-by", "-5"), {0: 55}),
        (("--all-topics", "--shift-by", "1000"), {0: END}),
    ],
)
def test_reset_moves_within_the_log(words: tuple[str, ...], moved: dict[int, int]) -> None:
    @running
    async def resetting() -> None:
        async with GroupBroker() as broker:
            await do(broker, group.reset, "reset", "g", *words, "--execute")

            assert broker.commits == [moved]

    resetting()


@running
async def test_reset_without_execute_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with GroupBroker() as broker:
        await do(broker, group.reset, "reset", "g", "--all-topics", "--to-earliest")

    printed = capsys.readouterr()
    assert broker.commits == []
    assert printed.out.splitlines()[1].split() == ["t", "0", "60", "10"]
    assert "Nothing was changed" in printed.err


@running
async def test_a_group_with_members_keeps_its_offsets() -> None:
    async with GroupBroker(state="Stable", members=1) as broker:
        with pytest.raises(CommandFailed, match="Group g is Stable with 1 member"):
            await do(broker, group.reset, "reset", "g", "--all-topics", "--to-latest", "--execute")

    assert broker.commits == []


@running
async def test_reset_wants_to_know_whose_offsets() -> None:
    async with GroupBroker() as broker:
        with pytest.raises(Misused, match="--topic TOPIC or --all-topics"):
            await do(broker, group.reset, "reset", "g", "--to-latest")
        with pytest.raises(CommandFailed, match="Topic t has no partition 7"):
            await do(broker, group.reset, "reset", "g", "--topic", "t:7", "--to-latest")
        with pytest.raises(CommandFailed, match="no offset in t-1 to shift"):
            await do(broker, group.reset, "reset", "g", "--topic", "t:1", "--shift-by", "1")


@pytest.mark.parametrize(
    ("content", "places"),
    [
        (ASSIGNED, [TopicPartition("t", 0)]),
        (b"", []),
        (b"\0", []),
        (struct.pack(">hi", 0, 2**31 - 1), []),
        (struct.pack(">hihi", 0, 2**31 - 1, -2, 0), []),
        (struct.pack(">hih1si", 0, 1, 1, b"t", 2**31 - 1), []),
        (struct.pack(">hih1si", 0, 1, 1, b"\xff", 0), []),
    ],
)
def test_an_assignment_is_read_if_it_is_one(content: bytes, places: list[TopicPartition]) -> None:
    assert read_assignment(content) == places
