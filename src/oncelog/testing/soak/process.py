"""What a process takes of the machine, as `/proc` says it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
KIB: Final = 1024


class NotMeasurable(Exception):
    """This machine does not say what its processes take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One look at a process."""

    rss_bytes: int
    handle_count: int
    thread_count: int


def check_measurable() -> None:
    """Refuse a machine without `/proc`."""
    if not (PROC / "self/status").exists():
        raise NotMeasurable(
            f"Memory and handles are read from {PROC}, which is missing here: run this on Linux."
        )


def usage(pid: int) -> Usage | None:
    """What a process takes now; None if it has just ended."""
    try:
        fields = dict(
            line.split(":", 1) for line in (PROC / str(pid) / "status").read_text().splitlines()
        )
        handles = sum(1 for _ in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        return None
    if "VmRSS" not in fields:
        return None  # It has ended, and nobody has asked for its exit code yet.
    return Usage(
        rss_bytes=int(fields["VmRSS"].split()[0]) * KIB,
        handle_count=handles,
        thread_count=int(fields["Threads"]),
    )


def size_of(directory: Path) -> int:
    """The bytes of all files below a directory, some of which may go while we look."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
