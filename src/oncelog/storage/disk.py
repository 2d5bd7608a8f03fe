"""Bytes on a disk. Everything that touches a file goes through `Disk`, so that a simulated one that
loses what was not synced can take its place.

Reads and writes reach the page cache and return; only `sync` may take long, so only it is awaited.
Paths are relative to the data directory and use `/`.
"""

import asyncio
import contextlib
import errno
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """A file that grows at its end."""

    @property
    def path(self) -> str:
        """Where it is."""

    @property
    def size_bytes(self) -> int:
        """How long it is."""

    def append(self, chunks: Sequence[Buffer]) -> None:
        """Write all of it at the end, or raise OSError and leave the file as long as it was."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer at the end of the file."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file."""

    def close(self) -> None:
        """Let go of the file; a later use opens it again."""


class Space(NamedTuple):
    """Where a disk is, how large it is, and how much of it is free; -1 where nobody knows."""

    path: str
    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """A directory tree."""

    def space(self) -> Space:
        """How much room there is."""

    def open(self, path: str, *, create: bool = False) -> File:
        """A file that exists, or a new and empty one."""

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file, or None where there is none."""

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace a small file: after a crash it holds the old or the new content, whole."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; none where there is no directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; the caller syncs the parent."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory; the caller syncs the parent."""

    def remove(self, path: str) -> None:
        """Delete a file, or a directory with all that is in it. Fine where there is none."""

    async def sync(self, files: Iterable[File], directories: Iterable[str] = ()) -> None:
        """Make the content of these files and the names in these directories durable."""


#: Each file that is synced takes a second handle meanwhile.
SYNCED_AT_ONCE = 256
#: Files that are synced side by side: a disk takes several at once, and a journal commits them together.
SYNC_THREADS = 4


class RealFile:
    """A file of the operating system; its handle may be closed behind the scenes and reopened."""

    __slots__ = ("_disk", "_fd", "_path", "_size")

    def __init__(self, disk: "RealDisk", path: str, size_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self._size = size_bytes
        self._fd: int | None = None

    @property
    def path(self) -> str:
        """Where it is."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self._size

    def fd(self) -> int:
        """The open handle."""
        if self._fd is None:
            self._fd = os.open(self._disk.absolute(self._path), os.O_RDWR | os.O_CLOEXEC)
            self._disk.opened(self)
        return self._fd

    def duplicate(self) -> int:
        """A handle that whoever asks closes; a file that was only to be synced keeps none itself."""
        if self._fd is not None:
            return os.dup(self._fd)
        return os.open(self._disk.absolute(self._path), os.O_RDWR | os.O_CLOEXEC)

    def append(self, chunks: Sequence[Buffer]) -> None:
        """Write all of it at the end, or raise OSError and leave the file as long as it was."""
        fd, start = self.fd(), self._size
        total = sum(map(len, chunks))
        try:
            written = os.pwritev(fd, chunks, start)
            if written < total:
                rest = memoryview(b"".join(chunks))
                while written < total:
                    count = os.pwrite(fd, rest[written:], start + written)
                    if count == 0:
                        raise OSError(errno.ENOSPC, "the disk takes no more bytes")
                    written += count
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, start)
            raise
        self._size = start + total

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return os.pread(self.fd(), size, position)

    def truncate(self, size_bytes: int) -> None:
        """Cut the file."""
        os.ftruncate(self.fd(), size_bytes)
        self._size = size_bytes

    def close(self) -> None:
        """Let go of the handle."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._disk.closed(self)


class RealDisk:
    """The data directory."""

    def __init__(self, root: Path, *, max_open_files: int = 512) -> None:
        self._root = root
        self._max_open_files = max_open_files
        self._open: OrderedDict[RealFile, None] = OrderedDict()
        # One thread: one sync is in flight, and the next covers all that waited for it.
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._helpers = ThreadPoolExecutor(SYNC_THREADS - 1, thread_name_prefix="sync-more")

    def absolute(self, path: str) -> Path:
        """The path that the operating system knows."""
        return self._root / path

    def space(self) -> Space:
        """How much room the file system of the data directory has."""
        path = self._root.absolute()
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return Space(str(path), -1, -1)
        return Space(str(path), usage.total, usage.free)

    def opened(self, file: RealFile) -> None:
        """Keep the number of handles bounded: the one that was opened longest ago goes."""
        self._open[file] = None
        if len(self._open) > self._max_open_files:
            next(iter(self._open)).close()

    def closed(self, file: RealFile) -> None:
        """A handle is gone."""
        self._open.pop(file, None)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """A file that exists, or a new and empty one."""
        absolute = self.absolute(path)
        if create:
            os.close(os.open(absolute, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
            return RealFile(self, path, 0)
        return RealFile(self, path, absolute.stat().st_size)

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file, or None where there is none."""
        try:
            return self.absolute(path).read_bytes()
        except FileNotFoundError:
            return None

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace a small file."""
        await self._in_thread(self._write_file, path, data)

    def _write_file(self, path: str, data: bytes) -> None:
        target = self.absolute(path)
        temporary = target.with_name(target.name + ".tmp")
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
        _sync_directory(target.parent)

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        try:
            return sorted(os.listdir(self.absolute(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents."""
        self.absolute(path).mkdir(parents=True, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory."""
        self.absolute(source).rename(self.absolute(target))

    def remove(self, path: str) -> None:
        """Delete a file, or a directory with all that is in it."""
        absolute = self.absolute(path)
        if absolute.is_dir():
            shutil.rmtree(absolute, ignore_errors=True)
        else:
            absolute.unlink(missing_ok=True)

    async def sync(self, files: Iterable[File], directories: Iterable[str] = ()) -> None:
        """Make files and directories durable, as many as can be in one visit to the thread."""
        waiting = list(files)
        paths = [self.absolute(path) for path in directories]
        while waiting or paths:
            now, waiting = waiting[:SYNCED_AT_ONCE], waiting[SYNCED_AT_ONCE:]
            # Directories last: a name must not outlive the content that it was given for.
            folders, paths = ([], paths) if waiting else (paths, [])
            await self._in_thread(self._sync_all, _duplicates(now), folders)

    def _sync_all(self, handles: Sequence[int], directories: Sequence[Path]) -> None:
        try:
            helped = [
                self._helpers.submit(_sync_files, handles[first::SYNC_THREADS])
                for first in range(1, min(SYNC_THREADS, len(handles)))
            ]
            try:
                _sync_files(handles[::SYNC_THREADS])
            finally:
                wait(helped)  # Whatever happened: their handles are closed next.
            for each in helped:
                each.result()
            for path in directories:
                with contextlib.suppress(FileNotFoundError):  # its topic was deleted meanwhile
                    _sync_directory(path)
        finally:
            for fd in handles:
                os.close(fd)

    async def _in_thread(self, function: "object", *arguments: "object") -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._syncer, function, *arguments)  # type: ignore[arg-type] # a callable

    def shut_down(self) -> None:
        """Close every handle and end the thread."""
        self._syncer.shutdown(wait=True)
        self._helpers.shutdown(wait=True)
        for file in list(self._open):
            file.close()


def _duplicates(files: Sequence[File]) -> list[int]:
    """Handles of our own: a file's may be closed to make room while the thread works."""
    handles = []
    for file in files:
        assert isinstance(file, RealFile), f"{file.path} is not of this disk"
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile: nothing to keep
            handles.append(file.duplicate())
    return handles


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_files(handles: Sequence[int]) -> None:
    for fd in handles:
        os.fdatasync(fd)
