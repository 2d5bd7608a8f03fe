"""A log with idempotent producers agrees with a plain list, with a crash at any point.

The list holds every batch that was appended. A power cut may take batches off its end, but none that
a reader could have seen; a kill, an orderly stop, a roll or a deletion of the head takes nothing else.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.core.batch import MAX_SEQUENCE
from oncelog.core.errors import InvalidProducerEpoch, OutOfOrderSequence
from oncelog.testing.sim.disk import SimDisk
from oncelog.testing.sim.loop import Process, SimLoop, as_process, crash
from tests.storage.opened import Opened, open_on, small_segments

T = TypeVar("T")
WINDOW = 5

producers = st.integers(0, 2)


@dataclass(frozen=True)
class Sent:
    """A batch in the list."""

    producer_id: int
    epoch: int
    sequence: int
    count: int
    base_offset: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) % (MAX_SEQUENCE + 1)


class LogModel(RuleBasedStateMachine):
    """One partition on a disk that forgets what was not synced."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimLoop()
        self.process = Process("broker-0")
        self.sent: list[Sent] = []
        self.log_start_offset = 0
        #: The highest offset below which a reader could have seen records.
        self.shown = 0
        self.starts = 0

    @initialize(
        seed=st.integers(0, 1 << 32),
        flush=st.sampled_from(["sync", "os"]),
        first=st.sampled_from([0, MAX_SEQUENCE - 3]),
    )
    def begin(self, seed: int, flush: str, first: int) -> None:
        self.disk = SimDisk(Random(seed))
        self.flush = flush
        self.first_sequence = first
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.process = Process(f"broker-{self.starts}")
        self.opened: Opened = self.run(
            open_on(self.disk, small_segments(), flush=self.flush, epoch=self.starts)
        )
        assert self.partition.offline is None, self.partition.offline

    def run(self, action: Coroutine[Any, Any, T]) -> T:
        with as_process(self.process):
            result: T = self.loop.run_until_complete(action)
        return result

    @property
    def partition(self) -> Any:
        return self.opened.partition

    # --- what the producers do ----------------------------------------------------------------------

    def batches_of(self, producer_id: int) -> list[Sent]:
        """The batches of the producer's newest epoch, oldest first."""
        own = [batch for batch in self.sent if batch.producer_id == producer_id]
        return [batch for batch in own if batch.epoch == own[-1].epoch]

    def append(self, producer_id: int, epoch: int, sequence: int, count: int) -> int:
        """The offset that the producer is told."""

        async def main() -> int:
            result = self.opened.append(
                producer_id=producer_id, epoch=epoch, sequence=sequence, count=count
            )
            return result.base_offset

        return self.run(main())

    @rule(producer_id=producers, count=st.integers(1, 3))
    def send(self, producer_id: int, count: int) -> None:
        own = self.batches_of(producer_id)
        epoch = own[-1].epoch if own else 0
        sequence = own[-1].next_sequence if own else self.first_sequence

        offset = self.append(producer_id, epoch, sequence, count)

        assert offset == (self.sent[-1].end_offset if self.sent else 0)
        self.sent.append(Sent(producer_id, epoch, sequence, count, offset))

    @rule(producer_id=producers, back=st.integers(1, WINDOW))
    def repeat(self, producer_id: int, back: int) -> None:
        own = self.batches_of(producer_id)
        if back <= len(own):
            old = own[-back]
            offset = self.append(producer_id, old.epoch, old.sequence, old.count)
            assert offset == old.base_offset

    @rule(producer_id=producers)
    def repeat_what_is_too_old(self, producer_id: int) -> None:
        own = self.batches_of(producer_id)
        if len(own) > WINDOW:
            old = own[-WINDOW - 1]
            with pytest.raises(OutOfOrderSequence):
                self.append(producer_id, old.epoch, old.sequence, old.count)

    @rule(producer_id=producers, gap=st.integers(1, 5))
    def leave_a_gap(self, producer_id: int, gap: int) -> None:
        own = self.batches_of(producer_id)
        if own:
            sequence = (own[-1].next_sequence + gap) % (MAX_SEQUENCE + 1)
            with pytest.raises(OutOfOrderSequence):
                self.append(producer_id, own[-1].epoch, sequence, 1)

    @rule(producer_id=producers, raise_by=st.integers(1, 3))
    def raise_the_epoch(self, producer_id: int, raise_by: int) -> None:
        own = self.batches_of(producer_id)
        epoch = own[-1].epoch + raise_by if own else 0

        offset = self.append(producer_id, epoch, 0, 1)

        self.sent.append(Sent(producer_id, epoch, 0, 1, offset))

    @rule(producer_id=producers)
    def send_with_an_old_epoch(self, producer_id: int) -> None:
        own = self.batches_of(producer_id)
        if own and own[-1].epoch > 0:
            with pytest.raises(InvalidProducerEpoch):
                self.append(producer_id, own[-1].epoch - 1, own[-1].next_sequence, 1)

    # --- what the broker does -------------------------------------------------------------------------

    @rule()
    def sync(self) -> None:
        self.run(self.opened.logs.flusher.flush())
        assert self.partition.high_watermark == self.partition.log.log_end_offset

    @rule()
    def checkpoint(self) -> None:
        self.run(self.opened.logs.checkpoint())

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.partition.high_watermark))
        self.run(self.opened.delete_records(offset))
        self.log_start_offset = max(self.log_start_offset, offset)

    # --- how it ends ------------------------------------------------------------------------------------

    @rule()
    def power_cut(self) -> None:
        """Whatever is left is a prefix of the list, and reaches as far as anyone could see."""
        promised = self.shown if self.flush == "sync" else self.partition.recovery_point
        crash(self.process)
        self.disk = self.disk.crash()
        self.start()
        end = self.partition.log.log_end_offset
        assert end >= promised
        left = [batch for batch in self.sent if batch.end_offset <= end]
        assert (left[-1].end_offset if left else 0) == end
        self.sent, self.shown = left, end

    @rule()
    def kill(self) -> None:
        """The process ends and the machine does not: nothing is lost in either flush mode."""
        crash(self.process)
        self.start()
        assert self.partition.log.log_end_offset == (self.sent[-1].end_offset if self.sent else 0)

    @rule()
    def orderly_stop(self) -> None:
        self.run(self.opened.logs.close())
        crash(self.process)
        self.start()
        assert self.opened.logs.was_clean
        assert self.partition.log.log_end_offset == (self.sent[-1].end_offset if self.sent else 0)

    # --- what must hold at any time -----------------------------------------------------------------------

    @invariant()
    def the_log_is_the_list(self) -> None:
        if not self.starts:
            return
        log = self.partition.log
        found = [
            Sent(h.producer_id, h.producer_epoch, h.base_sequence, h.records_count, h.base_offset)
            for h, _ in log.walk(log.log_start_offset, log.end())
        ]
        assert log.log_start_offset == self.log_start_offset
        assert found == [batch for batch in self.sent if batch.end_offset > self.log_start_offset]
        assert self.partition.high_watermark >= self.shown
        self.shown = self.partition.high_watermark

    def teardown(self) -> None:
        crash(self.process)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        assert self.loop.failures == []
        self.loop.close()


LogModel.TestCase.settings = settings(
    settings.get_profile("here"), max_examples=60, stateful_step_count=60
)
TestLogModel = LogModel.TestCase
