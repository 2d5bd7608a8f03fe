"""OffsetFetch (9), versions 1-10: how far a group has read, by its own account.

2 null asks for all partitions, a top-level error code; 5 leader epochs; 6 flexible; 7 require_stable
(KIP-447); 8 several groups at once; 9 the new group protocol (KIP-848); 10 topics by id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, UnknownTopicId, UnstableOffsetCommit
from oncelog.core.groups.commands import FetchedOffset, FetchOffsets, WantedOffsets
from oncelog.core.types import TopicPartition
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from oncelog.wire.schema import ZERO_UUID

FIRST_BATCHED: Final = 8
FIRST_BY_ID: Final = 10


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic that is asked for, whatever version asks."""

    name: str
    topic_id: UUID
    partitions: Sequence[int]


async def handle(
    node: Node, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    """Answer for each group."""
    if context.version < FIRST_BATCHED:
        topics = None
        if request.topics is not None:
            topics = [_Topic(t.name, ZERO_UUID, t.partition_indexes) for t in request.topics]
        answer = await _fetch(node, request.group_id, topics, request.require_stable, context)
        return _lowered(answer, topics)
    groups = []
    for group in request.groups:
        wanted = None
        if group.topics is not None:
            wanted = [_Topic(t.name, t.topic_id, t.partition_indexes) for t in group.topics]
        answer = await _fetch(node, group.group_id, wanted, request.require_stable, context)
        groups.append(answer)
    return OffsetFetchResponse(groups=groups)


async def _fetch(
    node: Node,
    group_id: str,
    wanted: list[_Topic] | None,
    require_stable: bool,
    context: RequestContext,
) -> OffsetFetchResponseGroup:
    by_id = context.version >= FIRST_BY_ID
    unknown = [t for t in wanted or () if by_id and t.topic_id not in node.metadata.topics_by_id]
    topics: tuple[WantedOffsets, ...] | None = None
    if wanted is not None:
        topics = tuple(
            WantedOffsets(
                topic=node.metadata.topics_by_id[t.topic_id].name if by_id else t.name,
                partitions=tuple(t.partitions),
                # By name too: a deleted topic's offsets are none of its namesake.
                topic_id=t.topic_id if by_id else _id_of(node, t.name),
            )
            for t in wanted
            if t not in unknown
        )
    try:
        found: tuple[FetchedOffset, ...] = await node.ask_group(
            group_id, FetchOffsets(group_id=group_id, topics=topics)
        )
    except BrokerError as error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error_code(error))
    answers = _by_topic(node, found, require_stable, drop_unknown=by_id)
    answers += [_unknown(topic) for topic in unknown]
    return OffsetFetchResponseGroup(group_id=group_id, topics=answers)


def _id_of(node: Node, name: str) -> UUID | None:
    topic = node.metadata.topics.get(name)
    return None if topic is None else topic.topic_id


def _by_topic(
    node: Node, found: Sequence[FetchedOffset], require_stable: bool, *, drop_unknown: bool
) -> list[OffsetFetchResponseTopics]:
    topics: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for offset in found:
        if offset.topic_id not in (None, _id_of(node, offset.partition.topic)):
            continue  # It was committed for a topic that is gone.
        answer = _answer(offset.partition, offset, require_stable)
        topics.setdefault(offset.partition.topic, []).append(answer)
    answers = []
    for name, partitions in topics.items():
        topic = node.metadata.topics.get(name)
        if topic is None and drop_unknown:
            continue  # It has no id to be named by.
        topic_id = topic.topic_id if topic else ZERO_UUID
        answers.append(
            OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
        )
    return answers


def _answer(
    partition: TopicPartition, offset: FetchedOffset, require_stable: bool
) -> OffsetFetchResponsePartitions:
    answer = OffsetFetchResponsePartitions(
        partition_index=partition.partition, committed_offset=-1, metadata=""
    )
    if require_stable and not offset.is_stable:
        answer.error_code = error_code(UnstableOffsetCommit(f"{partition} is undecided"))
    elif offset.committed is not None:
        epoch = offset.committed.leader_epoch
        answer.committed_offset = offset.committed.offset
        answer.committed_leader_epoch = -1 if epoch is None else epoch
        answer.metadata = offset.committed.metadata
    return answer


def _unknown(topic: _Topic) -> OffsetFetchResponseTopics:
    code = error_code(UnknownTopicId(f"there is no topic with the id {topic.topic_id}"))
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partitions
        ],
    )


def _lowered(group: OffsetFetchResponseGroup, wanted: list[_Topic] | None) -> OffsetFetchResponse:
    """The answer for one group as versions 1-7 have it; version 1 has errors by partition only."""
    if group.error_code:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=group.error_code,
                    )
                    for index in topic.partitions
                ],
            )
            for topic in wanted or ()
        ]
        return OffsetFetchResponse(error_code=group.error_code, topics=topics)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in group.topics
        ]
    )
