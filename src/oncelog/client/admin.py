"""What an operator asks of a cluster, one function each: topics, their settings, offsets, groups."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client.cluster import Cluster, CoordinatorKind, raise_for
from oncelog.client.connection import Connection
from oncelog.client.errors import Refused
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.wire.messages.metadata import MetadataResponseTopic
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

#: Instead of a time, `list_offsets` takes these for the two ends of a log.
EARLIEST: Final = -2
LATEST: Final = -1

#: Let the broker choose: the number of partitions or replicas that it is set to.
BROKERS_DEFAULT: Final = -1

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_DELETE: Final = 1
#: From version 10 on, OffsetCommit and OffsetFetch name topics by id; we keep to names.
_LAST_WITH_TOPIC_NAMES: Final = 9

# --- topics ---------------------------------------------------------------------------------


async def topics(
    cluster: Cluster, names: Sequence[str] | None = None
) -> list[MetadataResponseTopic]:
    """The topics of these names, or all, in the order of their names; a missing one is refused."""
    reply = await cluster.patiently(lambda: cluster.metadata(names))
    for topic in reply.topics:
        raise_for(topic.error_code, f"Topic {topic.name}")
    return sorted(reply.topics, key=lambda topic: topic.name or "")


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKERS_DEFAULT,
    replication_factor: int = BROKERS_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> CreatableTopicResult:
    """Create one topic and say what it became."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
    )
    reply: CreateTopicsResponse = await cluster.ask(
        CreateTopicsRequest(topics=[topic]), cluster.controller, is_repeatable=False
    )
    (result,) = reply.topics
    raise_for(result.error_code, f"Topic {name}", result.error_message)
    return result


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete one topic with all of its records."""
    # Versions before 6 carry names, later ones names or ids: fill in both.
    message = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=30_000
    )
    reply: DeleteTopicsResponse = await cluster.ask(
        message, cluster.controller, is_repeatable=False
    )
    for result in reply.responses:
        raise_for(result.error_code, f"Topic {name}", result.error_message)


async def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Let a topic grow to `count` partitions."""
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    reply: CreatePartitionsResponse = await cluster.ask(
        CreatePartitionsRequest(topics=[topic], timeout_ms=30_000),
        cluster.controller,
        is_repeatable=False,
    )
    for result in reply.results:
        raise_for(result.error_code, f"Topic {name}", result.error_message)


async def alter_topic_configs(
    cluster: Cluster, name: str, *, changed: Mapping[str, str], removed: Iterable[str]
) -> None:
    """Set some of a topic's own settings and let others fall back to the broker's."""
    configs = [AlterableConfig(name=k, config_operation=_SET, value=v) for k, v in changed.items()]
    configs += [AlterableConfig(name=k, config_operation=_DELETE, value=None) for k in removed]
    resource = AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs
    )
    reply: IncrementalAlterConfigsResponse = await cluster.ask(
        IncrementalAlterConfigsRequest(resources=[resource]), cluster.controller
    )
    for result in reply.responses:
        raise_for(result.error_code, f"Topic {name}", result.error_message)


async def topic_configs(
    cluster: Cluster, names: Iterable[str]
) -> dict[str, list[DescribeConfigsResourceResult]]:
    """Every setting of each topic, with its source."""
    resources = [
        DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        for name in names
    ]
    reply: DescribeConfigsResponse = await cluster.ask(DescribeConfigsRequest(resources=resources))
    for result in reply.results:
        raise_for(result.error_code, f"Topic {result.resource_name}", result.error_message)
    return {
        result.resource_name: sorted(result.configs, key=lambda config: config.name)
        for result in reply.results
    }


# --- offsets --------------------------------------------------------------------------------


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
) -> dict[TopicPartition, int | None]:
    """For each partition the first offset at or after a time, or one of its ends.

    A time is in milliseconds; `None` means that no record is that young. With `committed_only` the
    end is the last stable offset, where read_committed readers have to stop.
    """

    async def attempt() -> list[ListOffsetsResponse]:
        replies = []
        for node_id, partitions in (await cluster.leaders(wanted)).items():
            connection = await cluster.node(node_id)
            message = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed_only),
                topics=_by_topic(partitions, wanted),
                timeout_ms=30_000,
            )
            replies.append(await connection.request(message))
        return replies

    found: dict[TopicPartition, int | None] = {}
    for reply in await cluster.patiently(attempt):
        for topic in reply.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition_index)
                raise_for(partition.error_code, f"Partition {place}")
                found[place] = partition.offset if partition.offset >= 0 else None
    return found


def _by_topic(
    partitions: Iterable[TopicPartition], wanted: Mapping[TopicPartition, int]
) -> list[ListOffsetsTopic]:
    grouped: dict[str, list[ListOffsetsPartition]] = {}
    for place in partitions:
        entry = ListOffsetsPartition(partition_index=place.partition, timestamp=wanted[place])
        grouped.setdefault(place.topic, []).append(entry)
    return [ListOffsetsTopic(name=name, partitions=found) for name, found in grouped.items()]


# --- groups ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group as its coordinator describes it."""

    coordinator_id: int
    group: DescribedGroup

    @property
    def is_active(self) -> bool:
        """Whether the group has members, so that its offsets are theirs to change."""
        return self.group.group_state not in ("Empty", "Dead")


async def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups of all brokers, in the order of their names."""

    async def attempt() -> list[ListGroupsResponse]:
        return [
            await connection.request(ListGroupsRequest())
            for _, connection in await cluster.everyone()
        ]

    found: list[ListedGroup] = []
    for reply in await cluster.patiently(attempt):
        raise_for(reply.error_code, "The list of groups")
        found += reply.groups
    return sorted(found, key=lambda group: group.group_id)


async def describe_group(cluster: Cluster, group_id: str) -> GroupView:
    """One group with its members; a group that nobody knows is refused."""
    reply: DescribeGroupsResponse = await cluster.ask(
        DescribeGroupsRequest(groups=[group_id]), _coordinator(cluster, group_id)
    )
    (group,) = reply.groups
    raise_for(group.error_code, f"Group {group_id}", group.error_message)
    # Before version 6 a group that does not exist was answered as one that is dead.
    if group.group_state == "Dead":
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id}")
    node_id = await cluster.coordinator_id(CoordinatorKind.GROUP, group_id)
    return GroupView(coordinator_id=node_id, group=group)


async def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    """Every offset that the group has committed."""
    # Versions before 8 ask for one group, later ones for a list of them: fill in both.
    message = OffsetFetchRequest(
        group_id=group_id,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
    )
    reply: OffsetFetchResponse = await cluster.ask(
        message, _coordinator(cluster, group_id), at_most=_LAST_WITH_TOPIC_NAMES
    )
    answer: Any = reply.groups[0] if reply.groups else reply
    raise_for(answer.error_code, f"Group {group_id}")
    found = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            raise_for(partition.error_code, f"Group {group_id}, partition {place}")
            if partition.committed_offset >= 0:
                found[place] = partition.committed_offset
    return found


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Set the offsets of a group that has no members."""
    grouped: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, offset in offsets.items():
        entry = OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=""
        )
        grouped.setdefault(place.topic, []).append(entry)
    message = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=found) for name, found in grouped.items()
        ],
    )
    reply: OffsetCommitResponse = await cluster.ask(
        message, _coordinator(cluster, group_id), at_most=_LAST_WITH_TOPIC_NAMES
    )
    for topic in reply.topics:
        for partition in topic.partitions:
            subject = f"Group {group_id}, partition {topic.name}-{partition.partition_index}"
            raise_for(partition.error_code, subject)


async def delete_group(cluster: Cluster, group_id: str) -> None:
    """Forget a group that has no members, with its offsets."""
    reply: DeleteGroupsResponse = await cluster.ask(
        DeleteGroupsRequest(groups_names=[group_id]),
        _coordinator(cluster, group_id),
        is_repeatable=False,
    )
    for result in reply.results:
        raise_for(result.error_code, f"Group {group_id}")


def _coordinator(cluster: Cluster, group_id: str) -> Any:
    async def found() -> Connection:
        return await cluster.coordinator(CoordinatorKind.GROUP, group_id)

    return found


def read_assignment(content: bytes) -> list[TopicPartition]:
    """The partitions in a member's assignment; none if the bytes are not a consumer's.

    version:int16 | count:int32 | {topic | count:int32 | partition:int32 ...} ... | user data
    """
    try:
        return list(_assigned(content))
    except (struct.error, UnicodeDecodeError):
        return []


def _assigned(content: bytes) -> Iterable[TopicPartition]:
    if len(content) < 6:
        return
    (topic_count,) = struct.unpack_from(">i", content, 2)
    position = 6
    for _ in range(topic_count):
        (size,) = struct.unpack_from(">h", content, position)
        topic = content[position + 2 : position + 2 + size].decode()
        (count,) = struct.unpack_from(">i", content, position + 2 + size)
        if size < 0 or count < 0:
            return
        position += 6 + size
        for partition in struct.unpack_from(f">{count}i", content, position):
            yield TopicPartition(topic, partition)
        position += 4 * count
