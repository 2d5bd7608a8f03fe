"""At least once and at most once: the same batches without a transaction around them.

The difference is one line: whether the progress is noted after the rows are written or before. What
a fault does then follows: rows twice, or rows never.
"""

import logging
import time
from collections.abc import Callable, Sequence

from oncelog.client.admin import commit_offsets
from oncelog.client.errors import ClientError
from oncelog.client.sending import Sender
from oncelog.core.delivery import Delivery
from oncelog.spark.encode import unnumbered
from oncelog.spark.errors import GivenUp, RunAgain, reason
from oncelog.spark.exactly_once import Done
from oncelog.spark.job import Frame, WriterOf
from oncelog.spark.ledger import NOWHERE, BatchName, Progress, advance
from oncelog.spark.ledger_topic import progress_batch
from oncelog.spark.offsets import Position
from oncelog.spark.row_writer import RowWriter, Written
from oncelog.spark.steps import Step, Teller, Watch, unwatched
from oncelog.spark.target import Target
from oncelog.spark.task import writer

log = logging.getLogger(__name__)

_PATIENCE_S = 60.0


class Weaker:
    """Writes batches that may be doubled, or lost, as chosen."""

    def __init__(
        self,
        target: Target,
        name: str,
        delivery: Delivery,
        *,
        attempts: int = 5,
        watch: Watch = unwatched,
        write: WriterOf = writer,
    ) -> None:
        """`delivery` is one of the two weaker ones."""
        self.progress: Progress | None = None
        self._target = target
        self._name = name
        self._delivery = delivery
        # A second try may write twice what the first one wrote.
        self._attempts = 1 if delivery is Delivery.AT_MOST_ONCE else attempts
        self._tell = Teller(name, watch)
        self._rows = RowWriter(target=target, write=write, tell=self._tell)
        self._is_open = False

    def open(self, admit: Callable[[Progress | None], object]) -> Progress | None:
        """Read the progress; nobody is fenced."""
        if not self._is_open:
            self.progress = self._target.run(self._target.look(self._name))
            admit(self.progress)
            self._is_open = True
        return self.progress

    def write(
        self,
        batch: BatchName,
        frames: Callable[[], Sequence[Frame]],
        position: Position = NOWHERE,
        group: str | None = None,
    ) -> Done:
        """Write a batch; skip it if at most once is asked for and it was begun before."""
        progress = self.open(lambda _: None)
        started_s = time.monotonic()
        if self._delivery is Delivery.AT_MOST_ONCE:
            if progress and progress.query == batch.query and batch.number <= progress.batch:
                self._tell.of(Step.SKIPPED, batch.number)
                return Done(batch=batch.number, was_done=True)
            self._note(batch, position, group, Written())
            written = self._insist(batch, frames, started_s)
        else:
            written = self._insist(batch, frames, started_s)
            self._note(batch, position, group, written)
        done = Done(
            batch=batch.number,
            rows=written.rows,
            rejected=written.rejected,
            seconds=time.monotonic() - started_s,
        )
        self._tell.of(
            Step.COMMITTED,
            batch.number,
            rows=done.rows,
            rejected=done.rejected,
            seconds=done.seconds,
        )
        return done

    def close(self) -> None:
        """There is nothing to leave behind."""

    def _insist(
        self, batch: BatchName, frames: Callable[[], Sequence[Frame]], started_s: float
    ) -> Written:
        for attempt in range(1, self._attempts + 1):
            try:
                return self._rows.run(
                    batch.number,
                    frames(),
                    delivery=self._delivery,
                    identity=None,
                    patience_s=_PATIENCE_S,
                    started_s=started_s,
                )
            except (ClientError, RunAgain) as error:
                if attempt == self._attempts:
                    raise GivenUp(
                        f"Batch {batch.number} of {self._name!r} failed {attempt} times; part of it "
                        f"may be visible. The last reason: {reason(error)}"
                    ) from error
                log.warning(
                    "%s, batch %d goes round again: %s", self._name, batch.number, reason(error)
                )
                self._tell.of(Step.RETRIED, batch.number, why=reason(error))
        raise AssertionError("the last attempt returns or raises")

    def _note(
        self, batch: BatchName, position: Position, group: str | None, written: Written
    ) -> None:
        progress = advance(
            self.progress,
            batch,
            position,
            rows=written.rows,
            rejected=written.rejected,
            now_ms=int(time.time() * 1000),
        )
        self._target.run(self._record(progress))
        self._tell.of(Step.RECORDED, batch.number)
        if group is not None and position.offsets:
            self._target.run(self._mirror(group, position))
            self._tell.of(Step.MIRRORED, batch.number)
        self.progress = progress

    async def _record(self, progress: Progress) -> None:
        sender = Sender(await self._target.cluster(), unnumbered, patience_s=_PATIENCE_S)
        try:
            content = progress_batch(self._name, progress, is_transactional=False)
            await sender.send(await self._target.ledger(self._name), content, 1)
            await sender.finish()
        finally:
            await sender.close()

    async def _mirror(self, group: str, position: Position) -> None:
        await commit_offsets(await self._target.cluster(), group, position.offsets)
