"""`Sink`: what Structured Streaming calls with each micro-batch, and makes exactly once.

    query = frame.writeStream.foreachBatch(Sink("localhost:9092", topic="out", transactional_id="job"))

Spark keeps its checkpoint and its state; the sink keeps the ledger. A batch that Spark runs again is
found there and written no second time.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oncelog.client.errors import ClientError
from oncelog.client.settings import ClientSettings, parse_settings
from oncelog.core.delivery import Delivery, delivery_of
from oncelog.core.packing import Codec
from oncelog.core.types import TopicPartition
from oncelog.spark import job
from oncelog.spark.errors import BadConfiguration, PipelineError, Stopped
from oncelog.spark.exactly_once import FIRST_TIMEOUT_S, Done, ExactlyOnce
from oncelog.spark.job import Frame, WriterOf
from oncelog.spark.ledger import BatchName, fingerprint
from oncelog.spark.offsets import Position
from oncelog.spark.steps import Event, Watch, unwatched
from oncelog.spark.target import PROGRESS_TOPIC, Output, Target
from oncelog.spark.task import writer
from oncelog.spark.weaker import Weaker

log = logging.getLogger(__name__)


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, Stopped)


# Py4J logs whatever a callback raises; that a query was stopped, its owner knows.
logging.getLogger("py4j.clientserver").addFilter(_is_news)


class Sink:
    """A callable for `writeStream.foreachBatch`."""

    def __init__(
        self,
        servers: str,
        *,
        transactional_id: str,
        topic: str | None = None,
        topics: Sequence[str] = (),
        delivery: str | Delivery = Delivery.EXACTLY_ONCE,
        dead_letters: str | None = None,
        order_by: str | Sequence[str] = (),
        compression: str = "none",
        group: str | None = None,
        progress_topic: str = PROGRESS_TOPIC,
        adopt: bool = False,
        attempts: int = 5,
        writers: int | None = None,
        transaction_timeout_s: float = FIRST_TIMEOUT_S,
        settings: Mapping[str, str] | None = None,
        watch: Watch = unwatched,
        write: WriterOf = writer,
    ) -> None:
        """Say where rows go and under which name.

        `topic` takes rows without a `topic` of their own, `topics` are all that rows may name.
        `group` mirrors the source's offsets for lag tools. `settings` are Kafka's client settings,
        those of TLS and SASL included. `adopt` takes over a query whose batches do not follow.
        `watch` is told of every step.
        """
        try:
            self.delivery = delivery_of(delivery)
        except ValueError as error:
            raise BadConfiguration(str(error)) from None
        self.last: Done | None = None
        self.name = checked_name(transactional_id)
        self._watchers = [watch]
        self._topic = topic
        self._order_by = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        self._group = group
        output = output_of(
            servers,
            settings=settings,
            topics=(*([topic] if topic else []), *topics),
            dead_letters=dead_letters,
            compression=compression,
            writers=writers,
            progress_topic=progress_topic,
        )
        self.target = Target(output)
        self.writer: ExactlyOnce | Weaker
        if self.delivery is Delivery.EXACTLY_ONCE:
            self.writer = ExactlyOnce(
                self.target,
                self.name,
                adopt=adopt,
                attempts=attempts,
                timeout_s=transaction_timeout_s,
                watch=self._tell,
                write=write,
            )
        else:
            self.writer = Weaker(
                self.target,
                self.name,
                self.delivery,
                attempts=attempts,
                watch=self._tell,
                write=write,
            )

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write one micro-batch, or recognise it."""
        spark = rows.sparkSession
        self.check_session(spark)
        query, offsets = _query_of(spark)
        batch = BatchName(
            query=query, number=batch_id, fingerprint=fingerprint(offsets) if offsets else ""
        )
        position = Position(offsets=_positions(offsets))
        try:
            with job.planned_once(spark):
                self.last = self.writer.write(
                    batch, lambda: self.frames(rows), position, self._group
                )
        except (PipelineError, ClientError, PySparkException) as error:
            # Spark is given all frames and causes as one text, and searches it in a way that
            # overflows its stack if it is long. The error itself says what there is to say.
            raise error.with_traceback(None) from None
        if self.last.was_done:
            log.info("%s: batch %d is committed already", self.name, batch_id)
            # A stateful query fails if a batch is not run at all.
            job.evaluate(rows)

    def watched_by(self, watch: Watch) -> None:
        """Tell one more of every step."""
        self._watchers.append(watch)

    def check_session(self, spark: SparkSession) -> None:
        """Refuse a session in which the promise cannot be kept."""
        if self.delivery is Delivery.EXACTLY_ONCE:
            job.refuse_connect(spark)
            job.refuse_speculation(spark)

    def frames(self, rows: DataFrame | Mapping[str, DataFrame]) -> list[Frame]:
        """Rows for the sink's own topic, or some for each of several."""
        by_topic = {self._topic: rows} if isinstance(rows, DataFrame) else rows
        for topic in by_topic:
            if topic is not None and topic not in self.target.output.topics:
                raise BadConfiguration(
                    f"There are rows for topic {topic!r}, which the sink was not told of: name it "
                    f"in topics=[...]."
                )
        return [
            Frame(rows=some, topic=topic, order_by=self._order_by)
            for topic, some in by_topic.items()
        ]

    def close(self) -> None:
        """Hang up; the sink may be called again, and connects anew."""
        self.writer.close()
        self.target.close()

    def _tell(self, event: Event) -> None:
        for watch in self._watchers:
            watch(event)


def output_of(
    servers: str,
    *,
    topics: Sequence[str],
    settings: Mapping[str, str] | None,
    dead_letters: str | None,
    compression: str,
    writers: int | None,
    progress_topic: str,
) -> Output:
    """Check what a person wrote, before anything is asked of a cluster."""
    if not topics:
        raise BadConfiguration("No topic is named: say topic=..., or topics=[...] with a column.")
    try:
        codec = Codec[compression.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise BadConfiguration(f"compression={compression!r} is not one of {names}.") from None
    if writers is not None and writers < 1:
        raise BadConfiguration(f"writers={writers}: at least one task has to write.")
    return Output(
        settings=settings_of(servers, settings),
        topics=tuple(dict.fromkeys(topics)),
        dead_letters=dead_letters,
        codec=codec,
        writers=writers,
        progress_topic=progress_topic,
    )


def settings_of(servers: str, settings: Mapping[str, str] | None) -> ClientSettings:
    """Client settings by their names in Kafka, with or without the prefix that Spark wants."""
    names = {name.removeprefix("kafka."): value for name, value in (settings or {}).items()}
    return parse_settings({**names, "bootstrap.servers": servers})


def checked_name(name: str) -> str:
    """A transactional id that can be one."""
    if not name or name != name.strip():
        raise BadConfiguration(f"transactional_id={name!r}: give the job a name of its own.")
    return name


def _query_of(spark: SparkSession) -> tuple[str, list[Any]]:
    """The streaming query that calls, and where each of its sources will be after this batch."""
    if not hasattr(spark, "_jsparkSession"):
        return "", []
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise BadConfiguration(
            "A Sink is called by foreachBatch; for a batch, use oncelog.spark.write."
        )
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a classic session has a JVM"
    # `foreachBatch` is not told the offsets, and its session does not know the query: ask the
    # state that all sessions share.
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    execution = running.get(jvm.java.util.UUID.fromString(query))
    if execution is None:
        return query, []
    offsets = []
    found = execution.availableOffsets().iterator()
    while found.hasNext():
        offsets.append(found.next()._2().json())
    # Which source comes first is not the same after a restart.
    return query, [json.loads(each) for each in sorted(offsets)]


def _positions(offsets: Sequence[Any]) -> dict[TopicPartition, int]:
    """The offsets of those sources that read from topics."""
    found: dict[TopicPartition, int] = {}
    for source in offsets:
        if not isinstance(source, dict):
            continue
        for topic, partitions in source.items():
            if isinstance(partitions, dict) and all(
                isinstance(v, int) for v in partitions.values()
            ):
                for partition, offset in partitions.items():
                    if partition.isdigit():
                        found[TopicPartition(topic, int(partition))] = offset
    return found
