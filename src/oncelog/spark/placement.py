"""Which partition a row goes to: Kafka's own rule, over whole columns.

A key is hashed with murmur2 as Kafka's clients hash it, so rows meet what any other producer wrote
under the same key. Rows without a key stay with one partition for a stretch and then move on.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oncelog.spark.byte_columns import data_of, offsets_of, stable_order

#: Rows without a key that go to one partition before the next one has its turn.
STRETCH_ROWS: Final = 1000

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
#: Fewer keys than this are finished one by one: a step for all of them costs as much.
_FEW: Final = 16


def place(keys: pa.Array, partitions: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """The partition of each key; what it says for a null means nothing."""
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


@dataclass(slots=True, kw_only=True)
class Sticky:
    """Places rows without a key, the same way whenever the task runs again."""

    partitions: int
    start: int
    stretch_rows: int = STRETCH_ROWS
    placed: int = 0

    def place(self, rows: int) -> NDArray[np.int64]:
        """The partitions of the next rows."""
        turns = np.arange(self.placed, self.placed + rows) // self.stretch_rows
        self.placed += rows
        return (self.start + turns) % self.partitions


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """Kafka's murmur2 of each element of a large_binary column; a null counts as empty."""
    if len(keys) == 0:
        return np.empty(0, np.uint32)
    offsets = offsets_of(keys)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if keys.null_count:
        # What lies under a null is not ours to read.
        sizes = np.where(np.asarray(keys.is_valid()), sizes, 0)
    if sizes.min() == sizes.max():
        return _hash_by_falling_size(data_of(keys), starts, sizes)
    # In order of size the keys that still have a word left are always the first ones.
    order = stable_order(sizes.max() - sizes)
    hashes = np.empty(len(keys), np.uint32)
    hashes[order] = _hash_by_falling_size(data_of(keys), starts[order], sizes[order])
    return hashes


def _hash_by_falling_size(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint32]:
    hashes = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    # One word at every byte, not only at every fourth: keys start anywhere.
    words = np.ndarray(max(len(data) - 3, 0), "<u4", data, strides=(1,))
    counts = sizes >> 2
    longest, step, left = int(counts[0]), 0, len(counts)
    while step < longest:
        left = int(np.searchsorted(-counts[:left], -step, side="left"))
        if left < _FEW:
            break
        mixed = _mix(words[starts[:left] + 4 * step])
        hashes[:left] *= np.uint32(_M)
        hashes[:left] ^= mixed
        step += 1
    if step < longest:
        for row in range(left):
            first = int(starts[row]) + 4 * step
            rest = data[first : int(starts[row]) + 4 * int(counts[row])].copy().view("<u4")
            hashes[row] = _fold(int(hashes[row]), _mix(rest))
    return _finish(_with_tails(hashes, data, starts, sizes))


def _mix(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    words = words * np.uint32(_M)
    words ^= words >> np.uint32(24)
    words *= np.uint32(_M)
    return words


def _fold(value: int, mixed: NDArray[np.uint32]) -> int:
    for word in mixed.tolist():
        value = (value * _M & _MASK) ^ word
    return value


def _with_tails(
    hashes: NDArray[np.uint32],
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> NDArray[np.uint32]:
    tails = sizes & 3
    if not tails.any():
        return hashes
    for place in (2, 1, 0):
        rows = np.flatnonzero(tails > place)
        at = starts[rows] + (sizes[rows] & ~3) + place
        hashes[rows] ^= data[at].astype(np.uint32) << np.uint32(8 * place)
    rows = np.flatnonzero(tails)
    hashes[rows] *= np.uint32(_M)
    return hashes


def _finish(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(_M)
    hashes ^= hashes >> np.uint32(15)
    return hashes
