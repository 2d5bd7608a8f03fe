"""Headers of records, from a column of lists to the bytes that a record ends with.

headerCount varint | { keyLength varint | key | valueLength varint | value } ...
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oncelog.core.varints import varint
from oncelog.spark.byte_columns import (
    as_bytes,
    data_of,
    from_offsets,
    join,
    lengths,
    offsets_of,
    varints,
)

#: The headers of one row; Kafka knows no header without a key.
Headers = Sequence[tuple[str, bytes | None]]


def pack_column(column: pa.Array) -> tuple[pa.Array | None, NDArray[np.bool_]]:
    """The headers of each row, None where no row has any, and the rows that lack a header's key."""
    if column.null_count == len(column):
        return None, np.zeros(len(column), np.bool_)
    counts = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
    keyless = np.zeros(len(counts), np.bool_)
    if not counts.any():
        return None, keyless
    pairs = column.flatten()
    keys = as_bytes(pc.struct_field(pairs, "key"))
    values = as_bytes(pc.struct_field(pairs, "value"))
    if keys.null_count:
        keyless[np.repeat(np.arange(len(counts)), counts)[np.asarray(keys.is_null())]] = True
    every = np.arange(len(keys))
    spelled = join(
        (varints(lengths(keys)), every),
        (keys, every),
        (varints(lengths(values)), every),
        (values, every),
    )
    ends = np.concatenate([[0], np.cumsum(counts)])
    runs = from_offsets(offsets_of(spelled)[ends], pa.py_buffer(data_of(spelled)))
    rows = np.arange(len(counts))
    return join((varints(counts), rows), (runs, rows)), keyless


def pack(headers: Headers) -> bytes:
    """The headers of one row."""
    parts = [varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (varint(len(name)), name)
        parts += (b"\1",) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def of_row(column: pa.Array, row: int) -> list[tuple[str, bytes | None]]:
    """The headers of one row as they can be written: a missing key becomes an empty one."""
    found = []
    for header in column[row].as_py() or ():
        header = header or {"key": None, "value": None}
        value = header["value"]
        content = value.encode() if isinstance(value, str) else value
        found.append((header["key"] or "", content))
    return found
