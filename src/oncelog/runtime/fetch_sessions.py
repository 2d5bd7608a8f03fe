"""Fetch sessions (KIP-227): a client names its partitions once and then only what changed.

A session remembers each partition's position and what the client was last told, so that a fetch
with nothing new is a few bytes in both directions. Sessions are a bounded cache: when it is full
the one that was idle longest goes, and its client opens a new one.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.core.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = (1 << 31) - 1


class FetchKey(NamedTuple):
    """A partition as the request names it: by name up to version 12, by id from 13 on."""

    topic: str
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class FetchTarget:
    """What a client wants from a partition, and what it was last told about it."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    told: tuple[int, int, int] | None = None


@dataclass(slots=True)
class FetchSession:
    """One client's partitions."""

    session_id: int
    epoch: int = INITIAL_EPOCH
    targets: dict[FetchKey, FetchTarget] = field(default_factory=dict)


class FetchSessions:
    """The sessions of a broker."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self) -> FetchSession | None:
        """A new session, or none where sessions are switched off."""
        if self._max_sessions == 0:
            return None
        while len(self._sessions) >= self._max_sessions:
            self._sessions.popitem(last=False)
        self._last_id = self._last_id % _MAX_EPOCH + 1
        session = FetchSession(self._last_id)
        self._sessions[session.session_id] = session
        return session

    def resume(self, session_id: int, epoch: int) -> FetchSession:
        """The session of an incremental fetch; its epoch must be the next one."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        expected = session.epoch % _MAX_EPOCH + 1
        if epoch != expected:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id} expects epoch {expected}, not {epoch}"
            )
        session.epoch = epoch
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        """The client is done with it."""
        self._sessions.pop(session_id, None)
