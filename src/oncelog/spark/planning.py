"""What there is to read: topics, partitions and their ends, as the driver finds them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never
from uuid import UUID

from oncelog.client.admin import EARLIEST, LATEST, list_offsets
from oncelog.client.cluster import Cluster, raise_for
from oncelog.client.fetching import Isolation
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of all topics whose whole name matches; never the broker's own topics."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """What a selection has found: the partitions, in order, and the ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    ids: Mapping[str, UUID]


async def find_topics(cluster: Cluster, selection: Selection) -> Topics:
    """The partitions that a selection means now; a topic that does not exist has none."""
    names = None if isinstance(selection, SubscribePattern) else sorted(_named(selection))
    reply = await cluster.patiently(lambda: cluster.metadata(names))
    found: list[TopicPartition] = []
    ids: dict[str, UUID] = {}
    for topic in reply.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not topic.name:
            continue
        raise_for(topic.error_code, f"Topic {topic.name}")
        if isinstance(selection, SubscribePattern):
            if topic.is_internal or not re.fullmatch(selection.pattern, topic.name):
                continue
        ids[topic.name] = topic.topic_id
        found += [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
    if isinstance(selection, Assign):
        wanted = set(selection.partitions)
        found = [place for place in found if place in wanted]
    return Topics(partitions=tuple(sorted(found)), ids=ids)


async def first_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where each log begins."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {place: offset or 0 for place, offset in found.items()}


async def end_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, int]:
    """Up to where each log can be read: to the first open transaction, or to its end."""
    found = await list_offsets(
        cluster,
        dict.fromkeys(partitions, LATEST),
        committed_only=isolation is Isolation.READ_COMMITTED,
    )
    return {place: offset or 0 for place, offset in found.items()}


def _named(selection: Subscribe | Assign) -> set[str]:
    match selection:
        case Subscribe():
            return set(selection.topics)
        case Assign():
            return {place.topic for place in selection.partitions}
        case _:
            assert_never(selection)
