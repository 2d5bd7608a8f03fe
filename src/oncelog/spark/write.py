"""`write`: one DataFrame in one transaction, and never twice under one key."""

import logging
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from oncelog.spark.errors import BadConfiguration
from oncelog.spark.exactly_once import FIRST_TIMEOUT_S, Done
from oncelog.spark.ledger import BatchName
from oncelog.spark.sink import Sink
from oncelog.spark.target import PROGRESS_TOPIC

log = logging.getLogger(__name__)


def write(
    rows: DataFrame,
    servers: str,
    *,
    key: str,
    topic: str | None = None,
    topics: Sequence[str] = (),
    dead_letters: str | None = None,
    order_by: str | Sequence[str] = (),
    compression: str = "none",
    progress_topic: str = PROGRESS_TOPIC,
    attempts: int = 5,
    writers: int | None = None,
    transaction_timeout_s: float = FIRST_TIMEOUT_S,
    settings: Mapping[str, str] | None = None,
) -> Done:
    """Write all rows, or none of them; a second call with the same `key` writes nothing.

    The key is the caller's name for this piece of work, a day's export for example. Whether it was
    written before, the result says (`was_done`), and the log too. Two calls with one key at the same
    time: the later one takes over, and the earlier one stops with `DriverReplaced`.
    """
    if not key:
        raise BadConfiguration("key='': give this write a name, so that it is not made twice.")
    sink = Sink(
        servers,
        transactional_id=f"write:{key}",
        topic=topic,
        topics=topics,
        dead_letters=dead_letters,
        order_by=order_by,
        compression=compression,
        progress_topic=progress_topic,
        attempts=attempts,
        writers=writers,
        transaction_timeout_s=transaction_timeout_s,
        settings=settings,
    )
    sink.check_session(rows.sparkSession)
    # The input cannot be known from here: the key alone says whether it is the same.
    batch = BatchName(query=f"write:{key}", number=0, fingerprint="")
    try:
        done = sink.writer.write(batch, lambda: sink.frames(rows))
    finally:
        sink.close()
    if done.was_done:
        log.warning("%r was written before: nothing is written now", key)
    return done
