"""File handles, shared out: connections get some, segment files get the rest, and a few stay free.

A broker that ran out of them could not sync any more, and a log that cannot be synced is offline until a
restart. So there are never more connections than leave room for the files.
"""

import contextlib
import resource
from dataclasses import dataclass
from typing import Final

from oncelog.storage.disk import SYNCED_AT_ONCE

#: A file that is synced has a second handle meanwhile; the others are for directories, listening
#: sockets, the loop, and connections that are closed as they come.
RESERVED: Final = SYNCED_AT_ONCE + 128
LEAST: Final = 64


@dataclass(frozen=True, slots=True)
class Handles:
    """How many of each may be open at once."""

    connections: int
    files: int


def share_out(limit: int) -> Handles:
    """A third for files, the rest for connections."""
    rest = limit - RESERVED
    files = max(LEAST, rest // 3)
    return Handles(connections=max(LEAST, rest - files), files=files)


def raise_limit() -> int:
    """Use as many handles as we are allowed to; returns how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    if wanted > soft:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft
