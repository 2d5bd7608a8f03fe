"""K2: what the files of a partition hold, by a reader that shares no code with the broker.

Every batch must parse and have its checksum, offsets must follow one another, and of one producer
neither sequences nor epochs nor its coordinators' epochs may go back. What is found wrong is
`Damaged`; compressed batches, which no recorded run writes, are not read.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

# base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last
# time, producer id, producer epoch, base sequence, count
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX_BYTES: Final = 12
_CRC_START: Final = 21
_COMPRESSION: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
#: A control record's key: version, and whether it aborts or commits.
_KEY: Final = struct.Struct(">hh")
#: Its value: version, and the coordinator's epoch.
_VALUE: Final = struct.Struct(">hi")
_COMMIT: Final = 1
#: A sequence so far below the last one has begun anew after the highest there is.
_HALF: Final = 1 << 30

Bytes: TypeAlias = bytes | bytearray | memoryview


class Damaged(Exception):
    """A log that is not as a broker may leave it."""


class Segment(NamedTuple):
    """One file of a log."""

    name: str
    data: Bytes


class Entry(NamedTuple):
    """One record."""

    offset: int
    key: bytes | None
    value: bytes | None


class End(NamedTuple):
    """What a marker says."""

    is_commit: bool
    coordinator_epoch: int


class Batch(NamedTuple):
    """One batch that was found whole."""

    where: str
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    body: memoryview

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def end(self) -> End | None:
        """How it ends a transaction; None for a batch of a client."""
        if not self.attributes & _CONTROL:
            return None
        (record,) = self.records()
        key, value = record.key or b"", record.value or b""
        if len(key) < _KEY.size or len(value) < _VALUE.size:
            raise Damaged(f"{self.where}: a control record that is too short")
        return End(_KEY.unpack_from(key)[1] == _COMMIT, _VALUE.unpack_from(value)[1])

    def records(self) -> Iterator[Entry]:
        """Its records, one by one."""
        if self.attributes & _COMPRESSION:
            raise Damaged(f"{self.where}: compressed, which this reader cannot unpack")
        fields = _Fields(self.body, self.where)
        for _ in range(self.record_count):
            end = fields.integer() + fields.position
            fields.skip(1)
            fields.integer()  # the time
            offset = self.base_offset + fields.integer()
            yield Entry(offset, fields.content(), fields.content())
            fields.position = end


class _Fields:
    """Reads what a record is made of."""

    def __init__(self, data: memoryview, where: str) -> None:
        self._data = data
        self._where = where
        self.position = 0

    def skip(self, size: int) -> None:
        self.position += size

    def integer(self) -> int:
        """A zig-zag number, seven bits in each byte."""
        found = 0
        for shift in range(0, 70, 7):
            if not 0 <= self.position < len(self._data):
                break
            byte = self._data[self.position]
            self.position += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return (found >> 1) ^ -(found & 1)
        raise Damaged(f"{self._where}: a record that does not end")

    def content(self) -> bytes | None:
        size = self.integer()
        if size < 0:
            return None
        if self.position + size > len(self._data):
            raise Damaged(f"{self._where}: a field that is longer than its record")
        self.position += size
        return bytes(self._data[self.position - size : self.position])


def segments_in(directory: Path) -> Iterator[Segment]:
    """The files of a partition's directory, in order."""
    for path in sorted(directory.glob("*.log")):
        yield Segment(path.name, path.read_bytes())


def batches(segments: Iterable[Segment], *, start_offset: int | None = None) -> Iterator[Batch]:
    """Every batch of a log in order, each checked.

    Retention may have removed the first files: a log begins where the first one that is left says,
    unless it is known where that has to be.
    """
    expected = start_offset
    known: dict[int, _Producer] = {}
    for segment in segments:
        start = int(segment.name.removesuffix(".log"))
        if expected is not None and start != expected:
            raise Damaged(f"{segment.name} should begin at {expected}")
        expected = start
        for batch in _batches_of(segment):
            if batch.base_offset != expected:
                raise Damaged(f"{batch.where}: offset {batch.base_offset}, not {expected}")
            expected = batch.last_offset + 1
            if batch.producer_id >= 0:
                known.setdefault(batch.producer_id, _Producer()).check(batch)
            yield batch


def walk(directory: Path) -> int:
    """Check every batch in a partition's directory, from offset 0 on; returns the end offset."""
    end = 0
    for batch in batches(segments_in(directory), start_offset=0):
        end = batch.last_offset + 1
    return end


def _batches_of(segment: Segment) -> Iterator[Batch]:
    data = memoryview(segment.data)
    position = 0
    while position < len(data):
        where = f"{segment.name} at byte {position}"
        if len(data) - position < _BATCH.size:
            raise Damaged(f"{where}: a batch that is cut")
        (
            base_offset, length, _, magic, crc, attributes, last_delta, _, _,
            producer_id, producer_epoch, base_sequence, count,
        ) = _BATCH.unpack_from(data, position)  # fmt: skip
        end = position + _PREFIX_BYTES + length
        if magic != 2:
            raise Damaged(f"{where}: magic {magic}")
        if not position + _BATCH.size <= end <= len(data):
            raise Damaged(f"{where}: a batch that is cut")
        if crc32c(data[position + _CRC_START : end]) != crc:
            raise Damaged(f"{where}: the checksum does not hold")
        if count != last_delta + 1 or count < 1:
            raise Damaged(f"{where}: {count} records up to {last_delta}")
        yield Batch(
            where, base_offset, base_offset + last_delta, attributes, producer_id, producer_epoch,
            base_sequence, count, data[position + _BATCH.size : end],
        )  # fmt: skip
        position = end


@dataclass(slots=True)
class _Producer:
    """How far one producer has come in one partition."""

    epoch: int = -1
    last_sequence: int = -1
    coordinator_epoch: int = -1

    def check(self, batch: Batch) -> None:
        who = f"{batch.where}: producer {batch.producer_id}"
        if batch.producer_epoch < self.epoch:
            raise Damaged(f"{who} wrote under epoch {batch.producer_epoch} after {self.epoch}")
        if batch.producer_epoch > self.epoch:
            self.epoch, self.last_sequence = batch.producer_epoch, -1
        end = batch.end
        if end is None:
            self._follow(batch, who)
            return
        if end.coordinator_epoch < self.coordinator_epoch:
            raise Damaged(
                f"{who} has a marker of coordinator epoch {end.coordinator_epoch} after one of "
                f"{self.coordinator_epoch}"
            )
        self.coordinator_epoch = end.coordinator_epoch

    def _follow(self, batch: Batch, who: str) -> None:
        step = batch.base_sequence - self.last_sequence
        if -_HALF < step <= 0:
            raise Damaged(f"{who} wrote sequence {batch.base_sequence} after {self.last_sequence}")
        # Beyond the highest one they begin at 0 again.
        self.last_sequence = (batch.base_sequence + batch.record_count - 1) % (1 << 31)
