"""A disk and a clock that misbehave when they are told to, between a broker and the real ones."""

import asyncio
import errno
import fnmatch
import threading
from collections.abc import Iterable, Sequence

from oncelog.core.types import Now
from oncelog.runtime.clock import LoopClock
from oncelog.storage.disk import Buffer, Disk, File, Space
from oncelog.testing.faults import ClockJump, DiskFault, DiskTrouble, MachineFault, Requests
from oncelog.testing.injection import Injection


class Hardware:
    """The machine of one broker, and what is wrong with it; it outlives restarts of the broker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._injections: tuple[Injection[MachineFault], ...] = ()
        self._disk: FaultyDisk | None = None
        self.clock = JumpingClock()

    def disk(self, inner: Disk) -> "FaultyDisk":
        """The disk of the next broker, on top of a real one."""
        self._disk = FaultyDisk(self, inner)
        return self._disk

    def crash(self) -> None:
        """Whatever the broker of now still does, it does not reach its disk any more."""
        if self._disk is not None:
            self._disk.is_lost = True

    def fault(self, fault: MachineFault) -> Injection[MachineFault]:
        """Put a fault into force."""
        injection: Injection[MachineFault] = Injection(
            fault, requests_of(fault), on_end=lambda: self.withdraw(injection)
        )
        self.inject(injection)
        return injection

    def inject(self, injection: Injection[MachineFault]) -> None:
        """From now on."""
        with self._lock:
            self._injections += (injection,)
        if isinstance(injection.fault, ClockJump) and injection.strikes():
            self.clock.jump(injection.fault.milliseconds)

    def withdraw(self, injection: Injection[MachineFault]) -> None:
        """No longer."""
        with self._lock:
            self._injections = tuple(each for each in self._injections if each is not injection)
        if isinstance(injection.fault, ClockJump):
            self.clock.jump(-injection.fault.milliseconds)

    def strike(self, trouble: DiskTrouble, paths: Sequence[str]) -> list[DiskFault]:
        """The faults of this kind that happen to one of these files, counted."""
        return [
            injection.fault
            for injection in self._injections
            if isinstance(injection.fault, DiskFault)
            and injection.fault.trouble is trouble
            and any(fnmatch.fnmatchcase(path, injection.fault.paths) for path in paths)
            and injection.strikes()
        ]


def requests_of(fault: MachineFault) -> Requests:
    """How often a fault of the machine happens."""
    return Requests(times=1 if isinstance(fault, ClockJump) else fault.times)


class FaultyFile:
    """A file of a `FaultyDisk`."""

    __slots__ = ("_disk", "inner")

    def __init__(self, disk: "FaultyDisk", inner: File) -> None:
        self._disk = disk
        self.inner = inner

    @property
    def path(self) -> str:
        """Where it is."""
        return self.inner.path

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self.inner.size_bytes

    def append(self, chunks: Sequence[Buffer]) -> None:
        """Write at the end, if there is room."""
        self._disk.check_room(self.inner.path)
        self.inner.append(chunks)

    def read(self, position: int, size: int) -> bytes:
        """What the real file holds."""
        return self.inner.read(position, size)

    def truncate(self, size_bytes: int) -> None:
        """Cut the file."""
        self._disk.check_reachable()
        self.inner.truncate(size_bytes)

    def close(self) -> None:
        """Let go of the file."""
        self.inner.close()


class FaultyDisk:
    """A directory tree on a machine that may have faults."""

    def __init__(self, hardware: Hardware, inner: Disk) -> None:
        self._hardware = hardware
        self._inner = inner
        #: Whether its broker has crashed and has no disk any more.
        self.is_lost = False

    def check_reachable(self) -> None:
        """Raise if whoever asks was killed."""
        if self.is_lost:
            raise OSError(errno.EIO, "the broker was killed")

    def check_room(self, path: str) -> None:
        """Raise if there is no room for more bytes in this file."""
        self.check_reachable()
        if self._hardware.strike(DiskTrouble.FULL, [path]):
            raise OSError(errno.ENOSPC, "the disk is full (a fault of the test)")

    async def before_sync(self, paths: Sequence[str]) -> None:
        """Wait, or raise, as the faults say."""
        for slow in self._hardware.strike(DiskTrouble.SLOW, paths):
            await asyncio.sleep(slow.seconds)
        self.check_reachable()
        if self._hardware.strike(DiskTrouble.FAILING_SYNC, paths):
            raise OSError(errno.EIO, "the sync failed (a fault of the test)")

    def space(self) -> Space:
        """How much room there is, faults aside."""
        return self._inner.space()

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """A file that exists, or a new one if there is room."""
        if create:
            self.check_room(path)
        return FaultyFile(self, self._inner.open(path, create=create))

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file."""
        return self._inner.read_file(path)

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace a small file, if there is room, and sync it."""
        self.check_room(path)
        await self.before_sync([path])
        await self._inner.write_file(path, data)

    def list(self, path: str) -> list[str]:
        """The names in a directory."""
        return self._inner.list(path)

    def make_directory(self, path: str) -> None:
        """Create a directory, if there is room."""
        self.check_room(path)
        self._inner.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory."""
        self.check_reachable()
        self._inner.rename(source, target)

    def remove(self, path: str) -> None:
        """Delete a file or a directory."""
        self.check_reachable()
        self._inner.remove(path)

    async def sync(self, files: Iterable[File], directories: Iterable[str] = ()) -> None:
        """Make files and directories durable, or fail to."""
        given, folders = list(files), list(directories)
        await self.before_sync([*(file.path for file in given), *folders])
        inner = [file.inner if isinstance(file, FaultyFile) else file for file in given]
        await self._inner.sync(inner, folders)


class JumpingClock:
    """The machine's clock; its wall time can be moved, its spans cannot."""

    def __init__(self) -> None:
        self._clock = LoopClock()
        self._shift_ms = 0

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock."""
        self._shift_ms += milliseconds

    def now(self) -> Now:
        """This instant, as the machine believes."""
        now = self._clock.now()
        return Now(now.wall_ms + self._shift_ms, now.monotonic_ms)

    def precise_s(self) -> float:
        """Seconds since some moment."""
        return self._clock.precise_s()
