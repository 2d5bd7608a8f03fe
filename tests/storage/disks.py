"""Disks for tests: built from files, cut off after a number of steps, or counting what is read."""

import errno
from collections.abc import Iterable, Sequence
from random import Random

from oncelog.storage.disk import Buffer, Disk, File, Space
from oncelog.testing.sim.disk import Directory, Inode, SimDisk, SimFile

Files = dict[str, bytes]


def disk_of(files: Files, *, seed: int = 0) -> SimDisk:
    """A disk that holds these files, all synced."""
    return SimDisk(Random(seed), root_of(files))


def root_of(files: Files) -> Directory:
    root = Directory()
    for path, data in files.items():
        *parents, name = path.split("/")
        node = root
        for parent in parents:
            child = node.entries.setdefault(parent, Directory())
            assert isinstance(child, Directory), f"{path} lies in a directory"
            node.synced[parent] = node = child
        node.entries[name] = node.synced[name] = Inode(data)
    return root


def files_of(disk: Disk, path: str = ".") -> Files:
    """Every file, as a running process sees it."""
    found: Files = {}
    for name in disk.list(path):
        inner = name if path == "." else f"{path}/{name}"
        if disk.list(inner):
            found |= files_of(disk, inner)
        elif (data := disk.read_file(inner)) is not None:
            found[inner] = data
    return found


class FragileFile(SimFile):
    """A file whose every change is a step."""

    def __init__(self, disk: "FragileDisk", path: str, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        self._fragile = disk

    def append(self, chunks: Sequence[Buffer]) -> None:
        super().append(chunks)
        self._fragile.step()

    def truncate(self, size_bytes: int) -> None:
        super().truncate(size_bytes)
        self._fragile.step()


class FragileDisk(SimDisk):
    """The power goes right after the step with this number; what comes back is `survivor`.

    With `keeps_all` only the process ends, and what it has written is there, synced or not.
    """

    def __init__(
        self, rng: Random, root: Directory | None = None, *, last_step: int,
        keeps_all: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(rng, root)
        self.sync_s = 0.001
        self._left = last_step
        self._keeps_all = keeps_all
        self._survivor: SimDisk | None = None

    def step(self) -> None:
        """One more change has happened."""
        self._left -= 1
        if self._left == 0:
            self._survivor = self.reopened() if self._keeps_all else super().crash()
            raise OSError(errno.EIO, "the power is gone")

    def cut_after(self, steps: int) -> None:
        """Let so many more steps happen."""
        self._left = steps

    @property
    def is_cut(self) -> bool:
        """Whether the power went."""
        return self._survivor is not None

    @property
    def survivor(self) -> SimDisk:
        """What is left after the step that was the last, or now."""
        return self._survivor or self.reopened()

    def crash(self) -> SimDisk:
        """What is left, of the cut that came or of one that comes now."""
        return self._survivor or super().crash()

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = FragileFile(self, path, super().open(path, create=create).inode)
        if create:
            self.step()
        return file

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        self.step()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.step()

    def remove(self, path: str) -> None:
        super().remove(path)
        self.step()

    async def sync(self, files: Iterable[File], directories: Iterable[str] = ()) -> None:
        await super().sync(files, directories)
        self.step()


class CountingDisk:
    """Passes everything on and remembers which files were opened, read and changed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.read_paths: set[str] = set()
        self.changed_paths: set[str] = set()

    def space(self) -> Space:
        return self._disk.space()

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.changed_paths.add(path)
        return CountingFile(self, self._disk.open(path, create=create))

    def read_file(self, path: str) -> bytes | None:
        self.read_paths.add(path)
        return self._disk.read_file(path)

    async def write_file(self, path: str, data: bytes) -> None:
        self.changed_paths.add(path)
        await self._disk.write_file(path, data)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.changed_paths.add(target)
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self.changed_paths.add(path)
        self._disk.remove(path)

    async def sync(self, files: Iterable[File], directories: Iterable[str] = ()) -> None:
        inner = [file.inner if isinstance(file, CountingFile) else file for file in files]
        await self._disk.sync(inner, directories)


class CountingFile:
    """A file of a `CountingDisk`."""

    def __init__(self, disk: CountingDisk, inner: File) -> None:
        self._disk = disk
        self.inner = inner

    @property
    def path(self) -> str:
        return self.inner.path

    @property
    def size_bytes(self) -> int:
        return self.inner.size_bytes

    def append(self, chunks: Sequence[Buffer]) -> None:
        self._disk.changed_paths.add(self.path)
        self.inner.append(chunks)

    def read(self, position: int, size: int) -> bytes:
        self._disk.read_paths.add(self.path)
        return self.inner.read(position, size)

    def truncate(self, size_bytes: int) -> None:
        if size_bytes != self.size_bytes:
            self._disk.changed_paths.add(self.path)
        self.inner.truncate(size_bytes)

    def close(self) -> None:
        self.inner.close()
