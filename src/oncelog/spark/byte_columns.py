"""Columns of bytes: their lengths, varints made from numbers, and many columns joined to one.

All of them are Arrow arrays of type large_binary, whose 64-bit offsets no batch outgrows.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

BYTES: Final = pa.large_binary()

#: A column, and for each row of the result the element to take from it (a number: always that one).
Pick = tuple[pa.Array, NDArray[np.int64] | int]


def as_bytes(column: pa.Array) -> pa.Array:
    """Any column of strings or bytes."""
    return column if column.type == BYTES else column.cast(BYTES)


def offsets_of(column: pa.Array) -> NDArray[np.int64]:
    """Where each element starts in the data; one more than there are elements."""
    if len(column) == 0:
        return np.zeros(1, np.int64)
    every = np.frombuffer(column.buffers()[1], np.int64)
    return every[column.offset : column.offset + len(column) + 1]


def data_of(column: pa.Array) -> NDArray[np.uint8]:
    """The bytes that the offsets speak of."""
    data = column.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def lengths(column: pa.Array) -> NDArray[np.int64]:
    """The length of each element, -1 for a null, as records spell it."""
    sizes = np.diff(offsets_of(column))
    if column.null_count:
        sizes[np.asarray(column.is_null())] = -1
    return sizes


def from_offsets(offsets: NDArray[np.int64], data: Any) -> pa.Array:
    """A column without nulls over a buffer that exists."""
    return pa.Array.from_buffers(BYTES, len(offsets) - 1, [None, pa.py_buffer(offsets), data])


def stable_order(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows by their numbers, none negative; equal ones stay in order."""
    # Numbers of 16 bits are sorted in linear time.
    narrow = numbers.astype(np.uint16) if numbers.max() <= 0xFFFF else numbers
    return np.argsort(narrow, kind="stable")


def join(*picks: Pick) -> pa.Array:
    """Row by row, what was picked from each column, end to end; a null adds nothing."""
    source = pa.concat_arrays([column for column, _ in picks])
    rows_count = max(np.size(rows) for _, rows in picks)
    wanted = np.empty((rows_count, len(picks)), np.int64)
    base = 0
    for place, (column, rows) in enumerate(picks):
        np.add(rows, base, out=wanted[:, place])
        base += len(column)
    pieces = pc.take(source, pa.array(wanted.reshape(-1)), boundscheck=False)
    offsets = np.ascontiguousarray(offsets_of(pieces)[:: len(picks)])
    return from_offsets(offsets, pieces.buffers()[2])


def replaced(column: pa.Array, rows: NDArray[np.int64], new: pa.Array) -> pa.Array:
    """The column with new elements at some rows."""
    wanted = np.arange(len(column))
    wanted[rows] = len(column) + np.arange(len(new))
    return pc.take(pa.concat_arrays([column, new]), pa.array(wanted))


def varint_widths(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bytes each number takes as a varint."""
    left = _zigzag(values)
    widths = np.ones(len(values), np.int64)
    while (left := left >> np.uint64(7)).any():
        widths += left > 0
    return widths


def varints(*columns: NDArray[np.int64]) -> pa.Array:
    """Row by row, the numbers of all columns as zig-zag LEB128, end to end."""
    cells: list[NDArray[np.uint64]] = []
    present: list[NDArray[np.bool_] | None] = []  # None: in every row
    for values in columns:
        left, there = _zigzag(values), None
        while (more := left > 127).any():
            cells.append(left | (more * np.uint64(128)))
            present.append(there)
            left, there = left >> np.uint64(7), None if more.all() else more
        cells.append(left)
        present.append(there)
    grid = np.empty((len(cells[0]), len(cells)), np.uint8)
    for place, cell in enumerate(cells):
        np.copyto(grid[:, place], cell, casting="unsafe")  # the lowest eight bits
    offsets = np.arange(0, grid.size + 1, len(cells))
    if all(there is None for there in present):
        return from_offsets(offsets, pa.py_buffer(grid))
    kept = np.ones(grid.shape, np.bool_)
    for place, there in enumerate(present):
        if there is not None:
            kept[:, place] = there
            np.subtract(offsets[1:], np.cumsum(~there), out=offsets[1:])
    return from_offsets(offsets, pa.py_buffer(grid[kept]))


def _zigzag(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)
