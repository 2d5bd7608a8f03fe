"""Drivers that die at each step, tasks that fail in each way: what is visible is exact.

Groups I and J of the scenarios, in one JVM. `make test-kill` does the same with SIGKILL, with all
pipelines and against Apache Kafka.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import oncelog
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Refused as BrokerRefused
from oncelog.client.identity import Identity, OutcomeUnknown, Transactional
from oncelog.client.sending import Sender
from oncelog.client.transactions import describe
from oncelog.core.packing import encode_batch
from oncelog.core.records import Record
from oncelog.spark import (
    Done,
    DriverReplaced,
    Event,
    GivenUp,
    Pipeline,
    Refused,
    Sink,
    Source,
    Step,
    Summary,
)
from oncelog.spark.encode import stamped_by
from oncelog.spark.job import WriterOf
from oncelog.spark.ledger import BatchName
from oncelog.spark.task import Stage, TaskPlan, writer
from oncelog.wire.errors import ErrorCode
from tests.spark.faults import failing_once
from tests.spark.logs import fill, fresh, make_topics, read_all, values_of

VALUES = [b"%04d" % number for number in range(300)]


class Died(BaseException):
    """The driver is gone at this point: nothing after it happens."""


class Job:
    """A pipeline that copies a topic in three batches to two topics, and can be started often."""

    def __init__(self, spark: SparkSession, broker: oncelog.Broker) -> None:
        self.spark = spark
        self.broker = broker
        self.name = fresh("job")
        self.source, self.even, self.odd = fresh("in"), fresh("even"), fresh("odd")
        self.events: list[Event] = []
        make_topics(broker.bootstrap_servers, self.source, self.even, self.odd, partitions=2)
        fill(broker.bootstrap_servers, self.source, VALUES)

    def start(
        self,
        watch: Callable[[Event], None] | None = None,
        *,
        write: WriterOf = writer,
        transform: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        attempts: int = 5,
    ) -> Summary:
        servers = self.broker.bootstrap_servers
        self.events.clear()

        def watching(event: Event) -> None:
            self.events.append(event)
            if watch is not None:
                watch(event)

        self.sink = Sink(
            servers,
            topics=[self.even, self.odd],
            transactional_id=self.name,
            watch=watching,
            write=write,
            attempts=attempts,
        )

        def split(rows: DataFrame) -> dict[str, DataFrame]:
            rows = transform(rows.select("key", "value"))
            is_even = F.col("value").cast("string").cast("int") % 2 == 0
            return {self.even: rows.where(is_even), self.odd: rows.where(~is_even)}

        pipeline = Pipeline(
            source=Source(servers, subscribe=self.source, maxOffsetsPerTrigger=110),
            sink=self.sink,
            transform=split,
            trigger="available_now",
        )
        return pipeline.run(self.spark)

    def die_at(self, step: Step, *, batch: int | None) -> None:
        """Run until that step, and be gone without a goodbye."""

        def watch(event: Event) -> None:
            if event.step is step and event.batch == batch:
                self.sink.writer._abort = lambda: None  # type: ignore[union-attr,method-assign]
                raise Died

        with pytest.raises(Died):
            self.start(watch)

    def assert_exact(self) -> None:
        """Every value is there once, in the topic where it belongs, and nothing is left open."""
        servers = self.broker.bootstrap_servers
        assert values_of(servers, self.even) == VALUES[::2]
        assert values_of(servers, self.odd) == VALUES[1::2]
        assert self.open_state() in ("CompleteCommit", "Empty", "CompleteAbort")

    def open_state(self) -> str:
        async def ask() -> str:
            async with await Cluster.open(self.broker.bootstrap_servers) as cluster:
                return (await describe(cluster, self.name)).transaction_state

        return asyncio.run(ask())

    def retries(self) -> int:
        return sum(event.step is Step.RETRIED for event in self.events)


@pytest.fixture
def job(spark: SparkSession, broker: oncelog.Broker) -> Job:
    return Job(spark, broker)


def test_without_faults_three_batches_are_three_transactions(job: Job) -> None:
    summary = job.start()
    assert (summary.rows, summary.retries, summary.lag) == (300, 0, 0)
    assert summary.batches >= 3
    job.assert_exact()
    assert job.start().batches == 0


# --- group I: the driver dies at a step of a batch ------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "batch"),
    [
        pytest.param(Step.LOOKED, None, id="127-before-anything-is-recorded"),
        pytest.param(Step.FENCED, None, id="138-during-start-up"),
        pytest.param(Step.PLANNED, 1, id="129-planned-no-task-started"),
        pytest.param(Step.WRITTEN, 1, id="131-all-tasks-done-commit-not-called"),
        pytest.param(Step.RECORDED, 1, id="131-progress-in-the-transaction"),
        pytest.param(Step.MIRRORED, 1, id="131-offsets-in-the-transaction"),
        pytest.param(Step.COMMITTED, 1, id="133-commit-confirmed-nobody-told"),
        pytest.param(Step.COMMITTED, 0, id="135-next-batch-follows"),
    ],
)
def test_i127_i129_i131_i133_i135_i138_a_driver_that_dies_at_a_step_is_started_again(
    job: Job, step: Step, batch: int | None
) -> None:
    job.die_at(step, batch=batch)
    job.start()
    job.assert_exact()


def test_i138_a_driver_that_dies_three_times_in_a_row_while_it_starts(job: Job) -> None:
    job.die_at(Step.WRITTEN, batch=0)
    for step in (Step.LOOKED, Step.FENCED, Step.LOOKED):
        job.die_at(step, batch=None)
    job.start()
    job.assert_exact()


@pytest.mark.parametrize("arrives", [True, False])
def test_i132_a_commit_of_unknown_outcome_is_looked_up_and_never_guessed(
    job: Job, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    commit = Transactional.commit
    lost: list[Identity] = []

    async def losing(self: Transactional, identity: Identity) -> Identity | None:
        if not lost:
            lost.append(identity)
            if arrives:
                await commit(self, identity)
            raise OutcomeUnknown("the answer is lost")
        return await commit(self, identity)

    monkeypatch.setattr(Transactional, "commit", losing)
    summary = job.start()
    assert lost
    assert summary.retries == 1
    job.assert_exact()


def test_i130_what_a_dead_driver_left_open_is_aborted_by_its_successor(job: Job) -> None:
    job.die_at(Step.WRITTEN, batch=0)
    servers = job.broker.bootstrap_servers
    assert job.open_state() == "Ongoing"
    assert len(values_of(servers, job.even, job.odd, isolation="read_uncommitted")) > 0
    assert read_all(servers, job.even, job.odd) == []
    job.start()
    job.assert_exact()


# --- group J: tasks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("raise before", id="140-raises-before-it-writes"),
        pytest.param("raise in the middle", id="140-raises-in-the-middle"),
        pytest.param("raise after", id="140-raises-when-all-is-written"),
        pytest.param("kill in the middle", id="141-worker-killed-in-the-middle"),
        pytest.param("kill after", id="141-worker-killed-when-all-is-written"),
        pytest.param("no report", id="146-no-commit-message"),
        pytest.param("stale report", id="146-a-stale-commit-message"),
    ],
)
def test_j140_j141_j146_a_write_task_that_fails_sends_the_whole_batch_round_again(
    job: Job, tmp_path: Path, fault: str
) -> None:
    summary = job.start(write=failing_once(tmp_path / "flag", fault))
    assert (tmp_path / "flag").exists()
    assert summary.retries == 1
    job.assert_exact()


def test_j145_a_task_that_outlives_its_attempt_is_fenced(job: Job, tmp_path: Path) -> None:
    """It goes on writing under its old identity when the batch was run again, before its commit."""
    plans: list[TaskPlan] = []
    refusals: list[int] = []

    def write(plan: TaskPlan) -> Stage:
        plans.append(plan)
        return failing_once(tmp_path / "flag", "raise in the middle")(plan)

    def watch(event: Event) -> None:
        if event.step is Step.WRITTEN and len(plans) > 1 and not refusals:
            refusals.extend(asyncio.run(go_on_writing(plans[0])))

    summary = job.start(watch, write=write)
    refusals.extend(asyncio.run(go_on_writing(plans[0])))

    assert summary.retries == 1
    assert plans[0].identity != plans[1].identity
    assert refusals == [ErrorCode.INVALID_PRODUCER_EPOCH] * (2 * len(plans[0].places))
    job.assert_exact()


async def go_on_writing(plan: TaskPlan) -> list[int]:
    """A batch for each partition, as a task of this attempt: how each is refused."""
    assert plan.identity is not None
    record = Record(0, int(time.time() * 1000), None, b"0000", ())
    codes = []
    async with await Cluster.connect(plan.settings, wait_s=10) as cluster:
        for place in plan.places:
            sender = Sender(
                cluster,
                stamped_by(plan.identity.producer_id, plan.identity.epoch),
                transactional_id=plan.identity.transactional_id,
                is_v2=plan.identity.is_v2,
                patience_s=0,
            )
            await sender.send(place, encode_batch([record], is_transactional=True), 1)
            with pytest.raises(BrokerRefused) as refused:
                await sender.finish()
            codes.append(refused.value.code)
            await sender.close()
    return codes


def test_an_upstream_task_may_fail_and_be_retried_freely(job: Job, tmp_path: Path) -> None:
    """Nothing has been written then: Spark's own retry is enough, and the batch goes on."""
    flag = str(tmp_path / "flag")
    summary = job.start(transform=lambda rows: rows.mapInArrow(_failing_once(flag), rows.schema))
    assert (tmp_path / "flag").exists()
    assert summary.retries == 0
    job.assert_exact()


def _failing_once(flag: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def rows(batches):  # type: ignore[no-untyped-def]
        import os

        for batch in batches:
            yield batch
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            raise RuntimeError("an upstream task fails once")

    return rows


def test_k166_the_users_own_error_reaches_the_user_and_nothing_is_visible(job: Job) -> None:
    @F.udf("binary")
    def poisoned(value):  # type: ignore[no-untyped-def]
        if value == b"0123":
            raise ValueError("cannot digest 0123")
        return value

    with pytest.raises(Exception, match="cannot digest 0123"):
        job.start(transform=lambda rows: rows.withColumn("value", poisoned("value")))
    done = len(read_all(job.broker.bootstrap_servers, job.even, job.odd))
    assert done < 300
    assert job.open_state() != "Ongoing", "a call that fails aborts before it raises"
    job.start()
    job.assert_exact()


def test_j148_a_batch_that_fails_every_time_is_given_up_and_nothing_is_visible(
    job: Job, tmp_path: Path
) -> None:
    class Fresh:
        """A new flag for each attempt, so that each of them fails."""

        count = 0

        def __call__(self, plan):  # type: ignore[no-untyped-def]
            self.count += 1
            return failing_once(tmp_path / f"flag{self.count}", "raise after")(plan)

    with pytest.raises(GivenUp, match="failed 2 times; nothing of it is visible"):
        job.start(write=Fresh(), attempts=2)
    assert read_all(job.broker.bootstrap_servers, job.even, job.odd) == []
    assert job.open_state() != "Ongoing"
    job.start()
    job.assert_exact()


# --- who owns the name ----------------------------------------------------------------------------------


def test_k155_a_replaced_driver_stops_and_never_fences_its_successor_back(
    job: Job, spark: SparkSession
) -> None:
    """The first driver pauses with everything written; a second one takes over and finishes."""
    successors: list[Summary] = []
    first_events = []

    def watch(event: Event) -> None:
        if event.step is Step.WRITTEN and event.batch == 1 and not successors:
            first_events.append(event)
            other = object.__new__(Job)
            other.__dict__.update(job.__dict__, events=[])
            successors.append(Job.start(other))

    with pytest.raises(DriverReplaced, match="Another driver has taken over"):
        job.start(watch)
    assert first_events
    assert 0 < successors[0].rows < 300
    job.assert_exact()


# --- the same batch twice -------------------------------------------------------------------------------


class Drivers:
    """Two drivers that were handed the same batches, as two queries on one checkpoint are."""

    def __init__(self, spark: SparkSession, broker: oncelog.Broker) -> None:
        self.servers = broker.bootstrap_servers
        self.name, self.topic = fresh("job"), fresh("out")
        make_topics(self.servers, self.topic, partitions=2)
        self.rows = spark.createDataFrame([(v.decode(),) for v in VALUES[:40]], "value string")

    def sink(self, watch: Callable[[Event], None] = lambda event: None) -> Sink:
        return Sink(self.servers, topic=self.topic, transactional_id=self.name, watch=watch)

    def write(self, sink: Sink, number: int, fingerprint: str = "input") -> Done:
        batch = BatchName(query="query", number=number, fingerprint=fingerprint)
        return sink.writer.write(batch, lambda: sink.frames(self.rows))

    def visible(self) -> int:
        return len(read_all(self.servers, self.topic))


@pytest.fixture
def drivers(spark: SparkSession, broker: oncelog.Broker) -> Drivers:
    return Drivers(spark, broker)


def test_j147_the_same_batch_again_has_no_effect_and_another_one_under_its_number_is_refused(
    drivers: Drivers,
) -> None:
    sink = drivers.sink()
    assert not drivers.write(sink, 0).was_done
    assert drivers.write(sink, 0).was_done
    with pytest.raises(Refused, match="with other input"):
        drivers.write(sink, 0, "other input")
    sink.close()
    assert drivers.visible() == 40


def test_k154_two_drivers_on_one_checkpoint_one_is_fenced_and_the_output_is_exact(
    drivers: Drivers,
) -> None:
    second = drivers.sink()
    taken: list[Done] = []

    def take_over(event: Event) -> None:
        if event.step is Step.RECORDED and not taken:
            taken.append(drivers.write(second, 0))

    first = drivers.sink(take_over)
    with pytest.raises(DriverReplaced):
        drivers.write(first, 0)
    assert not taken[0].was_done
    assert not drivers.write(second, 1).was_done
    with pytest.raises(DriverReplaced):
        drivers.write(first, 1)
    first.close()
    assert not drivers.write(second, 2).was_done, "a replaced driver never fences back"
    second.close()
    assert drivers.visible() == 120
