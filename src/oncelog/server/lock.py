"""One broker for one data directory: a lock that the operating system drops when the process ends."""

import fcntl
import os
from pathlib import Path


class DirectoryLocked(Exception):
    """Another process works on this directory."""


class DirectoryLock:
    """Held from start to stop."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock, or say who has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 64).decode("ascii", "replace").strip()
            os.close(fd)
            raise DirectoryLocked(
                f"{self._path.parent} is used by another broker (process {holder or 'unknown'})"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd

    def release(self) -> None:
        """Let go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
