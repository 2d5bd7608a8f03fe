"""`<base offset>.txnindex`: the aborted transactions whose marker is in the segment.

    version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64

Unlike the other indexes this one is no hint: without an entry a reader would be handed what was
aborted. It is synced together with the marker, and rebuilt from the log wherever a producer snapshot
does not vouch for it.
"""

from bisect import bisect_left

from oncelog.core.stability import ENTRY, AbortedTxn
from oncelog.storage.disk import Disk, File


class TxnIndex:
    """Aborted transactions in the order of their markers."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._entries: list[AbortedTxn] | None = None

    @property
    def entries(self) -> list[AbortedTxn]:
        """All of them; read from the file on first use."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def _load(self) -> list[AbortedTxn]:
        data = self._disk.read_file(self._path) or b""
        whole = len(data) - len(data) % ENTRY.size
        return [AbortedTxn._make(fields[1:]) for fields in ENTRY.iter_unpack(data[:whole])]

    def append(self, entry: AbortedTxn) -> File:
        """Add an entry; returns the file, which has to be synced with the marker."""
        entries = self.entries
        if self._file is None:
            is_new = self._disk.read_file(self._path) is None
            self._file = self._disk.open(self._path, create=is_new)
        self._file.append([ENTRY.pack(0, *entry)])
        entries.append(entry)
        return self._file

    def truncate_from(self, offset: int) -> File | None:
        """Drop the entries of markers at or above `offset`; returns the file if it changed."""
        entries = self.entries
        count = bisect_left(entries, offset, key=lambda entry: entry.last_offset)
        data = self._disk.read_file(self._path)
        if data is None or len(data) == count * ENTRY.size:
            return None
        del entries[count:]
        self._file = self._disk.open(self._path)
        self._file.truncate(count * ENTRY.size)
        return self._file

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
