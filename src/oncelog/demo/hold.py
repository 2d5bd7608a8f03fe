"""Stop a task or the driver at a chosen moment, so that a kill hits a batch in flight and not luck.

Files in a directory that all processes share: `task.armed` waits for somebody, who renames it to
`task.held.PID` and stands still until it is gone.
"""

import os
import time
from pathlib import Path
from typing import Final

_PAUSE_S: Final = 0.02


def arm(directory: Path, who: str) -> None:
    """The next one that comes by is held."""
    (directory / f"{who}.armed").touch()


def hold_if_armed(directory: Path, who: str) -> None:
    """Stand still, if somebody wants it and nobody else stands there already."""
    held = directory / f"{who}.held.{os.getpid()}"
    try:
        (directory / f"{who}.armed").rename(held)
    except FileNotFoundError:
        return
    while held.exists():
        time.sleep(_PAUSE_S)


def held(directory: Path, who: str) -> int | None:
    """The process that stands still."""
    for found in directory.glob(f"{who}.held.*"):
        return int(found.suffix.removeprefix("."))
    return None


def release(directory: Path, who: str) -> None:
    """Let it go on, or forget that it stood there."""
    for found in directory.glob(f"{who}.held.*"):
        found.unlink()
