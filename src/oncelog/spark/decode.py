"""Record batches become rows: the hot loop of the source.

One pass in Python follows the lengths of the records, and skips over runs of equal ones. Everything
else is read for all records at once with numpy. Keys and values stay where they are: their
boundaries, key start, key end, value start, value end, next key start, ascend through the bytes of
the batches, so that *one* Arrow array over those bytes holds them all, and every other element of
it is a key or a value. No record becomes a Python object.

Whoever sent the bytes may have sent anything: every length is checked before it is followed, and
what does not add up is a `CorruptMessage`, never a row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.core.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, Buffer
from oncelog.core.errors import CorruptMessage
from oncelog.core.packing import UNPACKED_MAX_BYTES, codec_of, decompress
from oncelog.core.records import read_varint
from oncelog.core.types import TopicPartition

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Batch: TypeAlias = tuple[BatchHeader, memoryview]

_COLUMNS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
_HEADER_FIELDS: Final = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_HEADERS: Final = pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS)))

#: The rows as Arrow has them, without and with headers.
SCHEMA: Final = pa.schema(_COLUMNS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_COLUMNS, pa.field("headers", _HEADERS)])

#: How many bytes of records become one Arrow batch; only a record batch above it makes a larger one.
CHUNK_BYTES: Final = 8 * 1024 * 1024

#: Seven fields of at least one byte each.
_RECORD_MIN_BYTES: Final = 7
#: So many records are followed one by one before a run of equal ones is looked for.
_STEP: Final = 64
#: What the length of a record takes at most.
_LENGTH_MAX_BYTES: Final = 5
#: Zeros behind the records: whatever begins inside them ends here.
_PADDING: Final = bytes(16)
_OFFSET_MAX: Final = (1 << 63) - 2
#: What fits into an int64 when it is counted in microseconds.
_TIME_MAX_MS: Final = (1 << 63) // 1000 - 1


def decode(
    batches: Sequence[Batch],
    place: TopicPartition,
    *,
    start: int = 0,
    end: int = (1 << 63) - 1,
    include_headers: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The rows of some batches, in the order of their offsets, from `start` on and before `end`."""
    chunk: list[tuple[BatchHeader, Buffer]] = []
    size = 0
    for header, batch in batches:
        content = decompress(codec_of(header), batch[HEADER_BYTES:], UNPACKED_MAX_BYTES)
        if chunk and size + len(content) > chunk_bytes:
            yield _rows(chunk, place, start, end, include_headers)
            chunk, size = [], 0
        chunk.append((header, content))
        size += len(content)
    if chunk:
        yield _rows(chunk, place, start, end, include_headers)


def _rows(
    chunk: Sequence[tuple[BatchHeader, Buffer]],
    place: TopicPartition,
    start: int,
    end: int,
    include_headers: bool,
) -> pa.RecordBatch:
    content = b"".join([*(body for _, body in chunk), _PADDING])
    records = _Records.of(chunk, content)
    first, last = np.searchsorted(records.offsets, [start, end])
    records = records.cut(int(first), int(last))
    count = len(records.offsets)
    keys, values = _pairs(content, records.keys, records.values)
    columns = [
        keys,
        values,
        pa.repeat(pa.scalar(place.topic, pa.string()), count),
        pa.array(np.full(count, place.partition, np.int32)),
        pa.array(records.offsets),
        pa.array(records.timestamps * 1000).cast(pa.timestamp("us", tz="UTC")),
        pa.array(records.timestamp_types),
    ]
    if not include_headers:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return pa.RecordBatch.from_arrays(
        [*columns, _headers(content, records)], schema=SCHEMA_WITH_HEADERS
    )


# --- fields ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spans:
    """Where a field lies in each record; a null is empty and not valid."""

    starts: Ints
    ends: Ints
    are_valid: Flags

    def cut(self, first: int, last: int) -> "_Spans":
        return _Spans(self.starts[first:last], self.ends[first:last], self.are_valid[first:last])


@dataclass(frozen=True, slots=True)
class _Records:
    """Every field of some records, one array each."""

    offsets: Ints
    timestamps: Ints
    timestamp_types: npt.NDArray[np.int32]
    keys: _Spans
    values: _Spans
    header_counts: Ints
    headers_at: Ints
    ends: Ints

    @staticmethod
    def of(chunk: Sequence[tuple[BatchHeader, Buffer]], content: bytes) -> "_Records":
        """Read all fields but the headers' own."""
        starts, ends = _boundaries(chunk, content)
        view = np.frombuffer(content, np.uint8)
        time_deltas, at = _varints(view, starts + 1)
        offset_deltas, at = _varints(view, at)
        keys, at = _spans(view, at, ends)
        values, at = _spans(view, at, ends)
        counts, at = _varints(view, at)
        if (at > ends).any() or ((counts == 0) & (at != ends)).any() or (counts < 0).any():
            raise CorruptMessage("a record does not end where its length says")
        offsets, timestamps, types = _placed(chunk, offset_deltas, time_deltas)
        return _Records(offsets, timestamps, types, keys, values, counts, at, ends)

    def cut(self, first: int, last: int) -> "_Records":
        """Only some of them."""
        if first == 0 and last == len(self.offsets):
            return self
        return _Records(
            self.offsets[first:last],
            self.timestamps[first:last],
            self.timestamp_types[first:last],
            self.keys.cut(first, last),
            self.values.cut(first, last),
            self.header_counts[first:last],
            self.headers_at[first:last],
            self.ends[first:last],
        )


def _boundaries(chunk: Sequence[tuple[BatchHeader, Buffer]], content: bytes) -> tuple[Ints, Ints]:
    """Where each record begins, behind its length, and where it ends."""
    view = np.frombuffer(content, np.uint8)
    found: list[Ints] = []
    position = 0
    for header, body in chunk:
        end = position + len(body)
        if not 0 <= header.records_count <= len(body) // _RECORD_MIN_BYTES:
            raise CorruptMessage(
                f"the batch at {header.base_offset} claims {header.records_count} records in "
                f"{len(body)} bytes"
            )
        found += _walk(content, view, position, end, header.records_count)
        position = end
    lengths, starts = _varints(view, np.concatenate(found) if found else np.empty(0, np.int64))
    if (lengths < _RECORD_MIN_BYTES - 1).any():
        raise CorruptMessage("a record is too short to be one")
    return starts, starts + lengths


def _walk(
    content: bytes, view: npt.NDArray[np.uint8], position: int, end: int, count: int
) -> Iterator[Ints]:
    """Where the lengths of `count` records are, which fill the bytes up to `end`."""
    while count > 0:
        found, following = _follow(content, position, min(count, _STEP))
        yield np.array(found, np.int64)
        count -= len(found)
        position, stride = following, following - found[-1]
        if count > 0 and len(found) > 1 and stride == found[-1] - found[-2]:
            run = _run(view, position, stride, min(count, (end - position) // stride))
            yield np.arange(position, position + run * stride, stride, dtype=np.int64)
            count -= run
            position += run * stride
    if position != end:
        raise CorruptMessage(f"the records of a batch end at byte {position} instead of {end}")


def _follow(content: bytes, position: int, count: int) -> tuple[list[int], int]:
    """One length after the other: the only loop over records, so it checks nothing twice.

    It never goes back and reads no byte that is not there. That the lengths make sense and lead to
    the end of the batch is for the caller to see.
    """
    found: list[int] = []
    append = found.append
    try:
        for _ in range(count):
            append(position)
            byte = content[position]
            if byte < 128:
                position += (byte >> 1) + 1
                continue
            second = content[position + 1]
            if second < 128:
                position += ((byte & 127 | second << 7) >> 1) + 2
                continue
            length, position = read_varint(content, position)
            position += max(length, 0)
    except IndexError:
        raise CorruptMessage("a record is longer than its batch") from None
    return found, position


def _run(view: npt.NDArray[np.uint8], position: int, stride: int, count: int) -> int:
    """How many of the next `count` records are exactly as long as the one before them.

    A record that follows one of the same length begins `stride` bytes behind it; if the same length
    stands there too, so does the next.
    """
    prefix = view[position - stride : position][:_LENGTH_MAX_BYTES]
    prefix = prefix[: int(np.argmax(prefix < 128)) + 1]
    done, step = 0, _STEP
    while done < count:
        step = min(step * 4, count - done)
        at = position + done * stride
        table = view[at : at + step * stride].reshape(step, stride)
        same = table[:, 0] == prefix[0]
        for place in range(1, len(prefix)):
            same &= table[:, place] == prefix[place]
        if not same.all():
            return done + int(same.argmin())
        done += step
    return done


def _varints(view: npt.NDArray[np.uint8], at: Ints) -> tuple[Ints, Ints]:
    """Zig-zag LEB128 integers at these positions, all inside the records, and where each ends."""
    byte = view[at]
    raw = (byte & 127).astype(np.uint64)
    after = at + 1
    (left,) = np.nonzero(byte & 128)
    shift = 7
    while len(left):
        byte = view[after[left]]
        if shift == 63 and (byte > 1).any():
            raise CorruptMessage("a variable-length integer in a record does not end")
        raw[left] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        after[left] += 1
        left = left[byte >= 128]
        shift += 7
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), after


def _spans(view: npt.NDArray[np.uint8], at: Ints, ends: Ints) -> tuple[_Spans, Ints]:
    """Fields that begin with their length, each inside its record, and where each ends."""
    lengths, starts = _varints(view, at)
    are_valid = lengths >= 0
    # Compared with what is left and not added up: a length may be anything.
    if (lengths > ends - starts).any() or (lengths < -1).any() or (starts > ends).any():
        raise CorruptMessage("a field is longer than its record")
    after = starts + np.maximum(lengths, 0)
    return _Spans(starts, after, are_valid), after


def _placed(
    chunk: Sequence[tuple[BatchHeader, Buffer]], offset_deltas: Ints, time_deltas: Ints
) -> tuple[Ints, Ints, npt.NDArray[np.int32]]:
    """Offsets, times and kinds of time: what the records say, on top of what their batches say."""
    headers = [header for header, _ in chunk]
    if any(header.base_offset < 0 or header.last_offset > _OFFSET_MAX for header in headers):
        raise CorruptMessage("a batch has an offset that no log can have")
    counts = [header.records_count for header in headers]

    def each(values: list[int]) -> Ints:
        return np.repeat(np.array(values, np.int64), counts)

    last_deltas = each([header.last_offset_delta for header in headers])
    if (offset_deltas < 0).any() or (offset_deltas > last_deltas).any():
        raise CorruptMessage("a record has an offset outside of its batch")
    offsets = each([header.base_offset for header in headers]) + offset_deltas
    if (offsets[1:] <= offsets[:-1]).any():
        raise CorruptMessage("the offsets of the records do not ascend")
    is_append_time = each([header.attributes & LOG_APPEND_TIME for header in headers]) != 0
    base_times = each([header.base_timestamp for header in headers])
    timestamps = base_times + time_deltas
    if is_append_time.any():
        # The broker stamps the batch alone; every record in it was appended at that time.
        append_times = each([header.max_timestamp for header in headers])
        timestamps = np.where(is_append_time, append_times, timestamps)
    for times in (base_times, timestamps):
        if (times > _TIME_MAX_MS).any() or (times < -_TIME_MAX_MS).any():
            raise CorruptMessage("a record has a timestamp that no calendar knows")
    return offsets, timestamps, is_append_time.astype(np.int32)


# --- columns --------------------------------------------------------------------------------------


def _pairs(content: bytes, firsts: _Spans, seconds: _Spans) -> tuple[Any, Any]:
    """Two columns whose fields lie behind one another in each record, over the same bytes."""
    count = len(firsts.starts)
    boundaries = np.empty(4 * count + 1, np.int32)
    boundaries[0:-1:4] = firsts.starts
    boundaries[1::4] = firsts.ends
    boundaries[2::4] = seconds.starts
    boundaries[3::4] = seconds.ends
    boundaries[-1] = boundaries[-2] if count else 0
    everything = pa.BinaryArray.from_buffers(
        pa.binary(), 4 * count, [None, pa.py_buffer(boundaries), pa.py_buffer(content)]
    )
    return _picked(everything, 0, firsts.are_valid), _picked(everything, 2, seconds.are_valid)


def _picked(everything: Any, first: int, are_valid: Flags) -> Any:
    """Every fourth element, and null where there is none."""
    places = np.arange(first, len(everything), 4, dtype=np.int32)
    return everything.take(pa.array(places, mask=None if are_valid.all() else ~are_valid))


def _headers(content: bytes, records: _Records) -> Any:
    """The headers of each record as a list; null where there are none, as Spark's source has it."""
    counts = records.header_counts
    keys, values = _header_spans(content, records)
    names, contents = _pairs(content, keys, values)
    boundaries = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    pairs = pa.StructArray.from_arrays([_as_text(names), contents], fields=_HEADER_FIELDS)
    return pa.ListArray.from_arrays(
        pa.array(boundaries), pairs, type=_HEADERS, mask=pa.array(counts == 0)
    )


def _header_spans(content: bytes, records: _Records) -> tuple[_Spans, _Spans]:
    """Where the headers are: first the first of each record, then the second, and then in order."""
    view = np.frombuffer(content, np.uint8)
    if (records.header_counts > (records.ends - records.headers_at) // 2).any():
        raise CorruptMessage("a record claims more headers than it has room for")
    (left,) = np.nonzero(records.header_counts)
    at, ends = records.headers_at[left], records.ends[left]
    owners: list[Ints] = [np.empty(0, np.int64)]
    keys: list[_Spans] = []
    values: list[_Spans] = []
    number = 0
    while len(left):
        found, at = _spans(view, at, ends)
        if not found.are_valid.all():
            raise CorruptMessage("a header has no key")
        keys.append(found)
        found, at = _spans(view, at, ends)
        values.append(found)
        owners.append(left)
        number += 1
        is_last = records.header_counts[left] == number
        if (at[is_last] != ends[is_last]).any():
            raise CorruptMessage("a record does not end where its length says")
        left, at, ends = left[~is_last], at[~is_last], ends[~is_last]
    order = np.argsort(np.concatenate(owners), kind="stable")
    return _joined(keys, order), _joined(values, order)


def _joined(parts: list[_Spans], order: Ints) -> _Spans:
    if not parts:
        return _Spans(order, order, order == 0)
    return _Spans(
        np.concatenate([part.starts for part in parts])[order],
        np.concatenate([part.ends for part in parts])[order],
        np.concatenate([part.are_valid for part in parts])[order],
    )


def _as_text(names: Any) -> Any:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Kafka says UTF-8 and checks nothing: what is none is shown as well as it can be.
        texts = [name.decode("utf-8", "replace") for name in names.to_pylist()]
        return pa.array(texts, pa.string())
