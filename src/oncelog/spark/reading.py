"""Ranges of partitions become Arrow batches, inside a Spark task.

While one answer of a broker is decoded the next one is already on its way.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa
import uvloop

from oncelog.client.cluster import RESTART_S, Cluster
from oncelog.client.fetching import Batch, DataLost, Isolation, OffsetsGone, Range, fetch
from oncelog.client.settings import ClientSettings
from oncelog.spark.background import Background
from oncelog.spark.decode import decode
from oncelog.spark.worker import settle

log = logging.getLogger(__name__)

_Part: TypeAlias = tuple[Range, list[Batch]]


def read_ranges(
    settings: ClientSettings,
    ranges: Iterable[Range],
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    include_headers: bool = False,
    skips_lost: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of some ranges, one range after the other, in the order of their offsets.

    What is gone is an error, unless `skips_lost` says to leave it out with a warning.
    """
    settle()
    with Background(uvloop.new_event_loop) as background:
        parts = _fetch_all(settings, list(ranges), isolation, skips_lost)
        upcoming = background.start(_next(parts))
        while (part := upcoming.result()) is not None:
            upcoming = background.start(_next(parts))
            wanted, batches = part
            yield from decode(
                batches,
                wanted.place,
                start=wanted.start,
                end=wanted.end,
                include_headers=include_headers,
            )


async def _fetch_all(
    settings: ClientSettings, ranges: list[Range], isolation: Isolation, skips_lost: bool
) -> AsyncIterator[_Part]:
    async with await Cluster.connect(settings, wait_s=RESTART_S) as cluster:
        for wanted in ranges:
            async for part in _fetch_one(cluster, wanted, isolation, skips_lost):
                yield part


async def _fetch_one(
    cluster: Cluster, wanted: Range, isolation: Isolation, skips_lost: bool
) -> AsyncIterator[_Part]:
    while True:
        try:
            async for batches in fetch(cluster, wanted, isolation=isolation):
                yield wanted, batches
            return
        except DataLost as loss:
            if not skips_lost:
                raise
            log.warning("records are gone and are skipped: %s", loss)
            if not isinstance(loss, OffsetsGone) or loss.log_start_offset <= loss.position:
                return
            # A batch may still hold what was deleted of it: what is left is a range of its own.
            wanted = replace(wanted, start=loss.log_start_offset)


async def _next(parts: AsyncIterator[_Part]) -> _Part | None:
    return await anext(parts, None)
