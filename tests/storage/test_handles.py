"""A disk keeps handles only of files that are written or read."""

import asyncio
import os
from pathlib import Path

from oncelog.storage.disk import RealDisk


def open_paths() -> set[str]:
    """The files that this process has open, deleted ones included."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


def test_a_small_file_that_was_synced_is_not_kept_open(tmp_path: Path) -> None:
    """Snapshots came by the hundred, and each held a handle long after it was deleted."""
    disk = RealDisk(tmp_path)
    written = disk.open("snapshot", create=True)
    written.append([b"producers"])
    written.close()

    asyncio.run(disk.sync([disk.open("snapshot")], ["."]))

    assert not any(path.startswith(str(tmp_path)) for path in open_paths())
    disk.shut_down()


def test_a_file_that_is_being_written_keeps_its_handle(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    log = disk.open("log", create=True)
    log.append([b"batch"])

    asyncio.run(disk.sync([log]))

    assert str(tmp_path / "log") in open_paths()
    disk.shut_down()
