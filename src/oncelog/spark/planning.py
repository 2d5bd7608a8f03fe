"""What there is to read: topics, partitions and their offsets, as the driver finds them."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias, assert_never
from uuid import UUID

from oncelog.client.admin import list_offsets
from oncelog.client.cluster import Cluster, raise_for
from oncelog.client.fetching import (
    DataLost,
    Isolation,
    OffsetsGone,
    Range,
    TopicGone,
    is_replaced,
)
from oncelog.core.types import TopicPartition
from oncelog.spark.offsets import EARLIEST, LATEST, BadOffsets, Position
from oncelog.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_REPLACED: Final = "Topic {} was deleted and created again: the offsets of the old one mean nothing in the new one."


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


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, or one of the ends of its log."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record that is not older, for each partition; in milliseconds."""

    times_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older, for all partitions; in milliseconds."""

    time_ms: int


class End(Enum):
    """One end of all logs."""

    EARLIEST = EARLIEST
    LATEST = LATEST


Border: TypeAlias = End | AtOffsets | AtTimes | AtTime


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
    wanted = dict.fromkeys(partitions, EARLIEST)
    found = await list_offsets(cluster, wanted) if wanted else {}
    return {place: offset or 0 for place, offset in found.items()}


async def end_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, int]:
    """Up to where each log can be read: to the first open transaction, or to its end."""
    wanted = dict.fromkeys(partitions, LATEST)
    committed_only = isolation is Isolation.READ_COMMITTED
    found = await list_offsets(cluster, wanted, committed_only=committed_only) if wanted else {}
    return {place: offset or 0 for place, offset in found.items()}


async def offsets_at(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    border: Border,
    isolation: Isolation,
    *,
    late_is_latest: bool,
) -> dict[TopicPartition, int]:
    """The offsets that a border means; a time that no record has reached may mean the end."""
    places = set(partitions)
    match border:
        case End.EARLIEST:
            return await first_offsets(cluster, places)
        case End.LATEST:
            return await end_offsets(cluster, places, isolation)
        case AtOffsets():
            _check_same(places, border.offsets)
            return await _ends_replaced(cluster, border.offsets, isolation)
        case AtTime():
            times_ms: Mapping[TopicPartition, int] = dict.fromkeys(places, border.time_ms)
        case AtTimes():
            _check_same(places, border.times_ms)
            times_ms = border.times_ms
        case _:
            assert_never(border)
    return await _at_times(cluster, times_ms, isolation, late_is_latest=late_is_latest)


async def _ends_replaced(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int]:
    earliest = [place for place, offset in offsets.items() if offset == EARLIEST]
    latest = [place for place, offset in offsets.items() if offset == LATEST]
    return {
        **offsets,
        **await first_offsets(cluster, earliest),
        **await end_offsets(cluster, latest, isolation),
    }


async def _at_times(
    cluster: Cluster,
    times_ms: Mapping[TopicPartition, int],
    isolation: Isolation,
    *,
    late_is_latest: bool,
) -> dict[TopicPartition, int]:
    committed_only = isolation is Isolation.READ_COMMITTED
    found = await list_offsets(cluster, times_ms, committed_only=committed_only)
    late = sorted(place for place, offset in found.items() if offset is None)
    if late and not late_is_latest:
        raise BadOffsets(
            f"Partition {late[0]} has no record at or after the time {times_ms[late[0]]}: choose an "
            "earlier one, or set startingOffsetsByTimestampStrategy to latest."
        )
    ends = await end_offsets(cluster, late, isolation)
    return {place: ends[place] if offset is None else offset for place, offset in found.items()}


def _check_same(found: set[TopicPartition], given: Mapping[TopicPartition, int]) -> None:
    wrong = sorted(found ^ given.keys())
    if wrong:
        what = "is not given" if wrong[0] in found else "is given and not among what is read"
        raise BadOffsets(
            f"Offsets or times by partition must name each partition that is read, and no other: "
            f"{wrong[0]} {what}."
        )


# --- what is gone -----------------------------------------------------------------------------------


def check_found(selection: Selection, topics: Topics) -> None:
    """Refuse a selection that names what does not exist."""
    match selection:
        case SubscribePattern():
            return
        case Subscribe():
            for name in selection.topics:
                if name not in topics.ids:
                    raise TopicGone(f"Topic {name} does not exist: create it, or subscribe less.")
        case Assign():
            for place in selection.partitions:
                if place not in topics.partitions:
                    raise TopicGone(f"Partition {place} does not exist: create it, or assign less.")
        case _:
            assert_never(selection)


@dataclass(frozen=True, slots=True)
class OnLoss:
    """What to do when input is gone: fail, or go on with what is there and warn."""

    fails: bool

    def meet(self, loss: DataLost) -> None:
        """Raise it or log it."""
        if self.fails:
            loss.add_note("To go on with what is there, set the option failOnDataLoss to false.")
            raise loss
        log.warning("input is gone and is skipped: %s", loss)


async def still_there(
    cluster: Cluster, wanted: Iterable[Range], topics: Topics, on_loss: OnLoss
) -> list[Range]:
    """The ranges as far as the logs still hold them."""
    found = []
    for each in wanted:
        if each.place not in topics.partitions:
            on_loss.meet(TopicGone(f"Partition {each.place} does not exist any more."))
        elif is_replaced(each.topic_id, topics.ids[each.topic]):
            on_loss.meet(TopicGone(_REPLACED.format(each.topic)))
        elif each.size > 0:
            found.append(each)
    starts = await first_offsets(cluster, {each.place for each in found})
    for each in found:
        if each.start < starts[each.place]:
            end = max(each.end, starts[each.place])
            on_loss.meet(OffsetsGone(each, log_start_offset=starts[each.place], log_end_offset=end))
    return [
        replace(each, start=max(each.start, starts[each.place]))
        for each in found
        if each.end > starts[each.place]
    ]


async def newest(
    cluster: Cluster, selection: Selection, start: Position, isolation: Isolation, on_loss: OnLoss
) -> Position:
    """How far everything can be read now, and never less far than `start`.

    A partition that is not in `start` is new and is read from its beginning.
    """
    topics = await find_topics(cluster, selection)
    ends = await end_offsets(cluster, topics.partitions, isolation)
    behind = {}
    for place, offset in start.offsets.items():
        if place not in ends:
            on_loss.meet(TopicGone(f"Partition {place} does not exist any more."))
        elif is_replaced(start.ids.get(place.topic), topics.ids[place.topic]):
            on_loss.meet(TopicGone(_REPLACED.format(place.topic)))
        elif ends[place] < offset:
            behind[place] = offset
    # Before an open transaction nothing is lost: a reader of everything was here before.
    highest = await end_offsets(cluster, behind, Isolation.READ_UNCOMMITTED)
    for place, offset in behind.items():
        if highest[place] >= offset:
            ends[place] = offset
            continue
        first = (await first_offsets(cluster, [place]))[place]
        rest = Range(topic=place.topic, partition=place.partition, start=offset, end=offset)
        on_loss.meet(OffsetsGone(rest, log_start_offset=first, log_end_offset=highest[place]))
    return Position(offsets=ends, ids=topics.ids)


def ranges_between(start: Position, end: Position) -> list[Range]:
    """What lies between two positions; new partitions and new topics begin at their beginning."""
    found = []
    for place, offset in sorted(end.offsets.items()):
        topic_id = end.ids.get(place.topic)
        is_new = topic_id is not None and is_replaced(start.ids.get(place.topic), topic_id)
        begin = 0 if is_new else start.offsets.get(place, 0)
        found.append(
            Range(
                topic=place.topic,
                partition=place.partition,
                start=begin,
                end=offset,
                topic_id=topic_id,
            )
        )
    return found


def _named(selection: Subscribe | Assign) -> set[str]:
    match selection:
        case Subscribe():
            return set(selection.topics)
        case Assign():
            return {place.topic for place in selection.partitions}
        case _:
            assert_never(selection)
