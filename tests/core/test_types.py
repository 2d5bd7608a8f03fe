"""The hash that spreads groups and transactional ids over the partitions of an internal topic."""

import pytest

from oncelog.core.types import TopicPartition, java_hash, partition_for


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("txn-0", 110810509, 9),
        ("txn-1", 110810510, 10),
        ("my-txn", -1061187895, 45),
        ("my-transactional-id", -959806496, 46),
        ("transactional-id", 510590431, 31),
        ("polygenelubricants", -2147483648, 0),
        ("\u00e9", 233, 33),
        ("\U0001f600", 1772899, 49),
    ],
)
def test_a_key_has_the_partition_that_kafka_gives_it(key: str, hashed: int, partition: int) -> None:
    """Check 42: the vectors of section 4."""
    assert java_hash(key) == hashed
    assert partition_for(key, 50) == partition


def test_a_partition_is_named_as_its_directory() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("a", 0)]) == [
        TopicPartition("a", 0),
        TopicPartition("a", 1),
        TopicPartition("b", 0),
    ]
