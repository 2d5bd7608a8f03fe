"""Reading as consumers do: what a fetch delivers, the final read of everything, and a watcher.

A watcher reads at read_uncommitted, which a history of a read_committed run has no place for. It
keeps what it saw; whatever anybody saw must still be there at the end.
"""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from oncelog.check.history import Op, Record
from oncelog.check.payload import value_of
from oncelog.core.packing import is_commit, read_batches
from oncelog.core.records import Record as LogRecord
from oncelog.testing.sim.client import Client, Part, Stage, part_name
from oncelog.testing.sim.world import Disconnected
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
#: Isolation levels.
UNCOMMITTED = 0
COMMITTED = 1


class Ends(NamedTuple):
    """Where a partition begins, is stable, and ends."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int

    def readable(self, isolation: int) -> int:
        """Where a reader has to stop."""
        return self.last_stable_offset if isolation == COMMITTED else self.high_watermark


def delivered(answer: PartitionData, offset: int) -> tuple[list[LogRecord], int]:
    """What a consumer delivers from a fetch, and where it goes on.

    An aborted transaction begins to count with the first batch at or after its first offset, and
    ends with its ABORT marker. Markers are not delivered, but they take an offset.
    """
    waiting = sorted((t.first_offset, t.producer_id) for t in answer.aborted_transactions or ())
    aborted: set[int] = set()
    found: list[LogRecord] = []
    for header, records in read_batches(answer.records or b""):
        while waiting and waiting[0][0] <= header.last_offset:
            aborted.add(waiting.pop(0)[1])
        if header.is_control:
            if records and not is_commit(records[0]):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [record for record in records if record.offset >= offset]
        offset = max(offset, header.next_offset)
    return found, offset


def fetch_request(
    positions: dict[Part, int],
    *,
    wait_ms: int,
    isolation: int = COMMITTED,
    max_bytes: int = 1 << 16,
) -> FetchRequest:
    """A fetch without a session."""
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        topics.setdefault(topic, []).append(
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[FetchTopic(topic=t, partitions=p) for t, p in topics.items()],
    )


def answers(reply: FetchResponse) -> Iterator[tuple[Part, PartitionData]]:
    """What was fetched, by partition."""
    for topic in reply.responses:
        for answer in topic.partitions:
            yield (topic.topic, answer.partition_index), answer


class Reader(Client):
    """Reads partitions from their beginning to their end, alone."""

    async def read(
        self, parts: Sequence[Part], *, isolation: int
    ) -> tuple[dict[Part, list[Record]], dict[Part, Ends]]:
        """Everything that is there, and the ends that were found."""
        found: dict[Part, list[Record]] = {part: [] for part in parts}
        ends: dict[Part, Ends] = {}
        positions: dict[Part, int] = {}
        while True:
            try:
                if not ends:
                    ends = await self.ends(parts)
                    for part, end in ends.items():
                        positions[part] = max(positions.get(part, 0), end.log_start_offset)
                left = {
                    part: offset
                    for part, offset in positions.items()
                    if offset < ends[part].readable(isolation)
                }
                if not left:
                    return found, ends
                request = fetch_request(left, wait_ms=10, isolation=isolation)
                for part, answer in answers(await self.ask(request, 11)):
                    if answer.error_code:
                        ends = {}  # It may begin later by now.
                    records, positions[part] = delivered(answer, positions[part])
                    found[part] += [as_read(record, self._stage.run) for record in records]
            except Disconnected:
                await self.pause()

    async def ends(self, parts: Sequence[Part]) -> dict[Part, Ends]:
        """Where partitions begin and end."""
        starts = await self.offsets(parts, EARLIEST, UNCOMMITTED)
        stable = await self.offsets(parts, LATEST, COMMITTED)
        last = await self.offsets(parts, LATEST, UNCOMMITTED)
        return {part: Ends(starts[part], stable[part], last[part]) for part in parts}

    async def offsets(
        self, parts: Sequence[Part], timestamp: int, isolation: int
    ) -> dict[Part, int]:
        """What ListOffsets says, asked until it answers for all of them."""
        found: dict[Part, int] = {}
        while True:
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for topic, partition in parts:
                if (topic, partition) not in found:
                    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                    topics.setdefault(topic, []).append(asked)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=t, partitions=p) for t, p in topics.items()],
            )
            reply = await self.ask(request, 3)
            for told in reply.topics:
                for answer in told.partitions:
                    if answer.error_code == 0:
                        found[told.name, answer.partition_index] = int(answer.offset)
            if len(found) == len(parts):
                return found
            await self.pause()


class Watcher(Reader):
    """Reads all partitions at read_uncommitted as they grow, and asks where they end."""

    def __init__(
        self, stage: Stage, name: str, rng: Random, *, parts: list[Part], patience_s: float
    ) -> None:
        super().__init__(stage, name, rng, patience_s=patience_s)
        self._parts = parts
        self._process = self._recorder.new_process()
        self.seen: dict[Part, dict[int, int | None]] = {part: {} for part in parts}
        self.failures: list[str] = []

    async def work(self, stop: asyncio.Event) -> None:
        """Watch until told to stop."""
        positions = dict.fromkeys(self._parts, 0)
        while not stop.is_set():
            try:
                await self._look(positions)
                if self._rng.random() < 0.3:
                    await self._ask_for_ends()
            except Disconnected:
                await self.pause()
            await asyncio.sleep(self._rng.choice((0, 0.02, 0.4)))

    async def _look(self, positions: dict[Part, int]) -> None:
        request = fetch_request(positions, wait_ms=300, isolation=UNCOMMITTED)
        for part, answer in answers(await self.ask(request, 11)):
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                positions |= await self.offsets([part], EARLIEST, UNCOMMITTED)
                continue
            records, positions[part] = delivered(answer, positions[part])
            for record in records:
                self._saw(part, as_read(record, self._stage.run))

    def _saw(self, part: Part, record: Record) -> None:
        known = self.seen[part].setdefault(record.offset, record.value)
        if known != record.value:
            self.failures.append(
                f"{self.name} read {record.value} at {part_name(part)}@{record.offset}, "
                f"and {known} before"
            )

    async def _ask_for_ends(self) -> None:
        """The end of what is committed never goes back, nor does it lie behind the log's end."""
        call = self._recorder.call(self._process, Op.LATEST)
        try:
            stable = await self.offsets(self._parts, LATEST, COMMITTED)
            ends = await self.offsets(self._parts, LATEST, UNCOMMITTED)
        except Disconnected:
            self._recorder.unknown(call, err="DISCONNECTED")
            self._process = self._recorder.new_process()
            raise
        self._recorder.ok(call, offsets={part_name(p): offset for p, offset in stable.items()})
        for part, end in ends.items():
            if stable[part] > end:
                self.failures.append(
                    f"{part_name(part)} was stable up to {stable[part]} and ended at {end} after"
                )

    def missing_from(self, part: Part, found: list[Record], log_start_offset: int) -> list[str]:
        """What it saw, and the final read of the same partition does not hold."""
        there = {record.offset: record.value for record in found}
        return [
            f"{self.name} read {value} at {part_name(part)}@{offset}, where the final read has "
            f"{there.get(offset, 'nothing')}"
            for offset, value in self.seen[part].items()
            if offset >= log_start_offset and there.get(offset, -1) != value
        ]


def as_read(record: LogRecord, run: int) -> Record:
    """A record as a history has it."""
    return Record(record.offset, value_of(record.value or b"", run=run))
