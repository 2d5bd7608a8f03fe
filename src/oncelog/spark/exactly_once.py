"""One batch, one transaction: the driver's side.

Fence, look, write, record, commit; and whatever goes wrong in between, abort and go round again. What
makes it exactly once stands in docs/spark.md, rule by rule.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from oncelog.client import transactions
from oncelog.client.errors import AuthenticationFailed, BadSettings, ClientError
from oncelog.client.errors import Refused as RefusedByBroker
from oncelog.client.identity import (
    Identity,
    Replaced,
    Transactional,
    TransactionLost,
)
from oncelog.core.delivery import Delivery
from oncelog.spark.errors import BadConfiguration, DriverReplaced, GivenUp, RunAgain, reason
from oncelog.spark.job import Frame, WriterOf
from oncelog.spark.ledger import NOWHERE, BatchName, Progress, Verdict, advance, judge
from oncelog.spark.ledger_topic import write_progress
from oncelog.spark.offsets import Position
from oncelog.spark.report import Report
from oncelog.spark.row_writer import RowWriter
from oncelog.spark.steps import Step, Teller, Watch, unwatched
from oncelog.spark.target import Target
from oncelog.spark.task import writer
from oncelog.wire.errors import ErrorCode

log = logging.getLogger(__name__)

#: A transaction gets this long at first, and this many times what the last batch took.
FIRST_TIMEOUT_S: Final = 60.0
_ROOM_TO_SPARE: Final = 4
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0

_GROUP_AUTHORIZATION_FAILED: Final = 30
_CLUSTER_AUTHORIZATION_FAILED: Final = 31
#: Errors that another try will not mend.
_FINAL: Final = frozenset(
    {
        int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        _GROUP_AUTHORIZATION_FAILED,
        _CLUSTER_AUTHORIZATION_FAILED,
        int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        int(ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        int(ErrorCode.INVALID_REQUEST),
        int(ErrorCode.MESSAGE_TOO_LARGE),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A batch that is committed."""

    batch: int
    rows: int = 0
    rejected: int = 0
    seconds: float = 0.0
    attempts: int = 1
    #: Whether it had been committed before, so that nothing was written now.
    was_done: bool = False


class ExactlyOnce:
    """Writes batches under one transactional id, of which it is the only owner."""

    def __init__(
        self,
        target: Target,
        name: str,
        *,
        adopt: bool = False,
        attempts: int = 5,
        timeout_s: float = FIRST_TIMEOUT_S,
        watch: Watch = unwatched,
        write: WriterOf = writer,
    ) -> None:
        """`name` is the transactional id; `timeout_s` is the transaction timeout at first."""
        self.progress: Progress | None = None
        self._target = target
        self._name = name
        self._adopt = adopt
        self._attempts = attempts
        #: What the next identity shall have, what the present one has, and what the brokers allow.
        self._timeout_s = timeout_s
        self._granted_s = 0.0
        self._longest_s = 0.0
        self._tell = Teller(name, watch)
        self._rows = RowWriter(target=target, write=write, tell=self._tell)
        self._identity: Identity | None = None
        #: Whether something may be open under the identity, or its epoch is used up.
        self._is_spent = False
        #: Whether another driver has the id: then this one never touches it again.
        self._is_replaced = False

    # --- looking and fencing ---

    def open(self, admit: Callable[[Progress | None], object]) -> Progress | None:
        """Become the owner of the id, once; `admit` may refuse what the ledger says.

        It is asked before anybody is fenced, so that a wrong id does its owner no harm, and again
        afterwards: whoever was fenced may have committed in between.
        """
        if self._is_replaced:
            raise self._replaced()
        if self._identity is None:
            progress = self._look()
            admit(progress)
            self._tell.of(Step.LOOKED)
            self._longest_s = self._target.run(self._max_timeout())
            self._timeout_s = min(self._timeout_s, self._longest_s)
            self._identity = self._target.run(self._fence())
            self._tell.of(Step.FENCED)
            self.progress = self._look()
            admit(self.progress)
        return self.progress

    def _look(self) -> Progress | None:
        return self._target.run(self._target.look(self._name))

    async def _max_timeout(self) -> float:
        return await transactions.max_timeout_ms(await self._target.cluster()) / 1000

    async def _fence(self) -> Identity:
        self._granted_s = self._timeout_s
        return await (await self._transactional()).fence(int(1000 * self._granted_s))

    async def _renew(self, identity: Identity) -> Identity:
        self._granted_s = self._timeout_s
        return await (await self._transactional()).renew(identity, int(1000 * self._granted_s))

    async def _was_aborted(self) -> bool:
        assert self._identity is not None, "the id is ours"
        try:
            return await (await self._transactional()).was_aborted(self._identity)
        except ClientError:  # it is only asked in order to say why
            return False

    async def _transactional(self) -> Transactional:
        cluster = await self._target.cluster()
        return Transactional(cluster, self._name, wait_s=self._target.output.settings.timeout_s)

    # --- a batch ---

    def write(
        self,
        batch: BatchName,
        frames: Callable[[], Sequence[Frame]],
        position: Position = NOWHERE,
        group: str | None = None,
    ) -> Done:
        """Commit a batch, or find that it is committed; anything else raises, with nothing visible.

        `position` is where the source is once the batch is done; a `group` mirrors it.
        """
        self.open(lambda progress: judge(self._name, progress, batch, adopt=self._adopt))
        if judge(self._name, self.progress, batch, adopt=self._adopt) is Verdict.DONE:
            self._tell.of(Step.SKIPPED, batch.number)
            return Done(batch=batch.number, was_done=True)
        started_s = time.monotonic()
        pause_s = _FIRST_PAUSE_S
        attempt = 0
        while True:
            attempt += 1
            tried_s = time.monotonic()
            try:
                if self._is_spent and self._recover(batch):
                    done = Done(batch=batch.number, rows=self._rows_of_last())
                else:
                    done = self._try(batch, frames(), position, group, started_s)
                break
            except (ClientError, RunAgain) as error:
                self._is_spent = True
                self._raise_if_final(error, batch, attempt, time.monotonic() - tried_s)
                log.warning(
                    "%s, batch %d goes round again: %s", self._name, batch.number, reason(error)
                )
                self._tell.of(Step.RETRIED, batch.number, why=reason(error))
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except BaseException:
                self._is_spent = True
                self._abort()
                raise
        seconds = time.monotonic() - started_s
        self._adopt = False
        self._tell.of(
            Step.COMMITTED, batch.number, rows=done.rows, rejected=done.rejected, seconds=seconds
        )
        return replace(done, seconds=seconds, attempts=attempt)

    def close(self) -> None:
        """Leave nothing open behind, so that readers need not wait for the timeout."""
        if self._is_spent:
            self._abort()

    def _try(
        self,
        batch: BatchName,
        frames: Sequence[Frame],
        position: Position,
        group: str | None,
        started_s: float,
    ) -> Done:
        identity = self._identity
        assert identity is not None, "the id is ours"
        self._is_spent = True
        written = self._rows.run(
            batch.number,
            frames,
            delivery=Delivery.EXACTLY_ONCE,
            identity=identity,
            patience_s=self._granted_s,
            started_s=started_s,
        )
        self._note_duration(written.reports)
        now_ms = int(time.time() * 1000)
        progress = advance(
            self.progress,
            batch,
            position,
            rows=written.rows,
            rejected=written.rejected,
            now_ms=now_ms,
        )
        self._target.run(self._record(identity, progress))
        self._tell.of(Step.RECORDED, batch.number)
        if group is not None and position.offsets:
            self._target.run(self._mirror(identity, group, position))
            self._tell.of(Step.MIRRORED, batch.number)
        following = self._target.run(self._commit(identity))
        self.progress = progress
        if following is not None:
            self._identity = following
            # A longer timeout is asked for together with an epoch.
            self._is_spent = self._timeout_s > self._granted_s
        return Done(batch=batch.number, rows=written.rows, rejected=written.rejected)

    async def _record(self, identity: Identity, progress: Progress) -> None:
        await write_progress(
            await self._transactional(),
            await self._target.cluster(),
            identity,
            await self._target.ledger(self._name),
            progress,
            patience_s=self._granted_s,
        )

    async def _mirror(self, identity: Identity, group: str, position: Position) -> None:
        await (await self._transactional()).send_offsets(identity, group, position.offsets)

    async def _commit(self, identity: Identity) -> Identity | None:
        return await (await self._transactional()).commit(identity)

    # --- when it goes wrong ---

    def _recover(self, batch: BatchName) -> bool:
        """Abort what is open and look: True if the batch turns out to be committed."""
        assert self._identity is not None, "the id is ours"
        try:
            self._identity = self._target.run(self._renew(self._identity))
        except Replaced as error:
            raise self._replaced() from error
        self._is_spent = False
        found = self._look()
        if found == self.progress:
            return False
        if found is not None and (found.query, found.batch, found.fingerprint) == (
            batch.query,
            batch.number,
            batch.fingerprint,
        ):
            self.progress = found
            return True
        self._is_replaced = True
        raise DriverReplaced(
            f"The progress of {self._name!r} has moved without this driver, to batch "
            f"{found.batch if found else 'none'}: another one runs under the same transactional id. "
            f"This one stops; nothing of it is half written."
        )

    def _rows_of_last(self) -> int:
        return self.progress.rows if self.progress else 0

    def _abort(self) -> None:
        """End what is open; if that fails too, the coordinator's timeout does it."""
        if self._identity is None or self._is_replaced:
            return
        try:
            self._identity = self._target.run(self._renew(self._identity))
            self._is_spent = False
        except Replaced:
            self._is_replaced = True  # whoever has the id now has ended what was open
        except ClientError as error:
            log.warning("%s could not be aborted, and will time out: %s", self._name, error)

    def _raise_if_final(
        self, error: ClientError | RunAgain, batch: BatchName, attempt: int, seconds: float
    ) -> None:
        if isinstance(error, Replaced):
            raise self._replaced() from error
        if isinstance(error, AuthenticationFailed | BadSettings):
            raise error
        if isinstance(error, RefusedByBroker) and error.code in _FINAL:
            self._abort()
            raise BadConfiguration(str(error)) from error
        is_late = seconds >= self._granted_s and self._target.run(self._was_aborted())
        if is_late:
            # Its time was up: the next try gets twice as much.
            self._timeout_s = min(2 * self._granted_s, self._longest_s)
        if is_late and seconds >= self._longest_s:
            self._abort()
            raise GivenUp(
                f"Batch {batch.number} of {self._name!r} takes longer to write than a transaction "
                f"may last ({self._longest_s:g} s): make batches smaller "
                f"(maxOffsetsPerTrigger), or raise transaction.max.timeout.ms on the brokers."
            ) from error
        if attempt >= self._attempts:
            self._abort()
            raise GivenUp(
                f"Batch {batch.number} of {self._name!r} failed {attempt} times; nothing of it is "
                f"visible. The last reason: {reason(error)}"
            ) from error

    def _replaced(self) -> DriverReplaced:
        self._is_replaced = True
        return DriverReplaced(
            f"Another driver has taken over {self._name!r}: this one stops, and nothing of its "
            f"batch is visible. Two pipelines must not share a transactional id."
        )

    def _note_duration(self, reports: Sequence[Report]) -> None:
        """Let the timeout follow the time that writing takes, and do not commit what is too late."""
        seconds = max((report.seconds for report in reports), default=0.0)
        wanted_s = min(_ROOM_TO_SPARE * seconds, self._longest_s)
        if wanted_s > self._timeout_s:
            self._timeout_s = wanted_s
            log.info("%s: the next transaction may last %.0f s", self._name, wanted_s)
        if seconds > self._granted_s:
            raise TransactionLost(
                f"Writing took {seconds:.1f} s, and the transaction may last {self._granted_s:g} s."
            )
