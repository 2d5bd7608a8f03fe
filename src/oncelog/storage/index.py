"""The sparse indexes beside a segment, in Kafka's own formats.

    .index      relative offset u32 | file position u32         every `index.interval.bytes`
    .timeindex  timestamp i64 | relative offset u32             times growing

An index is a hint: entries are kept in memory and written with the next checkpoint; after a crash
that of an unfinished segment is rebuilt from the log. That of a full segment is synced with it.
"""

import struct
from bisect import bisect_left, bisect_right
from typing import Final

from oncelog.storage.disk import Disk, File

OFFSET_ENTRY: Final = struct.Struct(">II")
TIME_ENTRY: Final = struct.Struct(">qI")


class SparseIndex:
    """Pairs of (key, value), keys growing; lookups find the last pair at or below a key."""

    def __init__(self, disk: Disk, path: str, entry: struct.Struct) -> None:
        self._disk = disk
        self._path = path
        self._entry = entry
        self._file: File | None = None
        self._stored_count = 0
        self._unwritten: list[tuple[int, int]] = []

    def load(self) -> bool:
        """Take over the file's entries; says whether it reads as an index."""
        try:
            self._file = self._disk.open(self._path)
        except FileNotFoundError:
            return False
        self._stored_count, rest = divmod(self._file.size_bytes, self._entry.size)
        return rest == 0

    def __len__(self) -> int:
        return self._stored_count + len(self._unwritten)

    def __getitem__(self, index: int) -> tuple[int, int]:
        if index >= self._stored_count:
            return self._unwritten[index - self._stored_count]
        assert self._file is not None, f"{self._path} has stored entries but no file"
        data = self._file.read(index * self._entry.size, self._entry.size)
        key, value = self._entry.unpack(data)
        return key, value

    def last(self) -> tuple[int, int] | None:
        """The newest pair."""
        return self[len(self) - 1] if len(self) else None

    def append(self, key: int, value: int) -> None:
        """Add a pair; a key that does not grow is left out."""
        last = self._unwritten[-1] if self._unwritten else self.last()
        if last is None or key > last[0]:
            self._unwritten.append((key, value))

    def find(self, key: int) -> tuple[int, int] | None:
        """The last pair whose key is not above `key`."""
        position = bisect_right(_Keys(self), key)
        return self[position - 1] if position else None

    def first_from_value(self, value: int) -> tuple[int, int] | None:
        """The first pair whose value is not below `value`; values grow with keys."""
        position = bisect_left(_Values(self), value)
        return self[position] if position < len(self) else None

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count <= self._stored_count:
            self._unwritten = []
            self._stored_count = count
            if self._file is not None:
                self._file.truncate(count * self._entry.size)
        else:
            del self._unwritten[count - self._stored_count :]

    def forget(self) -> None:
        """Begin anew: the file is not believed, and replaced with the next write."""
        self.close()
        self._file = None
        self._stored_count = 0
        self._unwritten = []

    def write(self) -> File:
        """Hand what is new to the disk; only that of a full segment is worth a sync."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
        if self._unwritten:
            self._file.append([b"".join(self._entry.pack(*pair) for pair in self._unwritten)])
            self._stored_count += len(self._unwritten)
            self._unwritten = []
        return self._file

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


class _Keys:
    """The keys of an index as a sequence, for bisection without reading the whole file."""

    def __init__(self, index: SparseIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, position: int) -> int:
        return self._index[position][0]


class _Values(_Keys):
    """The values of an index whose values grow too."""

    def __getitem__(self, position: int) -> int:
        return self._index[position][1]
