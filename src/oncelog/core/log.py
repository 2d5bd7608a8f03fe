"""When a log starts a new segment and when it drops an old one: what to do, not how."""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.topic_config import TopicConfig

#: Offsets in an index are stored relative to their segment, in 32 bits.
MAX_RELATIVE_OFFSET = (1 << 31) - 1


class SegmentFacts(NamedTuple):
    """What the rules need to know of a segment."""

    base_offset: int
    end_offset: int
    size_bytes: int
    #: The largest record time in it, or -1 where no record has one.
    max_timestamp: int
    #: The first record time in it: what `segment.ms` counts from.
    first_timestamp: int | None


def must_roll(
    active: SegmentFacts, *, batch_bytes: int, batch_timestamp: int, last_delta: int,
    config: TopicConfig,
) -> bool:  # fmt: skip
    """Whether the next batch belongs into a new segment."""
    if active.size_bytes == 0:
        return False
    if active.size_bytes + batch_bytes > config.segment_bytes:
        return True
    if active.end_offset + last_delta - active.base_offset > MAX_RELATIVE_OFFSET:
        return True
    first = active.first_timestamp
    return first is not None and batch_timestamp - first > config.segment_ms


def keeps_everything(config: TopicConfig) -> bool:
    """Whether retention has nothing to say about this log."""
    is_unlimited = config.retention_ms < 0 and config.retention_bytes < 0
    return is_unlimited or "delete" not in config.cleanup_policy


def count_expired(
    segments: Sequence[SegmentFacts],
    *,
    high_watermark: int,
    now_ms: int,
    config: TopicConfig,
) -> int:
    """How many of the oldest segments retention removes; the active one, the last, always stays.

    A segment's age is that of its newest record, never that of its file. Nothing at or above the
    high watermark goes.
    """
    if keeps_everything(config):
        return 0
    removable = 0
    total = sum(segment.size_bytes for segment in segments)
    for segment in segments[:-1]:
        too_old = (
            config.retention_ms >= 0
            and segment.max_timestamp >= 0
            and now_ms - segment.max_timestamp > config.retention_ms
        )
        too_much = config.retention_bytes >= 0 and total - segment.size_bytes >= (
            config.retention_bytes
        )
        if segment.end_offset > high_watermark or not (too_old or too_much):
            break
        removable += 1
        total -= segment.size_bytes
    return removable
