"""Read a range of one partition as a consumer would, batch by batch and unopened.

What comes out is what a reader of the given isolation level may see: markers are left out, and so
are the batches of aborted transactions. A range ends when its end is passed, whether or not there is
a record at it: markers, aborted records and compaction leave gaps, and none of them is a loss. What
is a loss, since retention or a deleted topic took what was asked for, has errors of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias
from uuid import UUID

from oncelog.client.admin import EARLIEST, LATEST, list_offsets
from oncelog.client.cluster import PASSING, Cluster, error_codes, raise_for
from oncelog.client.errors import BadReply, ClientError, Refused
from oncelog.core.batch import (
    MAGIC_OFFSET,
    BatchHeader,
    Buffer,
    checksum,
    is_whole,
)
from oncelog.core.errors import CorruptMessage
from oncelog.core.markers import decode_marker
from oncelog.core.records import batches
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from oncelog.wire.messages.list_offsets import ListOffsetsRequest

Batch: TypeAlias = tuple[BatchHeader, memoryview]

#: How much one answer brings: enough to be worth a round trip, little enough to be held twice.
FETCH_BYTES: Final = 8 * 1024 * 1024
#: How much the first answer brings, which shows how large records are; and the least to ask for.
FIRST_FETCH_BYTES: Final = 1024 * 1024
LEAST_FETCH_BYTES: Final = 64 * 1024
#: How long a broker may hold back an answer that would be empty.
FETCH_WAIT_MS: Final = 500
#: How long a range may make no progress before it is given up.
WAIT_S: Final = 30.0

_LAST_BY_NAME: Final = 12
_EARLIEST_LOCAL: Final = -4
_FIRST_WITH_LOCAL: Final = 8
_NO_ID: Final = UUID(int=0)
_OFFSET_MAX: Final = (1 << 63) - 1
# Answers of other brokers than ours: a disk that is being replaced, a leader that has just begun.
_KAFKA_STORAGE_ERROR: Final = 56
_OFFSET_NOT_AVAILABLE: Final = 78
_WAIT_OUT: Final = PASSING | {_KAFKA_STORAGE_ERROR, _OFFSET_NOT_AVAILABLE}
#: The partition may be gone, or this broker may not have heard of it yet.
_UNKNOWN: Final = frozenset(
    {
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.UNKNOWN_TOPIC_ID),
        int(ErrorCode.INCONSISTENT_TOPIC_ID),
    }
)


class Isolation(IntEnum):
    """Whether the records of open and aborted transactions are read as well."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The records of one partition from offset `start` on and before offset `end`."""

    topic: str
    partition: int
    start: int
    end: int
    #: Which topic of that name, or `None` for whichever there is.
    topic_id: UUID | None = None

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets it spans."""
        return self.end - self.start


class DataLost(ClientError):
    """Records that were asked for are not there any more. Nothing was read in their place."""


class OffsetsGone(DataLost):
    """The log does not hold the offsets that were asked for."""

    def __init__(self, wanted: Range, *, log_start_offset: int, log_end_offset: int) -> None:
        """The ends are those of the log as it is now."""
        self.position = wanted.start
        self.log_start_offset = log_start_offset
        why = (
            "retention or a deletion removed them before they were read"
            if wanted.start < log_start_offset
            else "the log was cut or made anew"
        )
        super().__init__(
            f"Partition {wanted.place}: the offsets from {wanted.start} on and before {wanted.end} "
            f"were to be read, and the log now holds those from {log_start_offset} on and before "
            f"{log_end_offset}: {why}."
        )


class TopicGone(DataLost):
    """The topic, or this partition of it, does not exist, or is another one of the same name."""


class NotReadable(ClientError):
    """The end of a range was not reached in time. Nothing is known to be lost."""


def is_replaced(known: UUID | None, found: UUID) -> bool:
    """Whether a topic has another id than the one it was known by; old brokers tell none."""
    return known is not None and _NO_ID not in (known, found) and known != found


async def fetch(
    cluster: Cluster,
    wanted: Range,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    with_markers: bool = False,
    max_bytes: int = FETCH_BYTES,
    wait_s: float = WAIT_S,
) -> AsyncIterator[list[Batch]]:
    """The batches of a range, some from each answer; the first and the last may reach beyond it.

    With `skips_lost` what is gone is left out with a warning; otherwise it is an error. With
    `with_markers` the markers come as well, for a reader that follows transactions by itself.
    """
    reader = _Reader(cluster, wanted, isolation, max_bytes)
    position = wanted.start
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while position < wanted.end:
        answer = await reader.ask(position, isolation)
        found, following = visible(
            answer.records or b"",
            answer.aborted_transactions or (),
            position,
            wanted.end,
            with_markers=with_markers,
        )
        if found:
            yield found
        if following > position:
            reader.note(following - position, len(answer.records or b""))
            position = following
            deadline = loop.time() + wait_s
        elif await reader.is_void(answer, position):
            return
        elif loop.time() > deadline:
            raise reader.not_readable(answer, position, wait_s)


def visible(
    records: Buffer,
    aborted: Iterable[AbortedTransaction],
    position: int,
    end: int,
    *,
    with_markers: bool = False,
) -> tuple[list[Batch], int]:
    """What an answer brings of the offsets from `position` on, and where to go on.

    As a read_committed consumer does it: a transaction that the answer names as aborted begins at
    its first offset and ends with its marker, and its batches in between are left out.
    """
    if len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] < 2:
        raise CorruptMessage(
            f"the records at offset {position} are in message format {records[MAGIC_OFFSET]}, of "
            "Kafka before 0.11: only record batches (format 2) can be read"
        )
    found: list[Batch] = []
    upcoming = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
    aborting: set[int] = set()
    is_empty = True
    for header, batch in batches(records):
        is_empty = False
        _check(header, batch)
        if header.next_offset <= position:
            continue
        if header.base_offset >= end:
            return found, end
        while upcoming and upcoming[-1].first_offset <= header.last_offset:
            aborting.add(upcoming.pop().producer_id)
        if header.is_control:
            marker = decode_marker(header, batch)
            if marker is not None and not marker.committed:
                aborting.discard(header.producer_id)
            if with_markers:
                found.append((header, batch))
        elif not (header.is_transactional and header.producer_id in aborting):
            if header.records_count:
                found.append((header, batch))
        position = header.next_offset
    if is_empty and len(records):
        raise BadReply(f"The answer at offset {position} holds no whole batch.")
    return found, position


def _check(header: BatchHeader, batch: memoryview) -> None:
    if not is_whole(header, len(batch)) or header.next_offset > _OFFSET_MAX:
        raise CorruptMessage(f"the batch at {header.base_offset} has a header that cannot be")
    if checksum(batch) != header.crc:
        raise CorruptMessage(f"the checksum of the batch at {header.base_offset} does not hold")


@dataclass(frozen=True, slots=True)
class _Leader:
    node_id: int
    topic_id: UUID


class _Reader:
    """Asks the leader of one partition, whoever that is by now."""

    def __init__(
        self, cluster: Cluster, wanted: Range, isolation: Isolation, max_bytes: int
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._leader: _Leader | None = None
        self._seen_offsets = self._seen_bytes = 0

    def note(self, offsets: int, size_bytes: int) -> None:
        """So many offsets came in so many bytes."""
        self._seen_offsets += offsets
        self._seen_bytes += size_bytes

    def _bytes_for(self, position: int) -> int:
        """What the rest of the range takes, if it is like what came, and an eighth to spare.

        A micro-batch wants a small part of a long log: what is sent beyond it is sent in vain.
        """
        if self._seen_offsets == 0:
            return min(FIRST_FETCH_BYTES, self._max_bytes)
        left = (self._wanted.end - position) * self._seen_bytes // self._seen_offsets
        return min(max(left + left // 8, LEAST_FETCH_BYTES), self._max_bytes)

    async def ask(self, position: int, isolation: Isolation) -> PartitionData:
        """What the leader has at a position; nothing, if it wants to be asked again."""

        async def attempt() -> FetchResponse:
            leader = self._leader or await self._find_leader()
            self._leader = None  # until it has answered well
            reply = await self._request(leader, position, isolation)
            codes = set(error_codes(reply))
            if codes & _UNKNOWN:
                # Either this says that the partition is gone for good, or the broker will learn.
                await self._find_leader()
            if codes & (_UNKNOWN | _WAIT_OUT):
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {self._wanted.place}")
            self._leader = leader
            return reply

        reply = await self._cluster.patiently(attempt)
        raise_for(reply.error_code, f"Partition {self._wanted.place}")
        for topic in reply.responses:
            for answer in topic.partitions:
                if answer.partition_index == self._wanted.partition:
                    await self._raise_for(answer, position)
                    return answer
        # A broker that slows us down answers without the partition.
        return PartitionData(partition_index=self._wanted.partition)

    async def is_void(self, answer: PartitionData, position: int) -> bool:
        """Whether the log goes beyond the range, and compaction has left nothing of the rest.

        Then a reader of committed records may be shown nothing, for what comes next may be open.
        """
        if self._end_of(answer) < self._wanted.end:
            return False
        more = await self.ask(position, Isolation.READ_UNCOMMITTED)
        first = next(batches(more.records or b""), None)
        if first is not None:
            return first[0].base_offset >= self._wanted.end
        if self._end_of(more) < self._wanted.end:
            return False
        # Nothing at all. That counts if the log is here, and not in storage that may be slow.
        connection = await self._cluster.any()
        if connection.version_of(ListOffsetsRequest()) < _FIRST_WITH_LOCAL:
            return True
        place = self._wanted.place
        local_start = (await list_offsets(self._cluster, {place: _EARLIEST_LOCAL}))[place]
        return local_start is not None and local_start <= position

    def not_readable(self, answer: PartitionData, position: int, wait_s: float) -> NotReadable:
        """Why a range is given up."""
        place, end = self._wanted.place, self._wanted.end
        readable = self._end_of(answer)
        if readable < end and self._isolation is Isolation.READ_COMMITTED:
            return NotReadable(
                f"Partition {place} can be read up to offset {readable} and was to be read up to "
                f"{end}: for {wait_s:g} s a transaction has been open there. Wait for it to end, or "
                "find it with `oncelog txn list`."
            )
        return NotReadable(
            f"Partition {place} was to be read up to offset {end} and is readable up to "
            f"{readable}: for {wait_s:g} s nothing has come at offset {position}. Look at its leader."
        )

    def _end_of(self, answer: PartitionData) -> int:
        if self._isolation is Isolation.READ_COMMITTED:
            return answer.last_stable_offset
        return answer.high_watermark

    async def _find_leader(self) -> _Leader:
        wanted = self._wanted
        reply = await self._cluster.metadata([wanted.topic])
        for topic in reply.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                break
            raise_for(topic.error_code, f"Topic {wanted.topic}")
            if is_replaced(wanted.topic_id, topic.topic_id):
                raise TopicGone(
                    f"Topic {wanted.topic} was deleted and created again (its id was "
                    f"{wanted.topic_id} and is {topic.topic_id}): offsets of the old one mean "
                    "nothing in the new one."
                )
            for partition in topic.partitions:
                if partition.partition_index == wanted.partition:
                    return _Leader(partition.leader_id, topic.topic_id)
        raise TopicGone(f"Partition {wanted.place} does not exist any more.")

    async def _request(self, leader: _Leader, position: int, isolation: Isolation) -> FetchResponse:
        if leader.node_id < 0:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {self._wanted.place}")
        connection = await self._cluster.node(leader.node_id)
        max_bytes = self._bytes_for(position)
        partition = FetchPartition(
            partition=self._wanted.partition,
            fetch_offset=position,
            partition_max_bytes=max_bytes,
        )
        message = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation,
            # Versions before 13 carry the name, later ones the id: fill in both.
            topics=[
                FetchTopic(
                    topic=self._wanted.topic, topic_id=leader.topic_id, partitions=[partition]
                )
            ],
        )
        at_most = _LAST_BY_NAME if leader.topic_id == _NO_ID else None
        reply: FetchResponse = await connection.request(message, at_most=at_most)
        return reply

    async def _raise_for(self, answer: PartitionData, position: int) -> None:
        place = self._wanted.place
        if answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise_for(answer.error_code, f"Partition {place}")
            return
        earliest = (await list_offsets(self._cluster, {place: EARLIEST}))[place]
        latest = (await list_offsets(self._cluster, {place: LATEST}))[place]
        left = Range(
            topic=self._wanted.topic,
            partition=self._wanted.partition,
            start=position,
            end=self._wanted.end,
        )
        raise OffsetsGone(left, log_start_offset=earliest or 0, log_end_offset=latest or 0)
