"""When a log begins a new segment and when an old one goes."""

from dataclasses import replace

import pytest

from oncelog.core.log import SegmentFacts, count_expired, must_roll
from oncelog.core.topic_config import TopicConfig
from tests.core.batches import TIME_MS

DAY_MS = 86_400_000


def a_segment(
    base_offset: int = 0,
    end_offset: int = 10,
    *,
    size_bytes: int = 100,
    max_timestamp: int = TIME_MS,
    first_timestamp: int | None = TIME_MS,
) -> SegmentFacts:
    return SegmentFacts(base_offset, end_offset, size_bytes, max_timestamp, first_timestamp)


def a_config(**settings: object) -> TopicConfig:
    return replace(TopicConfig(), **settings)  # type: ignore[arg-type] # settings by their names


# --- rolling --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "batch", "rolls"), [(0, 500, False), (60, 40, False), (60, 41, True), (100, 1, True)]
)
def test_a_segment_is_full_when_the_next_batch_does_not_fit(
    size: int, batch: int, rolls: bool
) -> None:
    """An empty segment takes any batch: it would not fit elsewhere either."""
    assert rolls == must_roll(
        a_segment(size_bytes=size),
        batch_bytes=batch,
        batch_timestamp=TIME_MS,
        last_delta=0,
        config=a_config(segment_bytes=100),
    )


@pytest.mark.parametrize(
    ("first", "batch", "rolls"),
    [
        (TIME_MS, TIME_MS + 1000, False),
        (TIME_MS, TIME_MS + 1001, True),
        (TIME_MS, TIME_MS - 10 * DAY_MS, False),
        (None, TIME_MS, False),
    ],
)
def test_a_segment_is_old_by_the_times_of_its_records(
    first: int | None, batch: int, rolls: bool
) -> None:
    assert rolls == must_roll(
        a_segment(first_timestamp=first),
        batch_bytes=1,
        batch_timestamp=batch,
        last_delta=0,
        config=a_config(segment_ms=1000),
    )


def test_offsets_in_a_segment_fit_into_its_index() -> None:
    def rolls(end_offset: int) -> bool:
        return must_roll(
            a_segment(base_offset=5, end_offset=end_offset),
            batch_bytes=1,
            batch_timestamp=TIME_MS,
            last_delta=9,
            config=a_config(),
        )

    assert not rolls(5 + (1 << 31) - 10)
    assert rolls(5 + (1 << 31) - 9)


# --- retention ------------------------------------------------------------------------------


def three_segments(*times: int) -> list[SegmentFacts]:
    return [
        a_segment(10 * index, 10 * index + 10, max_timestamp=time)
        for index, time in enumerate(times)
    ]


def expired(segments: list[SegmentFacts], *, high_watermark: int = 30, **settings: object) -> int:
    return count_expired(
        segments,
        high_watermark=high_watermark,
        now_ms=TIME_MS,
        config=a_config(**settings),
    )


def test_e84_segments_go_when_their_newest_record_is_old() -> None:
    """E84: by the times of records; no file is ever looked at."""
    segments = three_segments(TIME_MS - DAY_MS - 1, TIME_MS - DAY_MS, TIME_MS)

    assert expired(segments, retention_ms=DAY_MS) == 1
    assert expired(segments, retention_ms=DAY_MS - 1) == 2


def test_the_active_segment_stays_however_old_it_is() -> None:
    assert expired(three_segments(0, 0, 0), retention_ms=DAY_MS) == 2


def test_retention_of_minus_one_keeps_everything() -> None:
    assert expired(three_segments(0, 0, 0), retention_ms=-1) == 0


def test_f92_a_record_from_the_future_keeps_its_segment_and_all_that_follow() -> None:
    """F92: none of them is removed out of order, so there is never a hole."""
    segments = three_segments(0, TIME_MS + 100 * DAY_MS, 0)

    assert expired(segments, retention_ms=DAY_MS) == 1


def test_records_without_a_time_are_kept() -> None:
    assert expired(three_segments(-1, 0, 0), retention_ms=DAY_MS) == 0


@pytest.mark.parametrize(
    ("limit", "count"), [(300, 0), (299, 0), (200, 1), (199, 1), (101, 1), (100, 2), (0, 2)]
)
def test_segments_go_while_the_rest_is_still_as_large_as_the_limit(limit: int, count: int) -> None:
    """Kafka drops a segment only if what remains still reaches `retention.bytes`."""
    segments = three_segments(TIME_MS, TIME_MS, TIME_MS)

    assert expired(segments, retention_bytes=limit) == count


@pytest.mark.parametrize(("high_watermark", "count"), [(9, 0), (10, 1), (19, 1), (20, 2)])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, count: int) -> None:
    segments = three_segments(0, 0, 0)

    assert expired(segments, high_watermark=high_watermark, retention_ms=DAY_MS) == count


def test_a_compacted_topic_loses_no_segments() -> None:
    segments = three_segments(0, 0, 0)

    assert expired(segments, cleanup_policy=("compact",), retention_ms=DAY_MS) == 0
    assert expired(segments, cleanup_policy=("compact", "delete"), retention_ms=DAY_MS) == 2
