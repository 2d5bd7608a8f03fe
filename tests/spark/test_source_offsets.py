"""Positions are written and read back; limits and splits lose nothing."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.fetching import Range
from oncelog.core.types import TopicPartition
from oncelog.spark.offsets import BadOffsets, Position, limited, offset_count, split
from oncelog.spark.planning import ranges_between

places = st.builds(TopicPartition, st.sampled_from(["a", "b", "$"]), st.integers(0, 12))
positions = st.dictionaries(places, st.integers(0, 1000), max_size=8)
ID, OTHER = UUID(int=1), UUID(int=2)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@given(positions)
def test_a_position_is_read_back_as_it_was_written(offsets: dict[TopicPartition, int]) -> None:
    ids = {place.topic: ID for place in offsets}
    position = Position(offsets=offsets, ids=ids)

    assert Position.from_json(position.to_json()) == position
    assert Position.from_json(Position(offsets=offsets).to_json()).offsets == offsets


def test_partitions_are_written_in_the_order_of_their_numbers() -> None:
    position = Position(offsets={TopicPartition("t", n): n for n in (10, 9)}, ids={"t": ID})

    assert list(position.to_json()["t"]) == ["9", "10"]


@pytest.mark.parametrize("written", [[], {"t": 1}, {"t": {"0": "1"}}, {"$ids": {"t": "x"}}])
def test_what_is_no_position_is_refused(written: object) -> None:
    with pytest.raises(BadOffsets):
        Position.from_json(written)


@given(positions, positions, st.integers(1, 500))
def test_limits_keep_to_the_number_and_go_on(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], most: int
) -> None:
    end = {place: max(offset, start.get(place, 0)) for place, offset in end.items()}

    nearer = limited(start, end, most)

    lagging = [place for place in end if end[place] > start.get(place, 0)]
    # One offset for each that lags, should there be more of these than the limit.
    assert offset_count(start, nearer) <= most + len(lagging)
    assert all(start.get(place, 0) < nearer[place] <= end[place] for place in lagging)
    assert all(nearer[place] == end[place] for place in end.keys() - set(lagging))


def test_limits_are_shared_out_by_lag() -> None:
    assert limited({P0: 0, P1: 100}, {P0: 300, P1: 200}, 40) == {P0: 30, P1: 110}


def wanted(start: int, end: int, partition: int = 0) -> Range:
    return Range(topic="t", partition=partition, start=start, end=end, topic_id=ID)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 90)), max_size=5),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
)
def test_a_split_has_the_same_offsets(
    borders: list[tuple[int, int]], parts: int | None, most: int | None
) -> None:
    ranges = [wanted(start, start + size, n) for n, (start, size) in enumerate(borders)]

    found = split(ranges, min_parts=parts, max_offsets=most)

    def all_offsets(some: list[Range]) -> list[tuple[int, int]]:
        return [(each.partition, n) for each in some for n in range(each.start, each.end)]

    assert all_offsets(found) == all_offsets(ranges)
    assert all(0 < each.size <= (most or each.size) and each.topic_id == ID for each in found)


def test_a_split_follows_the_sizes() -> None:
    assert split([wanted(0, 30), wanted(0, 10, 1)], min_parts=4) == [
        wanted(0, 10), wanted(10, 20), wanted(20, 30), wanted(0, 10, 1),
    ]  # fmt: skip


def test_new_partitions_and_new_topics_begin_at_their_beginning() -> None:
    start = Position(offsets={P0: 5}, ids={"t": ID})

    grown = ranges_between(start, Position(offsets={P0: 7, P1: 3}, ids={"t": ID}))
    replaced = ranges_between(start, Position(offsets={P0: 7}, ids={"t": OTHER}))
    of_spark = ranges_between(Position(offsets={P0: 5}), Position(offsets={P0: 7}, ids={"t": ID}))

    assert [(each.start, each.end) for each in grown] == [(5, 7), (0, 3)]
    assert [(each.start, each.end) for each in replaced] == [(0, 7)]
    assert [(each.start, each.end) for each in of_spark] == [(5, 7)]
