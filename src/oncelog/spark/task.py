"""The write task: stamps finished record batches with an identity and sends them.

It runs behind the shuffle, so that each output partition has one task. It must not run twice for one
epoch: what the first attempt wrote may be in the transaction already, and a broker cannot tell a
second attempt's batch from a repeat. So any attempt but the first raises, and the driver runs the
whole batch again under a new epoch.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from oncelog import __version__
from oncelog.client.admin import LATEST, list_offsets
from oncelog.client.cluster import RESTART_S, Cluster, raise_for
from oncelog.client.errors import AuthenticationFailed, BadSettings, ClientError, Refused
from oncelog.client.identity import Identity, Transactional
from oncelog.client.sending import Sender, Written
from oncelog.client.settings import ClientSettings
from oncelog.core.delivery import Delivery
from oncelog.core.types import TopicPartition
from oncelog.spark.encode import stamped_by, unnumbered
from oncelog.spark.errors import RunAgain
from oncelog.spark.report import Report
from oncelog.spark.worker import settle
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_UNKNOWN_PRODUCER_ID: Final = 59
#: The identity is not ours any more, or its transaction is over: the driver finds out which.
_ENDED: Final = frozenset(
    {
        int(ErrorCode.INVALID_PRODUCER_EPOCH),
        int(ErrorCode.PRODUCER_FENCED),
        int(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        int(ErrorCode.INVALID_TXN_STATE),
        int(ErrorCode.TRANSACTION_ABORTABLE),
        int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        _UNKNOWN_PRODUCER_ID,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What every write task of one attempt at a batch is told."""

    settings: ClientSettings
    delivery: Delivery
    #: Under which name to write; None lets each task get a name of its own.
    identity: Identity | None
    #: The partition behind each slot.
    places: tuple[TopicPartition, ...]
    #: How long a batch may be refused for passing reasons.
    patience_s: float
    version: str = __version__


def writer(plan: TaskPlan) -> Stage:
    """A function for `mapInArrow` that takes `ENCODED_SCHEMA` and gives `REPORT_SCHEMA`."""
    return partial(_write, plan)


def _write(plan: TaskPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None, "a write task runs in Spark"
    settle()
    check_version(plan.version)
    task = _Task(plan, context)
    if context.attemptNumber() > 0 and plan.delivery is Delivery.EXACTLY_ONCE:
        raise RunAgain(
            f"Write task {context.partitionId()} was started again (attempt "
            f"{context.attemptNumber()}): what its first attempt wrote is in the transaction."
        )
    if context.attemptNumber() > 0 and plan.delivery is Delivery.AT_MOST_ONCE:
        report = task.report({}, gave_up=True)
    else:
        with asyncio.Runner(loop_factory=_loop) as runner:
            try:
                written = task.run(runner, batches)
            except (AuthenticationFailed, BadSettings):
                raise
            except Refused as error:
                if error.code in _ENDED:
                    raise RunAgain(str(error)) from error
                raise
            except ClientError as error:
                raise RunAgain(str(error)) from error
        report = task.report(written)
    yield pa.RecordBatch.from_pydict({"report": [report.encode()]})


class _Task:
    def __init__(self, plan: TaskPlan, context: TaskContext) -> None:
        self._plan = plan
        self._context = context
        self._numbers: dict[tuple[int, int], int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._rejected = 0
        self._began_s: float | None = None

    def run(
        self, runner: asyncio.Runner, batches: Iterator[pa.RecordBatch]
    ) -> dict[TopicPartition, Written]:
        """Send everything; the loop runs while this side has nothing to read."""
        # An empty task needs no broker.
        first = next(batches, None)
        if first is None:
            return {}
        cluster = runner.run(Cluster.connect(self._plan.settings, wait_s=RESTART_S))
        try:
            sender = runner.run(self._sender(cluster))
            try:
                for batch in chain([first], batches):
                    runner.run(self._send(cluster, sender, batch))
                return runner.run(sender.finish())
            finally:
                runner.run(sender.close())
        finally:
            runner.run(cluster.close())

    def report(self, written: dict[TopicPartition, Written], *, gave_up: bool = False) -> Report:
        seconds = 0.0 if self._began_s is None else time.monotonic() - self._began_s
        return Report(
            task=self._context.partitionId(),
            stage=self._context.stageId(),
            attempt_id=self._context.taskAttemptId(),
            written=written,
            rejected=self._rejected,
            seconds=round(seconds, 4),
            gave_up=gave_up,
        )

    async def _sender(self, cluster: Cluster) -> Sender:
        plan = self._plan
        if plan.identity is not None:
            return Sender(
                cluster,
                stamped_by(plan.identity.producer_id, plan.identity.epoch),
                transactional_id=plan.identity.transactional_id,
                is_v2=plan.identity.is_v2,
                patience_s=plan.patience_s,
            )
        if plan.delivery is Delivery.AT_MOST_ONCE:
            return Sender(cluster, unnumbered, acks=1, patience_s=0)
        reply = await cluster.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        )
        raise_for(reply.error_code, "A producer id")
        own = stamped_by(reply.producer_id, reply.producer_epoch)
        return Sender(cluster, own, patience_s=plan.patience_s)

    async def _send(self, cluster: Cluster, sender: Sender, batch: pa.RecordBatch) -> None:
        names = ("slot", "origin", "number", "records", "rejected")
        slots, *rest = (batch.column(name).to_pylist() for name in names)
        # Batches are large: they stay in Arrow's memory until they are stamped.
        contents = (memoryview(content.as_buffer()) for content in batch.column("batch"))
        places = [self._plan.places[slot] for slot in slots]
        await self._open(cluster, set(places) - self._ends.keys())
        for place, slot, origin, number, records, rejected, content in zip(
            places, slots, *rest, contents, strict=True
        ):
            self._check_order(slot, origin, number)
            self._rejected += rejected
            await sender.send(place, content, records, not_before=self._ends[place])

    async def _open(self, cluster: Cluster, places: set[TopicPartition]) -> None:
        """Before the first batch: where a partition ends now, so that what is below is not ours."""
        if not places:
            return
        identity = self._plan.identity
        if identity is None:
            self._ends |= dict.fromkeys(places, 0)
            return
        found = await list_offsets(cluster, dict.fromkeys(sorted(places), LATEST))
        self._ends |= {place: offset or 0 for place, offset in found.items()}
        if self._began_s is None:
            self._began_s = time.monotonic()
        transactional = Transactional(
            cluster, identity.transactional_id, wait_s=self._plan.patience_s
        )
        await transactional.add_partitions(identity, places)

    def _check_order(self, slot: int, origin: int, number: int) -> None:
        expected = self._numbers.get((slot, origin), 0)
        if number != expected:
            raise RunAgain(
                f"Batch {number} of upstream task {origin} came when {expected} was next: the "
                f"shuffle has changed their order."
            )
        self._numbers[slot, origin] = expected + 1


def check_version(drivers: str) -> None:
    """Driver and executors must have one version: plans and reports travel between them."""
    if drivers != __version__:
        raise ClientError(
            f"The driver has oncelog {drivers} and this executor has {__version__}: install the "
            f"same version on both, or ship it with the job (spark.submit.pyFiles)."
        )


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
