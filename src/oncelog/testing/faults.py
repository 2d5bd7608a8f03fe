"""What can go wrong, as values: `broker.fault(lose_reply("EndTxn"))`.

Each function describes one fault and does nothing; `Broker.fault` and `Proxy.fault` put it into
force. Faults of requests take the same words for which requests are meant (`Which`).
"""

import difflib
import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias, TypedDict, Unpack

from oncelog.wire.messages.index import NAMES

_KEYS: Final = {name: key for key, name in NAMES.items()}

#: A number of seconds, or the bounds between which each one is drawn.
Span: TypeAlias = float | tuple[float, float]


class ImpossibleFault(ValueError):
    """The fault cannot be put into force; the sentence says what would make it possible."""


class Which(TypedDict, total=False):
    """The words that say which requests a fault is for."""

    client_id: str
    """Only requests of this client."""
    nth: int
    """The first one that is hit; 1 is the next."""
    times: int | None
    """How many are hit from there on; None for all of them while the fault lasts."""
    probability: float
    """How likely each of them is hit."""
    seed: int
    """What the chances are drawn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The requests that a fault is for."""

    api_key: int | None = None
    client_id: str | None = None
    nth: int = 1
    times: int | None = 1
    probability: float = 1.0
    seed: int = 0


# --- what happens to a request ------------------------------------------------------------------


class Side(Enum):
    """Which of the two frames is meant."""

    REQUEST = "request"
    REPLY = "reply"


class Moment(Enum):
    """When a connection is cut."""

    BEFORE = "before"
    WITHIN_REQUEST = "within request"
    AFTER = "after"
    WITHIN_REPLY = "within reply"


class Peer(Enum):
    """Who is told that nothing more will come."""

    BROKER = "broker"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Delay:
    """The frame takes this long."""

    seconds: tuple[float, float]
    side: Side


@dataclass(frozen=True, slots=True)
class Lose:
    """The reply vanishes, and every later one on its connection."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is reset."""

    moment: Moment


@dataclass(frozen=True, slots=True)
class HalfClose:
    """One direction of the connection ends behind the request."""

    towards: Peer


@dataclass(frozen=True, slots=True)
class Hold:
    """The request stays in the network until it is let go, whoever still waits for it."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The request is delivered twice; the second reply is thrown away."""


@dataclass(frozen=True, slots=True)
class Trickle:
    """The frame arrives a few bytes at a time."""

    bytes_per_second: int
    side: Side


Effect: TypeAlias = Delay | Lose | Cut | HalfClose | Hold | Repeat | Trickle


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFault:
    """Something happens to certain requests on their way."""

    name: str
    requests: Requests
    effect: Effect


def delay(
    api: str | None = None,
    *,
    seconds: Span,
    side: Literal["request", "reply"] = "request",
    **which: Unpack[Which],
) -> RequestFault:
    """Each such request takes so long on its way there, or its reply on the way back."""
    return RequestFault(
        name="delay",
        requests=_requests(api, which, times=None),
        effect=Delay(_span(seconds), Side(side)),
    )


def lose_reply(api: str | None = None, **which: Unpack[Which]) -> RequestFault:
    """The broker does what it is asked for and the client never hears of it.

    As on a real network the connection says nothing more from then on, until the client gives it up
    or the fault is ended.
    """
    return RequestFault(name="lose_reply", requests=_requests(api, which), effect=Lose())


def cut(
    api: str | None = None,
    *,
    when: Literal["before", "within request", "after", "within reply"] = "after",
    **which: Unpack[Which],
) -> RequestFault:
    """The connection is reset: before the broker got the request, or after it carried it out."""
    return RequestFault(name="cut", requests=_requests(api, which), effect=Cut(Moment(when)))


def half_close(
    api: str | None = None,
    *,
    towards: Literal["broker", "client"] = "broker",
    **which: Unpack[Which],
) -> RequestFault:
    """The broker (or the client) reads the end of the stream behind this request."""
    effect = HalfClose(Peer(towards))
    return RequestFault(name="half_close", requests=_requests(api, which), effect=effect)


def hold(api: str | None = None, **which: Unpack[Which]) -> RequestFault:
    """The request is kept until the fault is ended, and delivered then, also for a client that left.

    What is behind it on the same connection waits too.
    """
    return RequestFault(name="hold", requests=_requests(api, which), effect=Hold())


def repeat(api: str | None = None, **which: Unpack[Which]) -> RequestFault:
    """The broker gets the request twice in a row; the client gets one reply."""
    return RequestFault(name="repeat", requests=_requests(api, which), effect=Repeat())


def trickle(
    api: str | None = None,
    *,
    bytes_per_second: int,
    side: Literal["request", "reply"] = "reply",
    **which: Unpack[Which],
) -> RequestFault:
    """Each such frame arrives slowly."""
    if bytes_per_second < 1:
        raise ImpossibleFault("bytes_per_second is at least 1; nothing at all is black_hole().")
    return RequestFault(
        name="trickle",
        requests=_requests(api, which, times=None),
        effect=Trickle(bytes_per_second, Side(side)),
    )


# --- what happens to connections ----------------------------------------------------------------


class Reach(Enum):
    """Whether and how connections come about."""

    REFUSED = "refuse"
    SILENT = "black_hole"
    SHORT = "short_lives"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFault:
    """Something happens to every connection."""

    reach: Reach
    seconds: tuple[float, float] = (0.0, 0.0)
    seed: int = 0

    @property
    def name(self) -> str:
        """What it is called."""
        return self.reach.value


def refuse() -> ConnectionFault:
    """Nobody gets through: connections are reset, and new ones as they come."""
    return ConnectionFault(reach=Reach.REFUSED)


def black_hole() -> ConnectionFault:
    """Connections come about and nothing passes, either way; when it ends, all of it arrives."""
    return ConnectionFault(reach=Reach.SILENT)


def short_lives(*, seconds: Span, seed: int = 0) -> ConnectionFault:
    """Every connection is reset when it is this old."""
    return ConnectionFault(reach=Reach.SHORT, seconds=_span(seconds), seed=seed)


# --- what happens to the machine ----------------------------------------------------------------


class DiskTrouble(Enum):
    """What the disk does wrong."""

    FULL = "disk_full"
    SLOW = "slow_disk"
    FAILING_SYNC = "failing_sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFault:
    """The broker's disk misbehaves for files whose path matches."""

    trouble: DiskTrouble
    paths: str = "*"
    seconds: float = 0.0
    times: int | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.trouble.value


def disk_full(paths: str = "*") -> DiskFault:
    """Whatever would make a file longer fails for want of space (ENOSPC); "orders-0/*" picks files."""
    return DiskFault(trouble=DiskTrouble.FULL, paths=paths)


def slow_disk(*, seconds: float, paths: str = "*") -> DiskFault:
    """Each sync takes so much longer."""
    if seconds < 0:
        raise ImpossibleFault("No disk answers before it is asked: seconds is not negative.")
    return DiskFault(trouble=DiskTrouble.SLOW, paths=paths, seconds=seconds)


def failing_sync(paths: str = "*", *, times: int | None = 1) -> DiskFault:
    """The next sync fails (EIO): the broker takes the logs that it covers offline until a restart."""
    return DiskFault(trouble=DiskTrouble.FAILING_SYNC, paths=paths, times=times)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJump:
    """The broker's wall clock is wrong by so much, while spans are measured as before."""

    milliseconds: int
    name: str = field(default="clock_jump", init=False)


def clock_jump(*, hours: float = 0, minutes: float = 0, seconds: float = 0) -> ClockJump:
    """The broker's wall clock jumps, forwards or (negative) back; at the end it jumps back."""
    total_s = hours * 3600 + minutes * 60 + seconds
    if not math.isfinite(total_s) or total_s == 0:
        raise ImpossibleFault("Say by how much the clock jumps, say clock_jump(hours=1).")
    return ClockJump(milliseconds=round(total_s * 1000))


# --- what happens to the broker -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The broker stops in order and starts again."""

    name: str = field(default="restart", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The broker dies without warning and starts again."""

    name: str = field(default="kill", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The broker's process stands still."""

    seconds: float | None
    name: str = field(default="pause", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Another instance takes over a transactional id."""

    transactional_id: str
    name: str = field(default="fence", init=False)


def restart() -> Restart:
    """Stop the broker in order and start it again, now."""
    return Restart()


def kill() -> Kill:
    """End the broker as a crash would, at once, and start it again."""
    return Kill()


def pause(*, seconds: float | None = None) -> Pause:
    """Let the broker's process stand still: for so long, or until the fault is ended."""
    if seconds is not None and seconds <= 0:
        raise ImpossibleFault("A pause takes some time: seconds is more than 0.")
    return Pause(seconds=seconds)


def fence(transactional_id: str) -> Fence:
    """Take over a transactional id as a second instance would: whoever holds it is fenced."""
    if not transactional_id:
        raise ImpossibleFault("Name the transactional id that is taken over.")
    return Fence(transactional_id=transactional_id)


NetworkFault: TypeAlias = RequestFault | ConnectionFault
MachineFault: TypeAlias = DiskFault | ClockJump
Fault: TypeAlias = NetworkFault | MachineFault | Restart | Kill | Pause | Fence


# --- checks ---------------------------------------------------------------------------------------


def _requests(api: str | None, which: Which, *, times: int | None = 1) -> Requests:
    found = Requests(
        api_key=None if api is None else _api_key(api),
        client_id=which.get("client_id"),
        nth=which.get("nth", 1),
        times=which.get("times", times),
        probability=which.get("probability", 1.0),
        seed=which.get("seed", 0),
    )
    if found.nth < 1:
        raise ImpossibleFault("nth counts from 1, which is the next request.")
    if found.times is not None and found.times < 1:
        raise ImpossibleFault("times is at least 1, or None for every request.")
    if not 0 <= found.probability <= 1:
        raise ImpossibleFault("A probability is between 0 and 1.")
    return found


def _api_key(api: str) -> int:
    if api not in _KEYS:
        close = difflib.get_close_matches(api, sorted(_KEYS), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise ImpossibleFault(f"There is no request {api!r}.{hint}")
    return _KEYS[api]


def _span(seconds: Span) -> tuple[float, float]:
    low, high = seconds if isinstance(seconds, tuple) else (seconds, seconds)
    if not 0 <= low <= high < math.inf:
        raise ImpossibleFault(f"{seconds} is no span of time: write (least, most), in seconds.")
    return low, high
