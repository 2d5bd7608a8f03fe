"""Rows go where Kafka's clients would send them."""

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.placement import Sticky, murmur2, place


def column(keys: list[bytes | None]) -> pa.Array:
    return pa.array(keys, pa.large_binary())


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # from the tests of Apache Kafka's own Utils.murmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(column([key])).astype(np.int32).tolist() == [expected]


@given(st.lists(st.none() | st.binary(max_size=40), max_size=60))
def test_any_keys_hash_as_another_client_hashes_them(keys: list[bytes | None]) -> None:
    hashes = murmur2(column(keys)).tolist()

    assert hashes == [murmur2_of_aiokafka(key or b"") & 0xFFFFFFFF for key in keys]


def test_many_keys_of_many_sizes_hash_as_one_by_one() -> None:
    random = np.random.default_rng(5)
    keys = [random.bytes(int(size)) for size in random.integers(0, 90, 500)]
    keys += [random.bytes(70_001), b"", random.bytes(1_003)]

    hashes = murmur2(column([b"left out", *keys]).slice(1)).tolist()

    assert hashes == [murmur2_of_aiokafka(key) & 0xFFFFFFFF for key in keys]


def test_what_lies_under_a_null_is_not_hashed() -> None:
    hidden = pa.Array.from_buffers(
        pa.large_binary(),
        2,
        [
            pa.py_buffer(b"\x02"),
            pa.py_buffer(np.array([0, 6, 9], np.int64)),
            pa.py_buffer(b"hiddenabc"),
        ],
    )

    assert murmur2(hidden).tolist() == murmur2(column([b"", b"abc"])).tolist()


def test_a_partition_is_the_positive_hash_modulo_their_number() -> None:
    keys = column([b"21", b"abc"])

    assert place(keys, 7).tolist() == [(-973932308 & 0x7FFFFFFF) % 7, 479470107 % 7]
    assert place(keys, np.array([1, 10])).tolist() == [0, 479470107 % 10]


def test_rows_without_a_key_stay_for_a_stretch_and_move_on() -> None:
    sticky = Sticky(partitions=3, start=4, stretch_rows=2)

    first, second = sticky.place(3), sticky.place(4)

    assert [*first.tolist(), *second.tolist()] == [1, 1, 2, 2, 0, 0, 1]
