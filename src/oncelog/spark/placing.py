"""The rows of one upstream partition get their slots, and those that cannot have one are found."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oncelog.spark.byte_columns import BYTES, as_bytes, replaced
from oncelog.spark.encode import NO_HEADERS, Rows, alone_bytes
from oncelog.spark.headers import of_row, pack_column
from oncelog.spark.placement import Sticky, place
from oncelog.spark.rejects import Letter, Reject, letter
from oncelog.spark.write_plan import TopicPlan, WritePlan


class Placing:
    """An upstream task: it places its rows the same way whenever it runs again."""

    def __init__(self, plan: WritePlan, origin: int) -> None:
        self._plan = plan
        self._origin = origin
        self._names = plan.names
        self._partitions = np.array([topic.partitions for topic in plan.topics])
        self._first_slots = np.array([topic.first_slot for topic in plan.topics])
        self._limits = np.array([topic.max_message_bytes for topic in plan.topics])
        start = origin + plan.turn
        self._sticky = [Sticky(partitions=t.partitions, start=start) for t in plan.topics]
        self._seen = 0

    def place(self, batch: pa.RecordBatch) -> Rows:
        """The rows with their slots; one that cannot be written becomes a letter or an error."""
        keys = as_bytes(_column(batch, "key"))
        found = self._find_topics(_column(batch, "topic"))
        topics = np.maximum(found, 0)
        partitions = self._place(keys, topics, _column(batch, "partition"))
        headers, keyless = pack_column(_column(batch, "headers"))
        rows = Rows(
            slots=self._first_slots[topics] + partitions,
            timestamps=_milliseconds(_column(batch, "timestamp")),
            keys=keys,
            values=as_bytes(batch.column("value")),
            headers=headers,
            rejected=np.zeros(len(batch), np.bool_),
        )
        sizes = alone_bytes(rows)
        reasons = _reasons(
            (found < 0, lambda row: self._unknown_topic(batch, row)),
            (
                (partitions < 0) | (partitions >= self._partitions[topics]),
                lambda row: _no_partition(int(partitions[row]), self._plan.topics[topics[row]]),
            ),
            (
                sizes > self._limits[topics],
                lambda row: _too_large(int(sizes[row]), self._plan.topics[topics[row]]),
            ),
            (keyless, lambda row: "one of its headers has no key"),
            (
                rows.timestamps < 0,
                lambda row: f"its timestamp, {rows.timestamps[row]} ms, is before 1970",
            ),
        )
        if reasons:
            rows = self._rejecting(rows, batch, reasons)
        self._seen += len(batch)
        return rows

    def _find_topics(self, named: pa.Array) -> NDArray[np.int64]:
        """Each row's place among the declared topics, -1 for any other topic or none."""
        default = self._plan.default_topic
        otherwise = -1 if default is None else self._names.index(default)
        found = np.full(len(named), otherwise)
        if named.null_count < len(named):
            rows = np.flatnonzero(np.asarray(named.is_valid()))
            places = pc.index_in(named.cast(pa.string()), value_set=pa.array(self._names))
            found[rows] = np.asarray(places.fill_null(-1))[rows]
        return found

    def _place(
        self, keys: pa.Array, topics: NDArray[np.int64], wanted: pa.Array
    ) -> NDArray[np.int64]:
        """The partition that each row wants, or else the one that its key or its turn gives it."""
        partitions = place(keys, self._partitions[topics])
        free = np.asarray(pc.and_(wanted.is_null(), keys.is_null()))
        if free.any():
            for topic, sticky in enumerate(self._sticky):
                rows = np.flatnonzero(free & (topics == topic))
                partitions[rows] = sticky.place(len(rows))
        if wanted.null_count == len(wanted):
            return partitions
        asked = np.asarray(wanted.cast(pa.int64()).fill_null(0))
        return np.where(np.asarray(wanted.is_valid()), asked, partitions)

    def _unknown_topic(self, batch: pa.RecordBatch, row: int) -> str:
        topic = _column(batch, "topic")[row].as_py()
        if topic is None:
            return "it names no topic, and there is no default one"
        return f"topic {topic!r} is not declared; the sink writes to {', '.join(self._names)}"

    def _rejecting(self, rows: Rows, batch: pa.RecordBatch, reasons: Mapping[int, str]) -> Rows:
        """The rows with letters to the dead-letter topic in place of the bad ones."""
        rejects = (self._reject(rows, batch, row, reason) for row, reason in reasons.items())
        if self._plan.dead_letters is None:
            raise next(rejects).error(self._origin)
        home = self._plan.topic(self._plan.dead_letters)
        letters = []
        for reject in rejects:
            written = letter(reject, max_message_bytes=home.max_message_bytes)
            if written is None:
                raise reject.error(self._origin)
            letters.append(written)
        return self._with_letters(rows, np.array(list(reasons)), letters, home)

    def _reject(self, rows: Rows, batch: pa.RecordBatch, row: int, reason: str) -> Reject:
        topic = _column(batch, "topic")[row].as_py()
        return Reject(
            reason=reason,
            number=self._seen + row,
            topic=self._plan.default_topic if topic is None else topic,
            partition=_column(batch, "partition")[row].as_py(),
            key=rows.keys[row].as_py(),
            value=rows.values[row].as_py(),
            headers=of_row(_column(batch, "headers"), row),
        )

    def _with_letters(
        self, rows: Rows, bad: NDArray[np.int64], letters: list[Letter], home: TopicPlan
    ) -> Rows:
        keys = pa.array([letter.key for letter in letters], BYTES)
        no_places = pa.nulls(len(bad))
        topics = np.full(len(bad), self._names.index(home.name))
        slots, times, rejected = rows.slots.copy(), rows.timestamps.copy(), rows.rejected.copy()
        slots[bad] = home.first_slot + self._place(keys, topics, no_places)
        times[times < 0] = _now_ms()
        rejected[bad] = True
        headers = rows.headers
        if headers is None:
            headers = pa.repeat(NO_HEADERS[0], len(slots))
        return Rows(
            slots=slots,
            timestamps=times,
            keys=replaced(rows.keys, bad, keys),
            values=replaced(rows.values, bad, pa.array([x.value for x in letters], BYTES)),
            headers=replaced(headers, bad, pa.array([x.headers for x in letters], BYTES)),
            rejected=rejected,
        )


def _reasons(
    *checks: tuple[NDArray[np.bool_], Callable[[int], str]],
) -> dict[int, str]:
    """What is wrong with each bad row, in their order; the first check that fails says it."""
    reasons: dict[int, str] = {}
    for failed, sentence in checks:
        for row in np.flatnonzero(failed).tolist():
            if row not in reasons:
                reasons[row] = sentence(row)
    return dict(sorted(reasons.items()))


def _no_partition(partition: int, topic: TopicPlan) -> str:
    return f"partition {partition} does not exist: topic {topic.name!r} has {topic.partitions}"


def _too_large(size: int, topic: TopicPlan) -> str:
    return (
        f"it takes {size} bytes as a batch, and topic {topic.name!r} allows "
        f"{topic.max_message_bytes} (max.message.bytes)"
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column of that name; all nulls where there is none."""
    place = batch.schema.get_field_index(name)
    return pa.nulls(len(batch)) if place < 0 else batch.column(place)


def _milliseconds(column: pa.Array) -> NDArray[np.int64]:
    if column.null_count == len(column):
        return np.full(len(column), _now_ms())
    if pa.types.is_timestamp(column.type):
        # Microseconds are cut off, never rounded up into the future.
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return np.asarray(column.fill_null(_now_ms()))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
