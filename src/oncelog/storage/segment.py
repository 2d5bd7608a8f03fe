"""One segment: `<base offset>.log` with record batches one after the other, and its indexes."""

from collections.abc import Iterator, Sequence
from typing import Final

from oncelog.core.batch import HEADER_BYTES, BatchHeader, Buffer, is_whole, read_header
from oncelog.core.log import SegmentFacts
from oncelog.storage.disk import Disk, File
from oncelog.storage.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from oncelog.storage.txn_index import TxnIndex

#: How much of a file is read at a time when batches are walked.
WALK_BYTES: Final = 1 << 20
#: A lookup starts at an index entry, so the batch that it wants is near: read little.
LOOKUP_BYTES: Final = 16 << 10


#: The files of a segment.
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")


def segment_name(base_offset: int) -> str:
    """`00000000000000000042`."""
    return f"{base_offset:020d}"


class Segment:
    """A run of batches that starts at `base_offset`."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int,
        create: bool = False,
    ) -> None:  # fmt: skip
        stem = f"{directory}/{segment_name(base_offset)}"
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.file = disk.open(f"{stem}.log", create=create)
        self.offset_index = SparseIndex(disk, f"{stem}.index", OFFSET_ENTRY)
        self.time_index = SparseIndex(disk, f"{stem}.timeindex", TIME_ENTRY)
        self.txn_index = TxnIndex(disk, f"{stem}.txnindex")
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.first_timestamp: int | None = None
        self._index_interval_bytes = index_interval_bytes
        self._since_index_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The length of the log file."""
        return self.file.size_bytes

    def facts(self) -> SegmentFacts:
        """What the rules of rolling and retention look at."""
        return SegmentFacts(
            self.base_offset,
            self.end_offset,
            self.file.size_bytes,
            self.max_timestamp,
            self.first_timestamp,
        )

    def append(self, header: BatchHeader, chunks: Sequence[Buffer]) -> None:
        """Write a batch that has its place; `header` is the placed one."""
        position = self.file.size_bytes
        self.file.append(chunks)
        self.note(header, position)

    def note(self, header: BatchHeader, position: int) -> None:
        """Take a batch at `position` into account: live after its write, or while recovering."""
        if self._since_index_bytes > self._index_interval_bytes:
            self.offset_index.append(header.last_offset - self.base_offset, position)
            if self.max_timestamp >= 0:
                self.time_index.append(
                    self.max_timestamp, self.max_timestamp_offset - self.base_offset
                )
            self._since_index_bytes = 0
        self._since_index_bytes += header.size_bytes
        self.end_offset = header.next_offset
        if self.first_timestamp is None and header.max_timestamp >= 0:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset

    def walk(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the batches from `position` on, up to the first bad header."""
        size = self.file.size_bytes
        window, start = memoryview(b""), position
        while size - position >= HEADER_BYTES:
            if position + HEADER_BYTES > start + len(window):
                window, start = memoryview(self.file.read(position, WALK_BYTES)), position
                if len(window) < HEADER_BYTES:
                    return
            header = read_header(window, position - start)
            if not is_whole(header, size - position):
                return
            yield position, header
            position += header.size_bytes

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or after `offset`, and where it is."""
        position = self.index_position(offset)
        size = self.file.size_bytes
        window, start = memoryview(b""), position
        while size - position >= HEADER_BYTES:
            if position + HEADER_BYTES > start + len(window):
                window, start = memoryview(self.file.read(position, LOOKUP_BYTES)), position
                if len(window) < HEADER_BYTES:
                    return None
            header = read_header(window, position - start)
            if header.last_offset >= offset or not is_whole(header, size - position):
                return position, header
            position += header.size_bytes
        return None

    def offset_after(self, position: int) -> int:
        """An offset above every record before `position`, not much too large."""
        entry = self.offset_index.first_from_value(position)
        return self.end_offset if entry is None else self.base_offset + entry[0] + 1

    def index_position(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        if offset <= self.base_offset:
            return 0
        entry = self.offset_index.find(offset - self.base_offset)
        return entry[1] if entry else 0

    def seal(self) -> tuple[File, File]:
        """Finish the indexes, since no further batch comes; returns what is to be synced."""
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return self.write_indexes()

    def write_indexes(self) -> tuple[File, File]:
        """Hand new index entries to the disk."""
        return self.offset_index.write(), self.time_index.write()

    def close(self) -> None:
        """Let go of the files."""
        self.file.close()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()
