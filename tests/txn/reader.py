"""A reader that does with a fetch what Kafka's clients do: fact sheet, section 8.3."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.core.packing import is_commit, read_batches
from oncelog.core.records import Record
from oncelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.txn.producer import TOPIC
from tests.txn.world import Line

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


def a_fetch(
    offset: int = 0,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    isolation: int = READ_COMMITTED,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
) -> FetchRequest:
    """A Fetch of one partition."""
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


def fetched(reply: object) -> PartitionData:
    """The one partition of a Fetch response."""
    data = reply.responses[0].partitions[0]  # type: ignore[attr-defined] # any FetchResponse
    assert isinstance(data, PartitionData)
    return data


def fetch(
    line: Line,
    offset: int = 0,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    isolation: int = READ_COMMITTED,
    max_bytes: int = 1 << 20,
    version: int = 12,
) -> PartitionData:
    """Fetch once."""
    request = a_fetch(
        offset, topic=topic, partition=partition, isolation=isolation, max_bytes=max_bytes
    )
    return fetched(line.ask(request, version))


@dataclass(frozen=True, slots=True)
class Delivered:
    """What an application gets of one fetch, and where it asks next."""

    records: tuple[Record, ...]
    next_offset: int


def deliver(data: PartitionData, offset: int) -> Delivered:
    """Leave out markers and what was aborted."""
    aborted: list[AbortedTransaction] = sorted(
        data.aborted_transactions or (), key=lambda entry: entry.first_offset
    )
    active: set[int] = set()
    delivered: list[Record] = []
    for header, records in read_batches(data.records or b""):
        while aborted and aborted[0].first_offset <= header.last_offset:
            active.add(aborted.pop(0).producer_id)
        if header.is_control:
            if not is_commit(records[0]):
                active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            delivered += [record for record in records if record.offset >= offset]
        offset = max(offset, header.next_offset)
    return Delivered(tuple(delivered), offset)


def read(
    line: Line,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    offset: int = 0,
    isolation: int = READ_COMMITTED,
    max_bytes: int = 1 << 20,
) -> list[bytes]:
    """All values that an application gets, from an offset to the end of what may be read."""
    values: list[bytes] = []
    while True:
        data = fetch(
            line,
            offset,
            topic=topic,
            partition=partition,
            isolation=isolation,
            max_bytes=max_bytes,
        )
        assert data.error_code == 0, data
        end = data.last_stable_offset if isolation == READ_COMMITTED else data.high_watermark
        found = deliver(data, offset)
        assert all(record.offset < end for record in found.records), "nothing beyond the end"
        values += [record.value or b"" for record in found.records]
        if found.next_offset == offset:
            assert offset >= end, f"no progress at {offset}, the end is {end}"
            return values
        offset = found.next_offset


def markers(
    line: Line, *, topic: str = TOPIC, partition: int = 0
) -> list[tuple[int, int, int, bool, int]]:
    """Each marker: offset, producer id, epoch, whether it commits, coordinator epoch."""
    found = []
    data = fetch(line, topic=topic, partition=partition, isolation=READ_UNCOMMITTED)
    for header, records in read_batches(data.records or b""):
        if header.is_control:
            (marker,) = records
            epoch = int.from_bytes((marker.value or b"")[2:6], "big")
            place = (header.base_offset, header.producer_id, header.producer_epoch)
            found.append((*place, is_commit(marker), epoch))
    return found


def list_offset(
    line: Line,
    timestamp: int,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    isolation: int = READ_COMMITTED,
    version: int = 7,
) -> ListOffsetsPartitionResponse:
    """ListOffsets of one partition."""
    part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        # Brokers and tools have other numbers, and are told the high watermark.
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[part])],
    )
    answer: ListOffsetsPartitionResponse = line.ask(request, version).topics[0].partitions[0]
    return answer


def ends(line: Line, *, topic: str = TOPIC, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    stable = list_offset(line, LATEST, topic=topic, partition=partition)
    end = list_offset(line, LATEST, topic=topic, partition=partition, isolation=READ_UNCOMMITTED)
    return stable.offset, end.offset


def aborted(data: PartitionData) -> Sequence[tuple[int, int]] | None:
    """The aborted transactions that a fetch names."""
    if data.aborted_transactions is None:
        return None
    return [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions]
