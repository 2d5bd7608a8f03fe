"""Offsets of many partitions: how they are written down, limited and split. Pure functions."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from oncelog.client.errors import ClientError
from oncelog.client.fetching import Range
from oncelog.core.types import TopicPartition

#: Instead of an offset: where the log begins, or where it can be read up to.
EARLIEST: Final = -2
LATEST: Final = -1

#: Beside the topics in a written position; no topic can have a name with this sign in it.
IDS: Final = "$ids"

_OFFSET_MAX: Final = (1 << 63) - 1
_PARTITION_MAX: Final = (1 << 31) - 1


class BadOffsets(ClientError):
    """Offsets that cannot be read or do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far each partition has been read, and in which topics of these names."""

    offsets: Mapping[TopicPartition, int]
    ids: Mapping[str, UUID] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark's Kafka source writes it, and the topics' ids beside; in a fixed order."""
        written: dict[str, Any] = {}
        for place in sorted(self.offsets):
            written.setdefault(place.topic, {})[str(place.partition)] = self.offsets[place]
        known = {name: str(self.ids[name]) for name in sorted(self.ids) if name in written}
        return {**written, IDS: known} if known else written

    @staticmethod
    def from_json(written: object) -> "Position":
        """Read a position; one of Spark's Kafka source has no ids and is as good."""
        if not isinstance(written, dict):
            raise BadOffsets(f"{written!r} is no position: {_SHAPE}")
        topics = {name: value for name, value in written.items() if name != IDS}
        try:
            ids = {str(name): UUID(text) for name, text in written.get(IDS, {}).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise BadOffsets(f"The ids of topics in a position cannot be read: {error}") from error
        return Position(offsets=read_offsets(topics), ids=ids)


_SHAPE: Final = 'write {"topic": {"0": 23, "1": -2}}, a number for each partition.'


def read_offsets(written: object, *, lowest: int = 0) -> dict[TopicPartition, int]:
    """A number for each partition of some topics, as Spark's Kafka source has it."""
    if not isinstance(written, dict):
        raise BadOffsets(f"{written!r} holds no offsets: {_SHAPE}")
    found: dict[TopicPartition, int] = {}
    for topic, partitions in written.items():
        if not isinstance(partitions, dict):
            raise BadOffsets(f"{topic} has {partitions!r} instead of offsets: {_SHAPE}")
        for text, offset in partitions.items():
            place = TopicPartition(topic, read_partition(text))
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise BadOffsets(f"Partition {place} has {offset!r} as its offset: {_SHAPE}")
            if not lowest <= offset <= _OFFSET_MAX:
                raise BadOffsets(f"Partition {place} cannot have the offset {offset}.")
            found[place] = offset
    return found


def read_partition(text: object) -> int:
    """The number of a partition, written as text or not."""
    digits = str(text)
    if not (digits.isascii() and digits.isdigit() and int(digits) <= _PARTITION_MAX):
        raise BadOffsets(f"{text!r} is not the number of a partition.")
    return int(digits)


def offset_count(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between; a partition without a start begins at 0."""
    return sum(max(offset - start.get(place, 0), 0) for place, offset in end.items())


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> dict[TopicPartition, int]:
    """Ends nearer to the start, so that about `max_offsets` lie between, shared out by lag.

    As in Spark's Kafka source: whoever lags gets at least one offset, fractions are cut.
    """
    total = offset_count(start, end)
    nearer = {}
    for place, offset in end.items():
        begin = start.get(place, 0)
        share = max_offsets * (offset - begin) / total if total else 0.0
        nearer[place] = min(offset, begin + max(math.floor(share), 1 if share > 0 else 0))
    return nearer


def split(
    ranges: Iterable[Range], *, min_parts: int | None = None, max_offsets: int | None = None
) -> list[Range]:
    """The same offsets in more ranges: about `min_parts`, and none above `max_offsets`."""
    wanted = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in wanted)
    found: list[Range] = []
    for each in wanted:
        parts = 1
        if min_parts is not None and min_parts > len(wanted):
            parts = max(parts, round(min_parts * each.size / total))
        if max_offsets is not None:
            parts = max(parts, math.ceil(each.size / max_offsets))
        found += _cut(each, min(parts, each.size))
    return found


def _cut(whole: Range, parts: int) -> list[Range]:
    borders = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [
        Range(
            topic=whole.topic,
            partition=whole.partition,
            start=start,
            end=end,
            topic_id=whole.topic_id,
        )
        for start, end in itertools.pairwise(borders)
    ]
