"""The rows of one batch, planned and written as one Spark job: the same for every delivery."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.client.identity import Identity
from oncelog.core.delivery import Delivery
from oncelog.spark import job
from oncelog.spark.job import Frame, WriterOf
from oncelog.spark.report import Report
from oncelog.spark.steps import Step, Teller
from oncelog.spark.target import Target, places_of
from oncelog.spark.task import TaskPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a batch came to, task by task and in all."""

    reports: Sequence[Report] = ()

    @property
    def rows(self) -> int:
        """How many rows are in their topics."""
        return sum(report.rows for report in self.reports)

    @property
    def rejected(self) -> int:
        """How many rows went to the dead letters."""
        return sum(report.rejected for report in self.reports)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriter:
    """Writes rows to a target, with or without a transaction around them."""

    target: Target
    write: WriterOf
    tell: Teller

    def run(
        self,
        number: int,
        frames: Sequence[Frame],
        *,
        delivery: Delivery,
        identity: Identity | None,
        patience_s: float,
        started_s: float,
    ) -> Written:
        """Write batch `number`, on which work began at `started_s`; an identity has a transaction."""
        plan = self.target.run(
            self.target.plan(
                turn=number,
                parallelism=job.parallelism_of(frames[0].rows.sparkSession),
                is_transactional=identity is not None,
            )
        )
        tasks = TaskPlan(
            settings=self.target.output.settings,
            delivery=delivery,
            identity=identity,
            places=places_of(plan),
            patience_s=patience_s,
        )
        self.tell.of(Step.PLANNED, number)
        done = Written(reports=job.run(frames, plan, tasks, write=self.write))
        seconds = time.monotonic() - started_s
        self.tell.of(Step.WRITTEN, number, rows=done.rows, rejected=done.rejected, seconds=seconds)
        return done
