"""What a sink did, told where Spark tells of its queries: a listener for streaming queries.

    spark.streams.addListener(SinkMetrics(sink, report))

Spark's own progress knows what a query read. What was written, in how many tries and how long its
transaction took, the sink knows; here the two come together, batch by batch.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from oncelog.spark.offsets import BadOffsets, Position, offset_count
from oncelog.spark.sink import Sink
from oncelog.spark.steps import Event, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetrics:
    """One micro-batch of a streaming query, from its source to its commit."""

    name: str
    query_id: str
    batch: int
    input_rows: int
    #: Rows that became records, and rows that went to the dead letters.
    rows: int
    rejected: int
    #: From the first try to the confirmed commit.
    seconds: float
    attempts: int
    #: Whether it had been committed before, so that nothing was written now.
    was_done: bool
    #: Offsets that were still to be read; None if a source does not tell.
    lag: int | None


class SinkMetrics(StreamingQueryListener):
    """Calls `report` with the metrics of each batch of one sink, when Spark reports its progress."""

    def __init__(self, sink: Sink, report: Callable[[BatchMetrics], None]) -> None:
        """Add it to `spark.streams` before the query starts."""
        self._sink = sink
        self._report = report
        #: What happened in batches that Spark has not reported yet. Two threads use it.
        self._ends: dict[int, Event] = {}
        self._retries: dict[int, int] = {}
        self._lock = threading.Lock()
        sink.watched_by(self._note)

    def _note(self, event: Event) -> None:
        if event.batch is None:
            return
        with self._lock:
            if event.step is Step.RETRIED:
                self._retries[event.batch] = self._retries.get(event.batch, 0) + 1
            elif event.step in (Step.COMMITTED, Step.SKIPPED):
                self._ends[event.batch] = event

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Spark is done with a batch, or tells that there is none."""
        progress = event.progress
        owner = self._sink.writer.progress
        # One listener hears of all queries.
        if owner is None or owner.query != str(progress.id):
            return
        with self._lock:
            end = self._ends.pop(progress.batchId, None)
            retries = self._retries.pop(progress.batchId, 0)
        if end is None:
            return
        self._report(
            BatchMetrics(
                name=self._sink.name,
                query_id=str(progress.id),
                batch=progress.batchId,
                input_rows=progress.numInputRows,
                rows=end.rows,
                rejected=end.rejected,
                seconds=end.seconds,
                attempts=1 + retries,
                was_done=end.step is Step.SKIPPED,
                lag=_lag(progress.sources),
            )
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is written yet."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Its last batch was reported before."""


def _lag(sources: list[Any]) -> int | None:
    lags = []
    for source in sources:
        try:
            end, latest = (
                Position.from_json(json.loads(text)).offsets
                for text in (source.endOffset, source.latestOffset)
            )
        except (ValueError, TypeError, BadOffsets):  # a source of another kind
            return None
        lags.append(offset_count(end, latest))
    return sum(lags)
