"""The history of a run: one JSON object per line, a header and then every event in order.

This module holds the types and the reader. It checks each line as it goes, so that whoever judges
a history may rely on it: numbers without gaps, completions that fit their calls, known words. It
keeps nothing but the calls still open, and so reads a file of any length.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

FORMAT: Final = 1
HARNESS: Final = -1  # the process number of whoever injects faults and takes notes
INT32: Final = 1 << 31
INT64: Final = 1 << 63


class Unreadable(Exception):
    """A history that cannot be judged, because it breaks the rules of its own format."""

    def __init__(self, why: str, *, source: str = "history", line: int | None = None) -> None:
        self.why = why
        self.source = source
        self.line = line
        super().__init__(f"{source}: {why}" if line is None else f"{source}:{line}: {why}")


class Kind(StrEnum):
    """What an event says about its operation."""

    CALL = "call"  # asked for
    OK = "ok"  # confirmed
    FAIL = "fail"  # certainly without effect
    UNKNOWN = "unknown"  # could be either way
    NOTE = "note"  # no operation: something the harness did or saw


class Op(StrEnum):
    """What was done."""

    TXN = "txn"
    SEND = "send"
    POLL = "poll"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    SEEK = "seek"
    COMMIT = "commit"
    COMMITTED = "committed"
    LATEST = "latest"
    OPEN = "open"
    CRASH = "crash"
    FAULT = "fault"
    HEAL = "heal"
    FINAL = "final"


class End(StrEnum):
    """How a client asked its transaction to end."""

    COMMIT = "commit"
    ABORT = "abort"


# Steps are named tuples and not dataclasses, since a history has millions of them.
class Write(NamedTuple):
    """A value sent to a partition."""

    part: str
    value: int
    offset: int | None = None  # as acknowledged


class Record(NamedTuple):
    """What a reader was handed."""

    offset: int
    value: int | None  # None: the payload was damaged, or is not one of this run's


class Read(NamedTuple):
    """Records handed to a consumer, by partition and in order."""

    records: Mapping[str, tuple[Record, ...]] = {}


Step: TypeAlias = Write | Read


class Range(NamedTuple):
    """Input offsets that a group consumed: start <= offset < end; a plain commit has no start."""

    start: int | None
    end: int | None  # None: a committed offset was asked for and there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Offsets of a consumer group: committed, fetched, or consumed by a transaction."""

    name: str
    generation: int | None = None
    offsets: Mapping[str, Range]


class Ends(NamedTuple):
    """What `final` found in one partition."""

    last_stable_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The fields that few events have."""

    tid: str | None = None  # the transactional id
    err: str | None = None
    idempotent: bool | None = None  # of one operation, where it differs from the run's
    offsets: Mapping[str, int | None] | None = None  # `latest`: what it returned
    at: Mapping[str, int | None] | None = None  # `assign`, `seek`: where reading goes on
    what: str | None = None  # `fault`: its name in the run's profile
    target: str | None = None
    over: bool = False  # `fault`: this is its end
    ends: Mapping[str, Ends] | None = None  # `final`
    more: bool = False  # `final`: more of the same read follows
    starts: Mapping[str, int] | None = None  # log start offsets, once retention has moved them


NO_DETAILS: Final = Details()
NOT_MOVED: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a history."""

    n: int
    t: int  # nanoseconds on the run's one monotonic clock
    process: int
    kind: Kind
    op: Op
    ref: int | None = None  # the call that this event completes
    steps: tuple[Step, ...] = ()
    end: End | None = None
    tc: int | None = None  # when the first request to end the transaction was sent
    producer: tuple[int, int] | None = None  # producer id and epoch
    group: Group | None = None
    moved: frozenset[str] = NOT_MOVED
    details: Details = NO_DETAILS


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The header: what ran, and so which promises apply and which floors must be reached."""

    seed: int | None = None
    durability: str = "fsync"
    isolation: str = "read_committed"
    mode: str = "assign"
    txn: bool = False
    idempotent: bool = True
    acks: str = "all"
    brokers: int = 1
    parts: tuple[str, ...] = ()
    heal_s: float = 30
    faults: tuple[str, ...] = ()  # the profile: faults that must be injected and ended
    scale: float = 1  # of the floors, for runs shorter or longer than usual
    quiet_ops_s: float | None = None  # what a fault-free run of the same load confirms in a second


class History(NamedTuple):
    """A history whose header has been read."""

    run: Run
    events: Iterator[Event]  # to be consumed once
    source: str


def open_history(path: Path) -> History:
    """Read the header of a file now and its events as they are asked for."""
    return parse_history(_lines(path), source=str(path))


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(str(error), source=str(path)) from error


def parse_history(lines: Iterable[str], *, source: str = "history") -> History:
    """Read the header now and the events as they are asked for; either may raise Unreadable."""
    numbered = enumerate(lines, 1)
    number, first = next(numbered, (1, ""))
    try:
        run = _run(_json_object(first))
    except _Wrong as wrong:
        raise Unreadable(str(wrong), source=source, line=number) from None
    return History(run, _events(numbered, source), source)


def _events(numbered: Iterator[tuple[int, str]], source: str) -> Iterator[Event]:
    protocol = _Protocol()
    for number, line in numbered:
        try:
            event = _event(_json_object(line))
            protocol.check(event)
        except _Wrong as wrong:
            raise Unreadable(str(wrong), source=source, line=number) from None
        yield event


class _Wrong(Exception):
    """What is wrong with a line; the caller knows which line it is."""


class _Protocol:
    """What must hold from line to line."""

    def __init__(self) -> None:
        self._next_n = 0
        self._open_calls: dict[int, tuple[int, Op]] = {}
        self._retired: dict[int, int] = {}  # process -> the unknown event that ended it

    def check(self, event: Event) -> None:
        n, kind, process = event.n, event.kind, event.process
        if n != self._next_n:
            raise _Wrong(f"event {n} where {self._next_n} was expected")
        self._next_n += 1
        if kind is Kind.NOTE:
            return
        if event.ref is None and process in self._retired:
            # A late request of the old incarnation would look like one of the new.
            raise _Wrong(
                f"process {process} goes on after its unknown event {self._retired[process]}"
            )
        if kind is Kind.CALL:
            self._open_calls[n] = process, event.op
            return
        if event.ref is not None:
            asked = self._open_calls.pop(event.ref, None)
            if asked is None:
                raise _Wrong(f"event {n} completes {event.ref}, which is not an open call")
            if asked != (process, event.op):
                raise _Wrong(
                    f"event {n} ({event.op} of process {process}) completes {event.ref}, "
                    f"a call of {asked[1]} by process {asked[0]}"
                )
        if kind is Kind.UNKNOWN:
            self._retired[process] = n


def _json_object(line: str) -> dict[str, Any]:  # Any: JSON, until the functions below have read it
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"not JSON: {error}") from None
    if type(found) is not dict:
        raise _Wrong("not a JSON object")
    return found


def _run(fields: dict[str, Any]) -> Run:
    if fields.get("kind") != "run":
        raise _Wrong('the first line must describe the run: {"kind":"run","format":1,...}')
    if fields.get("format") != FORMAT:
        raise _Wrong(f"format {fields.get('format')!r}; this checker reads format {FORMAT}")
    known = {name: fields[name] for name in _RUN_FIELDS if fields.get(name) is not None}
    return Run(**{name: _RUN_FIELDS[name](found, name) for name, found in known.items()})


def _event(fields: dict[str, Any]) -> Event:
    get = fields.get
    kind, op = _KINDS.get(get("e")), _OPS.get(get("op"))  # type: ignore[arg-type] # None is absent
    if kind is None:
        raise _Wrong(f"unknown kind of event e={get('e')!r}")
    if op is None:
        raise _Wrong(f"unknown op {get('op')!r}")
    steps, group, moved, producer, end, tc = map(get, _FEW)
    return Event(
        n=_int(get("n"), "n"),
        t=_int(get("t"), "t"),
        process=_process(get("p")),
        kind=kind,
        op=op,
        ref=None if get("ref") is None else _int(fields["ref"], "ref"),
        steps=() if steps is None else _steps(steps),
        end=None if end is None else _end(end),
        tc=None if tc is None else _int(tc, "tc"),
        producer=None if producer is None else _pair(producer, "id"),
        group=None if group is None else _group(group),
        moved=NOT_MOVED if moved is None else frozenset(_strings(moved, "moved")),
        details=NO_DETAILS if _DETAIL_FIELDS.keys().isdisjoint(fields) else _details(fields),
    )


def _steps(found: object) -> tuple[Step, ...]:
    if type(found) is not list:
        raise _Wrong("steps is not a list")
    return tuple(map(_step, found))


def _step(found: object) -> Step:
    match found:
        case ["w", str() as part, value]:
            return Write(part, _int(value, "value"))
        case ["w", str() as part, value, None]:
            return Write(part, _int(value, "value"))
        case ["w", str() as part, value, offset]:
            return Write(part, _int(value, "value"), _offset(offset))
        case ["r"]:
            return Read()
        case ["r", dict() as records]:
            return Read({part: _records(entries) for part, entries in records.items()})
        case _:
            raise _Wrong(f"not a step: {found!r:.200}")


def _records(entries: object) -> tuple[Record, ...]:
    if type(entries) is not list:
        raise _Wrong(f"not a list of records: {entries!r:.200}")
    return tuple(map(_record, entries))


def _record(entry: object) -> Record:
    if type(entry) is not list or len(entry) != 2:
        raise _Wrong(f"not a record, [offset, value]: {entry!r:.200}")
    offset, value = entry
    return Record(_offset(offset), None if value is None else _int(value, "value"))


def _group(found: object) -> Group:
    match found:
        case [str() as name, generation, dict() as offsets]:
            return Group(
                name=name,
                generation=None if generation is None else _int(generation, "generation"),
                offsets={part: _range(given) for part, given in offsets.items()},
            )
        case _:
            raise _Wrong(f"not a group, [name, generation, offsets]: {found!r:.200}")


def _range(found: object) -> Range:
    match found:
        case None:
            return Range(None, None)
        case [start, end]:
            return Range(_offset(start), _offset(end))
        case _:
            return Range(None, _offset(found))


def _details(fields: dict[str, Any]) -> Details:
    given = {name: fields[name] for name in _DETAIL_FIELDS if fields.get(name) is not None}
    return Details(**{name: _DETAIL_FIELDS[name](found, name) for name, found in given.items()})


def _int(found: object, name: str) -> int:
    if type(found) is not int:  # True is an int to isinstance
        raise _Wrong(f"{name} is not an integer: {found!r:.100}")
    if not -INT64 <= found < INT64:
        raise _Wrong(f"{name} does not fit into 64 bits: {found}")
    return found


def _process(found: object) -> int:
    process = _int(found, "p")
    if not -INT32 <= process < INT32:
        raise _Wrong(f"p does not fit into 32 bits: {process}")
    return process


def _offset(found: object) -> int:
    offset = _int(found, "offset")
    if offset < 0:
        raise _Wrong(f"negative offset {offset}")
    return offset


def _number(found: object, name: str) -> float:
    if type(found) not in (int, float):
        raise _Wrong(f"{name} is not a number: {found!r:.100}")
    return float(found)  # type: ignore[arg-type] # checked above; bool is refused on purpose


def _string(found: object, name: str) -> str:
    if type(found) is not str:
        raise _Wrong(f"{name} is not a string: {found!r:.100}")
    return found


def _acks(found: object, name: str) -> str:
    if str(found) not in ("all", "-1", "0", "1"):
        raise _Wrong(f"{name} is not all, 0 or 1: {found!r:.100}")
    return "all" if str(found) == "-1" else str(found)


def _bool(found: object, name: str) -> bool:
    if type(found) is not bool:
        raise _Wrong(f"{name} is not true or false: {found!r:.100}")
    return found


def _strings(found: object, name: str) -> tuple[str, ...]:
    if type(found) is not list:
        raise _Wrong(f"{name} is not a list: {found!r:.100}")
    return tuple(_string(item, name) for item in found)


def _pair(found: object, name: str) -> tuple[int, int]:
    if type(found) is not list or len(found) != 2:
        raise _Wrong(f"{name} is not a pair of integers: {found!r:.100}")
    return _int(found[0], name), _int(found[1], name)


def _end(found: object) -> End:
    if found not in ("commit", "abort"):
        raise _Wrong(f"end is not commit or abort: {found!r:.100}")
    return End(found)


def _one_of(*words: str) -> Callable[[object, str], str]:
    def read(found: object, name: str) -> str:
        if found not in words:
            raise _Wrong(f"{name} is not {' or '.join(words)}: {found!r:.100}")
        return str(found)

    return read


T = TypeVar("T")


def _by_part(read: Callable[[object], T]) -> Callable[[object, str], Mapping[str, T]]:
    def read_all(found: object, name: str) -> Mapping[str, T]:
        if type(found) is not dict:
            raise _Wrong(f"{name} is not an object by partition: {found!r:.100}")
        return {part: read(item) for part, item in found.items()}

    return read_all


_KINDS: Final[Mapping[str, Kind]] = {kind.value: kind for kind in Kind}
_OPS: Final[Mapping[str, Op]] = {op.value: op for op in Op}
_FEW: Final = ("steps", "group", "moved", "id", "end", "tc")

_RUN_FIELDS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "seed": _int,
    "durability": _string,
    "isolation": _one_of("read_committed", "read_uncommitted"),
    "mode": _one_of("assign", "subscribe"),
    "txn": _bool,
    "idempotent": _bool,
    "acks": _acks,
    "brokers": _int,
    "parts": _strings,
    "heal_s": _number,
    "faults": _strings,
    "scale": _number,
    "quiet_ops_s": _number,
}

_DETAIL_FIELDS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "tid": _string,
    "err": _string,
    "idempotent": _bool,
    "offsets": _by_part(lambda found: None if found is None else _offset(found)),
    "at": _by_part(lambda found: None if found is None else _offset(found)),
    "what": _string,
    "target": _string,
    "over": _bool,
    "ends": _by_part(lambda found: Ends(*_pair(found, "ends"))),
    "more": _bool,
    "starts": _by_part(_offset),
}
