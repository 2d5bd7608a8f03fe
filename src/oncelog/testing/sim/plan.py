"""What a run will do, as data: settings, clients and faults.

A plan is drawn from a seed before the run begins. It can be written to a file, read back, and made
smaller: each client and each fault stands for itself, so that one can be left out.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

from oncelog.testing.sim.steps import Step

FORMAT: Final = 1
ACKS_ALL: Final = -1
#: Nothing in a plan is larger: a file that says otherwise was not written by us.
MOST_ITEMS: Final = 10_000
MOST_SECONDS: Final = 10_000.0


class BadPlan(Exception):
    """A file that is no plan; the sentence says why."""


class Role(StrEnum):
    """What a client does."""

    PRODUCER = "producer"  # idempotent, several batches in flight
    MEMBER = "member"  # of a group that commits its offsets by itself
    WRITER = "writer"  # of transactions
    COPIER = "copier"  # reads in a group, and writes what it read in transactions
    WATCHER = "watcher"  # reads what is not committed, too
    JANITOR = "janitor"  # deletes records
    BUILDER = "builder"  # creates and deletes topics
    GHOST = "ghost"  # sends markers as a coordinator does that was replaced long ago


class What(StrEnum):
    """What goes wrong."""

    CRASH = "crash"  # the power goes; `amount` > 0: once more after so many steps of the disk
    KILL = "kill"  # the process dies, what it wrote stays; `amount` as above
    STOP = "stop"  # an orderly stop; `amount` > 0: cut short after so many steps of the disk
    ROT = "rot"  # a crash, and a bit of a snapshot flips
    SYNC_ERROR = "sync-error"  # the next sync fails; a restart follows
    WRITE_ERROR = "write-error"  # the next write fails; a restart follows
    FULL = "full"  # no room
    SLOW_SYNC = "slow-sync"  # each sync takes `amount` seconds longer
    CUT = "cut"  # a connection breaks
    RESET = "reset"  # a connection breaks in the middle of a request
    HANG_UP = "hang-up"  # a client hangs up; what it sent still arrives
    MUTE = "mute"  # a connection loses what is sent; `amount` 1: requests, 2: replies, 3: both
    HOLD = "hold"  # a connection stands still, and all that was sent on it arrives late
    CUT_OFF = "cut-off"  # a client is out of reach, and all of it arrives late
    DELAY = "delay"  # messages take up to `amount` seconds
    PIECES = "pieces"  # messages arrive in pieces of `amount` bytes
    REPEAT = "repeat"  # the last requests of those who hang up come again
    PAUSE = "pause"  # a client stands still
    CLOCK = "clock"  # the broker's wall clock jumps by `amount` seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, at a time or right after a step."""

    what: What
    #: Virtual seconds, or the number of the step.
    at: float
    step: Step | None = None
    #: How long it lasts; for a crash, how long the broker is down.
    for_s: float = 0.0
    amount: float = 0.0
    #: A client; empty: any, or all.
    target: str = ""

    def __str__(self) -> str:
        when = f"{self.at:.3f} s" if self.step is None else f"{self.step} step {int(self.at)}"
        lasts = f" for {self.for_s:.3f} s" if self.for_s else ""
        amount = f" ({self.amount:g})" if self.amount else ""
        return f"{when}: {self.what}{amount}{lasts}{f' of {self.target}' if self.target else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """One client and how much it does."""

    name: str
    role: Role
    #: Sends, transactions, or whatever it counts; readers read until the end.
    operations: int = 0
    patience_s: float = 5.0
    transactional_id: str = ""
    is_v2: bool = False
    timeout_ms: int = 10_000
    #: Of the batches in its transactions; a producer alone always waits for the disk.
    acks: int = ACKS_ALL
    #: Whether it does one thing right after the other.
    is_hasty: bool = False
    #: Whether it goes for good in the middle of its last transaction.
    abandons: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run."""

    seed: int
    settings: Mapping[str, str]
    clients: tuple[ClientPlan, ...]
    faults: tuple[Fault, ...]
    #: How long a sync takes at most, when nothing is wrong.
    sync_s: float
    #: Whether what is ready at one moment runs in an order of its own.
    shuffles: bool = True
    #: Whether old records are removed from the third topic.
    expires: bool = False
    #: How many single bits are flipped, one at a time, in copies of the disk at the end.
    flips: int = 0


def encode_plan(plan: Plan) -> str:
    """A plan as a text that people can read and change."""
    return json.dumps({"format": FORMAT, **asdict(plan)}, indent=1) + "\n"


def decode_plan(text: str) -> Plan:
    """Read a plan; raises BadPlan."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPlan(f"not JSON: {error}") from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise BadPlan(f'not a plan of this version: it would begin with {{"format": {FORMAT}')
    return _read(Plan, found, "plan")


T = TypeVar("T")


def _read(cls: type[T], found: object, where: str) -> T:
    if not isinstance(found, dict):
        raise BadPlan(f"{where} is not a JSON object")
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type] # a dataclass
    if not found.keys() <= known:
        raise BadPlan(f"{where} has unknown fields: {', '.join(sorted(found.keys() - known))}")
    values = {name: _READERS[name](value, f"{where}.{name}") for name, value in found.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise BadPlan(f"{where}: {error}") from None


def _many(cls: type[T]) -> Callable[[object, str], tuple[T, ...]]:
    def read(found: object, where: str) -> tuple[T, ...]:
        if not isinstance(found, list) or len(found) > MOST_ITEMS:
            raise BadPlan(f"{where} is not a list of at most {MOST_ITEMS}")
        return tuple(_read(cls, item, f"{where}[{i}]") for i, item in enumerate(found))

    return read


def _word(cls: type[T]) -> Callable[[object, str], T]:
    def read(found: object, where: str) -> T:
        try:
            return cls(found)  # type: ignore[call-arg] # an enum of strings
        except ValueError:
            raise BadPlan(f"{where}: {found!r:.50} is not known") from None

    return read


def _number(found: object, where: str) -> float:
    if type(found) not in (int, float) or not abs(found) < 1e9:  # type: ignore[arg-type]
        raise BadPlan(f"{where} is not a number")
    return found  # type: ignore[return-value] # checked above; bool is refused on purpose


def _seconds(found: object, where: str) -> float:
    number = _number(found, where)
    if not 0 <= number <= MOST_SECONDS:
        raise BadPlan(f"{where} is not between 0 and {MOST_SECONDS:g}")
    return number


def _whole(found: object, where: str) -> int:
    if type(found) is not int or not 0 <= found < 1 << 63:
        raise BadPlan(f"{where} is not a whole number")
    return found


def _acks(found: object, where: str) -> int:
    if type(found) is not int or found not in (ACKS_ALL, 0, 1):
        raise BadPlan(f"{where} is not -1, 0 or 1")
    return found


def _flag(found: object, where: str) -> bool:
    if type(found) is not bool:
        raise BadPlan(f"{where} is not true or false")
    return found


def _text(found: object, where: str) -> str:
    if type(found) is not str or len(found) > 100:
        raise BadPlan(f"{where} is not a short text")
    return found


def _settings(found: object, where: str) -> dict[str, str]:
    if not isinstance(found, dict) or len(found) > MOST_ITEMS:
        raise BadPlan(f"{where} is not a JSON object")
    return {_text(name, where): _text(value, f"{where}.{name}") for name, value in found.items()}


def _step(found: object, where: str) -> Step | None:
    return None if found is None else _word(Step)(found, where)


_READERS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "seed": _whole,
    "settings": _settings,
    "clients": _many(ClientPlan),
    "faults": _many(Fault),
    "sync_s": _seconds,
    "shuffles": _flag,
    "expires": _flag,
    "flips": _whole,
    "name": _text,
    "role": _word(Role),
    "operations": _whole,
    "patience_s": _seconds,
    "transactional_id": _text,
    "is_v2": _flag,
    "timeout_ms": _whole,
    "acks": _acks,
    "is_hasty": _flag,
    "abandons": _flag,
    "what": _word(What),
    "at": _number,
    "step": _step,
    "for_s": _seconds,
    "amount": _number,
    "target": _text,
}
