"""A disk that keeps what was synced and loses some of the rest.

A file has a synced image and a list of changes since. A crash keeps, for each file by itself, a
prefix of those changes, the last of them cut at any byte or with one of its pages missing. Names are
changes of their directory: a file that was created or renamed may be forgotten until the directory
was synced. A disk may also be slow or full, or fail: `Trouble` says what it suffers from.
"""

import asyncio
import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from oncelog.storage.disk import Buffer, File, Space

#: What reaches the disk as a whole. Small, since most writes of a run are.
PAGE_BYTES = 64


class Inode:
    """The content of a file, whatever its name is."""

    def __init__(self, synced: Buffer = b"") -> None:
        self.data = bytearray(synced)
        self.synced = bytearray(synced)
        #: What happened since: (position, bytes) for a write, (size, None) for a cut.
        self.changes: list[tuple[int, bytes | None]] = []

    def write(self, position: int, data: bytes) -> None:
        """Change what is there."""
        self.data[position : position + len(data)] = data
        self.changes.append((position, data))

    def cut(self, size: int) -> None:
        """Make it shorter."""
        del self.data[size:]
        self.changes.append((size, None))

    def sync(self, count: int) -> None:
        """The first `count` changes are durable now."""
        _replay(self.synced, self.changes[:count])
        del self.changes[:count]

    def forget(self, count: int) -> None:
        """A sync failed: readers still see the first `count` changes, and no sync will keep them."""
        del self.changes[:count]

    def after_crash(self, rng: Random) -> "Inode":
        """What the disk holds when the power comes back."""
        kept = self.changes[: rng.randint(0, len(self.changes))]
        if kept and kept[-1][1] is not None and rng.random() < 0.5:
            kept[-1] = _torn(rng, *kept[-1])
        image = bytearray(self.synced)
        _replay(image, kept)
        return Inode(image)


def _torn(rng: Random, position: int, data: bytes | None) -> tuple[int, bytes]:
    assert data is not None, "only writes are torn"
    if len(data) > 2 * PAGE_BYTES and rng.random() < 0.3:
        # A later page arrived and an earlier one did not.
        start = rng.randrange(0, len(data) - PAGE_BYTES)
        return position, data[:start] + bytes(PAGE_BYTES) + data[start + PAGE_BYTES :]
    return position, data[: rng.randint(0, len(data))]


def _replay(image: bytearray, changes: list[tuple[int, bytes | None]]) -> None:
    for position, written in changes:
        if written is None:
            del image[position:]
        else:
            if len(image) < position:
                image.extend(bytes(position - len(image)))
            image[position : position + len(written)] = written


class Directory:
    """Names, and which of them would survive."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.synced: dict[str, Inode | Directory] = {}
        #: Names and what each names from then on (None: nothing); one change happens as a whole.
        self.changes: list[dict[str, Inode | Directory | None]] = []

    def change(self, names: "dict[str, Inode | Directory | None]") -> None:
        """Give names, take them away, or both at once."""
        _rename(self.entries, names)
        self.changes.append(names)

    def sync(self, count: int) -> None:
        """The first `count` changes are durable now."""
        for names in self.changes[:count]:
            _rename(self.synced, names)
        del self.changes[:count]

    def after_crash(self, rng: Random) -> "Directory":
        """The names that are left when the power comes back."""
        self.sync(rng.randint(0, len(self.changes)))
        survivor = Directory()
        for name, node in self.synced.items():
            survivor.entries[name] = survivor.synced[name] = node.after_crash(rng)
        return survivor


def _rename(
    entries: dict[str, Inode | Directory], names: dict[str, Inode | Directory | None]
) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@dataclass(slots=True)
class Trouble:
    """What a disk suffers from at the moment."""

    #: How long a sync takes at least.
    sync_delay_s: float = 0.0
    is_full: bool = False
    #: The next write, or the next sync, fails with EIO.
    fails_write: bool = False
    fails_sync: bool = False


class SimFile:
    """A handle to a file."""

    def __init__(self, disk: "SimDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self.inode = inode

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return len(self.inode.data)

    def append(self, chunks: Sequence[Buffer]) -> None:
        """Write at the end, or fail as the disk was told to."""
        self._disk.check_alive()
        data = b"".join(chunks)
        self._disk.before_write(len(data))
        self._disk.check_writable()
        self.inode.write(len(self.inode.data), data)
        self._disk.step()

    def read(self, position: int, size: int) -> bytes:
        """What a running process sees: synced or not."""
        self._disk.check_alive()
        return bytes(self.inode.data[position : position + size])

    def truncate(self, size_bytes: int) -> None:
        """Cut the file."""
        self._disk.check_alive()
        self.inode.cut(size_bytes)
        self._disk.step()

    def close(self) -> None:
        """Nothing to let go of."""


class SimDisk:
    """A directory tree in memory."""

    def __init__(self, rng: Random, root: Directory | None = None) -> None:
        self._rng = rng
        self._root = root or Directory()
        self._is_alive = True
        self._has_forgotten = False
        #: Called with the size of each write; raises OSError to make it fail.
        self.before_write: Callable[[int], None] = lambda size: None
        #: Called after each change, and at the beginning and the end of each sync.
        self.on_step: Callable[[], None] = lambda: None
        #: How long a sync takes, at most.
        self.sync_s = 0.02
        self.trouble = Trouble()

    def check_alive(self) -> None:
        """The process that owned this disk has crashed: it cannot touch it any more."""
        if not self._is_alive:
            raise OSError(errno.EIO, "the simulated process is dead")

    def check_writable(self) -> None:
        """Fail as the disk's trouble has it; nothing has been written then."""
        if self.trouble.is_full:
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        if self.trouble.fails_write:
            self.trouble.fails_write = False
            raise OSError(errno.EIO, "the simulated disk failed to write")

    def step(self) -> None:
        """Something was done; whoever counts may let the process die here."""
        self.on_step()
        self.check_alive()

    def crash(self) -> "SimDisk":
        """Power off: what comes back is another disk, and this one is out of reach."""
        return self._successor(self._root.after_crash(self._rng))

    def reopened(self) -> "SimDisk":
        """The same disk for the next process: what the last one wrote is there, synced or not.

        But not after a sync that failed: then a start has to see what the disk holds, and an
        operator would see to that.
        """
        return self.crash() if self._has_forgotten else self._successor(self._root)

    def copy(self) -> "SimDisk":
        """A disk of its own with the same content, all of it synced."""
        return SimDisk(self._rng, _copied(self._root))

    def _successor(self, root: Directory) -> "SimDisk":
        self._is_alive = False
        disk = SimDisk(self._rng, root)
        disk.sync_s, disk.trouble, disk.on_step = self.sync_s, self.trouble, self.on_step
        return disk

    def files(self) -> dict[str, Inode]:
        """Every file by its path, in order."""
        return dict(_files(self._root, ""))

    def digest(self) -> str:
        """A fingerprint of all names and bytes."""
        total = hashlib.sha256()
        _digest(self._root, "", total.update)
        return total.hexdigest()

    # --- Disk -----------------------------------------------------------------------------------

    def space(self) -> Space:
        """Nobody measures a simulated disk."""
        return Space("/simulated", -1, -1)

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """A file that exists, or a new and empty one."""
        self.check_alive()
        parent, name = self._parent(path)
        if create:
            self.check_writable()
            inode = Inode()
            parent.change({name: inode})
            self.step()
            return SimFile(self, path, inode)
        found = parent.entries.get(name)
        if not isinstance(found, Inode):
            raise FileNotFoundError(path)
        return SimFile(self, path, found)

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file."""
        try:
            return bytes(self.open(path).inode.data)
        except FileNotFoundError:
            return None

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace a small file, step by step: a crash may come between any two."""
        temporary = self.open(f"{path}.tmp", create=True)
        temporary.append([data])
        await self.sync([temporary])
        self.rename(f"{path}.tmp", path)
        await self.sync([], [path.rpartition("/")[0] or "."])

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        self.check_alive()
        found = self._find(path)
        return sorted(found.entries) if isinstance(found, Directory) else []

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        self.check_alive()
        if not isinstance(self._find(path), Directory):
            parent, name = self._parent(path)
            parent.change({name: Directory()})
            self.step()

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory inside its parent."""
        self.check_alive()
        parent, name = self._parent(source)
        node = parent.entries[name]
        assert self._parent(target)[0] is parent, "renamed inside its directory"
        parent.change({name: None, target.rpartition("/")[2]: node})
        self.step()

    def remove(self, path: str) -> None:
        """Delete a file or a directory."""
        self.check_alive()
        parent, name = self._parent(path)
        if name in parent.entries:
            parent.change({name: None})
            self.step()

    async def sync(self, files: Iterable[File], directories: Iterable[str] = ()) -> None:
        """Make durable what was written before this call; it takes a random time."""
        self.check_alive()
        inodes = [
            (file.inode, len(file.inode.changes)) for file in files if isinstance(file, SimFile)
        ]
        nodes = [self._find(path) for path in directories]
        folders = [(node, len(node.changes)) for node in nodes if isinstance(node, Directory)]
        fails, self.trouble.fails_sync = self.trouble.fails_sync, False
        self.step()
        delay_s = self.trouble.sync_delay_s + self._rng.uniform(0.0001, self.sync_s)
        await asyncio.sleep(delay_s)
        self.check_alive()
        if fails:
            # The page cache takes what it could not write for clean: some of it is lost for good,
            # and a second sync would say that all is well.
            self._has_forgotten = True
            for inode, count in inodes:
                if self._rng.random() < 0.7:
                    inode.forget(min(count, len(inode.changes)))
            raise OSError(errno.EIO, "the simulated disk failed to sync")
        for inode, count in inodes:
            inode.sync(min(count, len(inode.changes)))
        for folder, count in folders:
            folder.sync(min(count, len(folder.changes)))
        self.step()

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for name in path.split("/"):
            if name in (".", ""):
                continue
            node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, _, name = path.rpartition("/")
        parent = self._find(head or ".")
        if not isinstance(parent, Directory):
            raise FileNotFoundError(path)
        return parent, name


def _files(node: Inode | Directory, path: str) -> Iterator[tuple[str, Inode]]:
    if isinstance(node, Inode):
        yield path, node
        return
    for name in sorted(node.entries):
        yield from _files(node.entries[name], f"{path}/{name}" if path else name)


def _copied(node: Directory) -> Directory:
    copy = Directory()
    for name, child in node.entries.items():
        twin = _copied(child) if isinstance(child, Directory) else Inode(child.data)
        copy.entries[name] = copy.synced[name] = twin
    return copy


def _digest(node: Inode | Directory, path: str, update: Callable[[bytes], object]) -> None:
    if isinstance(node, Inode):
        update(f"{path}:{len(node.data)}:".encode() + bytes(node.data))
        return
    for name in sorted(node.entries):
        _digest(node.entries[name], f"{path}/{name}", update)
