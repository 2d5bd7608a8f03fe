"""From rows to record batches: what runs in front of the shuffle of a write.

Upstream tasks place their rows and make whole record batches of them, one column of bytes; the
shuffle moves few large blobs, and the writing task only stamps and sends. Nothing here has a
side effect, so such a task may run as often as Spark likes. Where rows have to be sorted between
(`order_by`), `placer` stops half way and `encode_placed` goes on behind the sort.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import IntegerType, StructType

from oncelog.spark.byte_columns import as_bytes
from oncelog.spark.encode import Encoded, Encoder, Rows
from oncelog.spark.placing import Placing
from oncelog.spark.rejects import BadRow
from oncelog.spark.worker import settle
from oncelog.spark.write_plan import TopicPlan, WritePlan
from oncelog.spark.write_schema import WrongColumns, check_schema

__all__ = [
    "ENCODED_SCHEMA",
    "BadRow",
    "Stage",
    "TopicPlan",
    "WritePlan",
    "WrongColumns",
    "check_schema",
    "encode_placed",
    "encoder",
    "placed_schema",
    "placer",
]

#: A function for `DataFrame.mapInArrow`.
Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: One record batch in each row; `number` counts those of one slot and one upstream task from 0.
ENCODED_SCHEMA: Final = (
    "writer int, slot int, origin int, number bigint, records int, rejected int, batch binary"
)

#: What one Arrow batch on its way to the shuffle holds, or a little more.
PORTION_BYTES: Final = 1024 * 1024

_ENCODED: Final = pa.schema(
    {
        "writer": pa.int32(),
        "slot": pa.int32(),
        "origin": pa.int32(),
        "number": pa.int64(),
        "records": pa.int32(),
        "rejected": pa.int32(),
        "batch": pa.binary(),
    }
)
_RECORD: Final = pa.struct(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.binary(),
        "timestamp": pa.int64(),
        "rejected": pa.bool_(),
    }
)


def encoder(plan: WritePlan) -> Stage:
    """Rows to record batches (`ENCODED_SCHEMA`)."""
    return partial(_encode_rows, plan)


def placer(plan: WritePlan, *, keep: Sequence[str]) -> Stage:
    """Rows to rows that know their slot (`placed_schema`), with the columns to sort them by."""
    return partial(_place_rows, plan, tuple(keep))


def encode_placed(plan: WritePlan) -> Stage:
    """Rows of `placer`, sorted or not, to record batches (`ENCODED_SCHEMA`)."""
    return partial(_encode_placed_rows, plan)


def placed_schema(schema: StructType, *, keep: Sequence[str]) -> StructType:
    """What `placer` makes of a DataFrame: the record, its place, and the kept columns as they were."""
    record = from_arrow_type(_RECORD)
    placed = StructType().add("writer", IntegerType()).add("slot", IntegerType())
    placed.add("record", record)
    for name in keep:
        if name in placed.fieldNames():
            raise WrongColumns(f"rows cannot be sorted by a column named `{name}`: rename it")
        placed.add(schema[name])
    return placed


def _encode_rows(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    origin = _origin()
    task = Placing(plan, origin)
    return _encoded(plan, origin, map(task.place, batches))


def _place_rows(
    plan: WritePlan, keep: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    task = Placing(plan, _origin())
    for batch in batches:
        rows = task.place(batch)
        packed = pa.nulls(len(rows.slots), pa.binary()) if rows.headers is None else rows.headers
        columns = (rows.keys, rows.values, packed, rows.timestamps, rows.rejected)
        record = pa.StructArray.from_arrays(
            [pa.array(c).cast(f.type) for c, f in zip(columns, _RECORD, strict=True)],
            fields=list(_RECORD),
        )
        slots = rows.slots.astype(np.int32)
        placed = [pa.array(slots % np.int32(plan.writers)), pa.array(slots), record]
        yield pa.RecordBatch.from_arrays(
            placed + [batch.column(name) for name in keep], ["writer", "slot", "record", *keep]
        )


def _encode_placed_rows(
    plan: WritePlan, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return _encoded(plan, _origin(), map(_placed, batches))


def _placed(batch: pa.RecordBatch) -> Rows:
    record = batch.column("record")
    packed = record.field("headers")
    return Rows(
        slots=np.asarray(batch.column("slot")).astype(np.int64),
        timestamps=np.asarray(record.field("timestamp")),
        keys=as_bytes(record.field("key")),
        values=as_bytes(record.field("value")),
        headers=None if packed.null_count == len(packed) else as_bytes(packed.fill_null(b"\0")),
        rejected=np.asarray(record.field("rejected")),
    )


def _origin() -> int:
    settle()
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _encoded(plan: WritePlan, origin: int, parts: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    numbers: Counter[int] = Counter()
    for some in _in_portions(_encode(plan, parts)):
        yield _as_arrow(plan, origin, numbers, some)


def _encode(plan: WritePlan, parts: Iterable[Rows]) -> Iterator[Encoded]:
    encoder = Encoder(limits=plan.limits(), codec=plan.codec, transactional=plan.transactional)
    for rows in parts:
        yield from encoder.add(rows)
    yield from encoder.flush()


def _in_portions(batches: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    some: list[Encoded] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.size_bytes
        if size >= PORTION_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _as_arrow(
    plan: WritePlan, origin: int, numbers: Counter[int], batches: Sequence[Encoded]
) -> pa.RecordBatch:
    in_order = []
    for batch in batches:
        in_order.append(numbers[batch.slot])
        numbers[batch.slot] += 1
    ends = np.cumsum([0, *(batch.size_bytes for batch in batches)], dtype=np.int32)
    data = b"".join(chunk for batch in batches for chunk in batch.chunks)
    columns = {
        "writer": [batch.slot % plan.writers for batch in batches],
        "slot": [batch.slot for batch in batches],
        "origin": [origin] * len(batches),
        "number": in_order,
        "records": [batch.records for batch in batches],
        "rejected": [batch.rejected for batch in batches],
        "batch": pa.Array.from_buffers(
            pa.binary(), len(batches), [None, pa.py_buffer(ends), pa.py_buffer(data)]
        ),
    }
    return pa.RecordBatch.from_pydict(columns, schema=_ENCODED)
