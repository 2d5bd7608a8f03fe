"""Group commit: one sync in flight, the next covers everything that was written meanwhile.

With `flush=sync` a log is committed once a sync has covered it; with `flush=os` at once, and what
was written is synced in the background. A failed sync is never retried: the page cache may already
have dropped the data, so the logs it covered go offline until a restart reads the disk anew.
"""

import asyncio
from typing import Protocol

from oncelog.storage.disk import Disk
from oncelog.storage.partition_log import LogEnd, Unsynced


class Flushable(Protocol):
    """A log that can be synced."""

    def take_unsynced(self) -> Unsynced:
        """What has been written since the last call."""

    def written_end(self) -> LogEnd:
        """Where the log ends, committed or not."""

    def set_committed(self, end: LogEnd) -> None:
        """The log is committed up to here."""

    def set_synced(self, end: LogEnd) -> None:
        """The log is on the disk up to here."""

    def take_offline(self, reason: str) -> None:
        """A sync of this log failed."""


class Flusher(Protocol):
    """Decides when a written log is committed."""

    def wrote(self, log: Flushable) -> None:
        """Something was appended to this log."""

    async def flush(self) -> None:
        """Sync everything that was written up to now."""

    async def close(self) -> None:
        """Sync what is left and end."""


class SyncFlusher:
    """`flush=sync`: committed means synced."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._dirty: dict[Flushable, None] = {}
        self._task: asyncio.Task[None] | None = None
        #: The end of the sync that is under way.
        self._ended: asyncio.Future[None] | None = None

    def wrote(self, log: Flushable) -> None:
        """Ask for a sync; the one that starts next takes this log along."""
        self._dirty[log] = None
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._ended = loop.create_future()
            self._task = loop.create_task(self._run(self._ended))

    async def _run(self, ended: asyncio.Future[None]) -> None:
        try:
            while self._dirty:
                logs, self._dirty = list(self._dirty), {}
                await _sync_logs(self._disk, logs, commit=True)
                ended.set_result(None)
                self._ended = ended = asyncio.get_running_loop().create_future()
        finally:
            self._task = None
            ended.cancel()

    async def flush(self) -> None:
        """Wait for what was written up to now, not for those who go on writing."""
        # The sync under way may have begun before the last write; the one after it did not.
        for _ in range(2):
            if self._task is None or self._ended is None:
                return
            await asyncio.wait([self._ended])

    async def close(self) -> None:
        """Sync what is left."""
        while self._task is not None:
            await self.flush()


class OsFlusher:
    """`flush=os`: committed means handed to the operating system, as in Kafka's default."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._dirty: dict[Flushable, None] = {}

    def wrote(self, log: Flushable) -> None:
        """Commit at once; the sync comes with the next checkpoint."""
        self._dirty[log] = None
        log.set_committed(log.written_end())

    async def flush(self) -> None:
        """Sync everything that was written up to now."""
        logs, self._dirty = list(self._dirty), {}
        await _sync_logs(self._disk, logs, commit=False)

    async def close(self) -> None:
        """Sync what is left."""
        await self.flush()


async def _sync_logs(disk: Disk, logs: list[Flushable], *, commit: bool) -> None:
    taken = [(log, log.take_unsynced()) for log in logs]
    files = [file for _, unsynced in taken for file in unsynced.files]
    directories = {path: None for _, unsynced in taken for path in unsynced.directories}
    try:
        await disk.sync(files, directories)
    except OSError as error:
        for log, _ in taken:
            log.take_offline(f"a sync failed: {error}")
        return
    for log, unsynced in taken:
        log.set_synced(unsynced.end)
        if commit:
            log.set_committed(unsynced.end)
