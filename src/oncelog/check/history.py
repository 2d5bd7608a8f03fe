"""The history of a run: one JSON object per line, a header and then every event in order.

This module holds the types and the reader. It checks each line as it goes, so that whoever judges
a history may rely on it: numbers without gaps, completions that fit their calls, known words. It
keeps nothing but the calls still open, and so reads a file of any length.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from oncelog.check.fields import (
    INT32,
    INT64,
    Reader,
    Wrong,
    boolean,
    by_name,
    integer,
    list_of,
    number,
    offset,
    one_of,
    or_none,
    pair,
    process_number,
    string,
)

FORMAT: Final = 1
STANDARD_INPUT: Final = Path("-")
STDIN_FILENO: Final = 0
LINE_LIMIT: Final = 1 << 26  # characters of one line
HARNESS: Final = -1  # the process number of whoever injects faults and takes notes


class Unreadable(Exception):
    """A history that cannot be judged, because it breaks the rules of its own format."""

    def __init__(self, why: str, *, source: str = "history", line: int | None = None) -> None:
        self.why = why
        self.source = source
        self.line = line
        super().__init__(f"{source}: {why}" if line is None else f"{source}:{line}: {why}")


class Kind(StrEnum):
    """What an event says about its operation."""

    __hash__ = str.__hash__  # that of Enum is written in Python, and every event is looked up

    CALL = "call"  # asked for
    OK = "ok"  # confirmed
    FAIL = "fail"  # certainly without effect
    UNKNOWN = "unknown"  # could be either way
    NOTE = "note"  # no operation: something the harness did or saw


class Op(StrEnum):
    """What was done."""

    __hash__ = str.__hash__  # as above

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
    MARKER = "marker"
    STATE = "state"
    BATCH = "batch"
    FINAL = "final"


#: What is only noted, since nobody asks a broker for it.
NOTES: Final = frozenset({Op.CRASH, Op.FAULT, Op.HEAL, Op.MARKER, Op.STATE, Op.BATCH})
#: What may be noted: a consumer is moved without a request, and a final read is the harness's own.
MAY_BE_NOTED: Final = NOTES | {Op.ASSIGN, Op.SUBSCRIBE, Op.SEEK, Op.FINAL}


class End(StrEnum):
    """How a client asked its transaction to end."""

    COMMIT = "commit"
    ABORT = "abort"


# Events and their parts are named tuples and not dataclasses, since a history has millions of them.
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


class Effect(NamedTuple):
    """A record that a pipeline made: which input it stands for, and the batch that wrote it."""

    offset: int
    origins: tuple[int, ...]
    batch: int | None = None


class Effects(NamedTuple):
    """What a reader was handed of a pipeline's output."""

    records: Mapping[str, tuple[Effect, ...]] = {}


Step: TypeAlias = Write | Read | Effects


class Range(NamedTuple):
    """Input offsets that a group consumed: start <= offset < end; a plain commit has no start."""

    start: int | None
    end: int | None  # None: a committed offset was asked for and there is none


class Group(NamedTuple):
    """Offsets of a consumer group: committed, fetched, or consumed by a transaction."""

    name: str
    generation: int | None
    offsets: Mapping[str, Range]


class Ends(NamedTuple):
    """What `final` found in one partition."""

    last_stable_offset: int
    log_end_offset: int


class Details(NamedTuple):
    """The fields that few events have."""

    tid: str | None = None  # the transactional id
    err: str | None = None
    idempotent: bool | None = None  # of one operation, where it differs from the run's
    offsets: Mapping[str, int | None] | None = None  # `latest`: what it returned
    at: Mapping[str, int | None] | None = None  # where reading goes on; where a `marker` stands
    what: str | None = None  # `fault`: its name in the run's profile
    target: str | None = None
    over: bool = False  # `fault`: this is its end
    ends: Mapping[str, Ends] | None = None  # `final`
    more: bool = False  # `final`: more of the same read follows
    starts: Mapping[str, int] | None = None  # log start offsets, once retention has moved them
    probe: bool = False  # an operation after healing that must commit
    open_txns: tuple[str, ...] = ()  # `state`: transactional ids with an open transaction
    groups: Mapping[str, str] | None = None  # `state`: what each group is doing
    values: tuple[int, ...] = ()  # `marker`: what it ends; `batch`: the input it takes
    pipe: str | None = None  # `batch`
    batch: int | None = None


NO_DETAILS: Final = Details()
NOT_MOVED: Final[frozenset[str]] = frozenset()


class Event(NamedTuple):
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
class Pipe:
    """A pipeline: every committed record of its input has one effect in its output."""

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]


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
    pipes: tuple[Pipe, ...] = ()


class History(NamedTuple):
    """A history whose header has been read."""

    run: Run
    events: Iterator[Event]  # to be consumed once
    source: str


def open_history(path: Path) -> History:
    """Read the header of a file now and its events as they are asked for; `-` is standard input."""
    return parse_history(_lines(path), source=str(path))


def _lines(path: Path) -> Iterator[str]:
    is_input = path == STANDARD_INPUT
    try:
        with open(
            STDIN_FILENO if is_input else path,
            encoding="utf-8",
            newline="\n",
            closefd=not is_input,
        ) as file:
            while line := file.readline(LINE_LIMIT):
                yield line
    except OSError as error:
        raise Unreadable(error.strerror or str(error), source=str(path)) from error


def parse_history(lines: Iterable[str], *, source: str = "history") -> History:
    """Read the header now and the events as they are asked for; either may raise Unreadable."""
    rest = iter(lines)
    try:
        first = next(rest, None)
        if first is None:
            raise Wrong("empty: the first line must describe the run, and events follow")
        run = _run(_json_object(first))
    except (Wrong, UnicodeDecodeError) as wrong:
        raise Unreadable(str(wrong), source=source, line=1) from None
    return History(run, _events(rest, source), source)


def _events(lines: Iterator[str], source: str) -> Iterator[Event]:
    protocol = _Protocol()
    line = ""
    number = 1  # the header's
    try:
        for line in lines:
            number += 1
            event = _event(_json_object(line))
            protocol.check(event)
            yield event
    except (Wrong, UnicodeDecodeError) as wrong:
        if isinstance(wrong, UnicodeDecodeError):
            # The bytes that are no text come somewhere after the last line that was.
            raise Unreadable(f"not text: {wrong}", source=source, line=number + 1) from None
        raise Unreadable(f"{wrong}{_cut(line)}", source=source, line=number) from None


def _cut(line: str) -> str:
    """Why the last line of a run that was killed cannot be read, and what to do about it."""
    if not line or line.endswith(("\n", "}")):
        return ""
    return " (the file ends in the middle of this line: without it the rest can be judged)"


class _Protocol:
    """What must hold from line to line."""

    def __init__(self) -> None:
        self._next_n = 0
        self._open_calls: dict[int, tuple[int, Op]] = {}
        self._retired: dict[int, int] = {}  # process -> the unknown event that ended it

    def check(self, event: Event) -> None:
        n, process, kind, op, ref = event.n, event.process, event.kind, event.op, event.ref
        if n != self._next_n:
            raise Wrong(f"event {n} where {self._next_n} was expected")
        self._next_n += 1
        if kind is Kind.NOTE:
            if op not in MAY_BE_NOTED:
                raise Wrong(f"a note of {op}, which takes a call and its completion")
            return
        if op in NOTES:
            raise Wrong(f"{op} can only be noted, and here is its {kind}")
        if kind is Kind.CALL:
            self._refuse_retired(process)
            self._open_calls[n] = process, op
            return
        if ref is None:
            self._refuse_retired(process)
        elif self._open_calls.pop(ref, None) != (process, op):
            raise Wrong(
                f"event {n} completes {ref}, which is not an open call of {op} by process {process}"
            )
        if kind is Kind.UNKNOWN:
            self._retired[process] = n

    def _refuse_retired(self, process: int) -> None:
        if process in self._retired:
            # A late request of the old incarnation would look like one of the new.
            raise Wrong(
                f"process {process} goes on after its unknown event {self._retired[process]}"
            )


_decode: Final = json.JSONDecoder().raw_decode


def _json_object(line: str) -> dict[str, Any]:  # Any: JSON, until the functions below have read it
    if len(line) >= LINE_LIMIT:
        raise Wrong(f"longer than {LINE_LIMIT} characters: record such a read in several events")
    try:
        found, end = _decode(line)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON: {error}") from None
    if type(found) is not dict:
        raise Wrong("not a JSON object")
    if end + 1 < len(line) and not line[end:].isspace():
        raise Wrong(f"not JSON: something follows the object, in column {end + 1}")
    return found


def _run(fields: dict[str, Any]) -> Run:
    if fields.get("kind") != "run":
        raise Wrong('the first line must describe the run: {"kind":"run","format":1,...}')
    if fields.get("format") != FORMAT:
        raise Wrong(f"format {fields.get('format')!r:.100}; this checker reads format {FORMAT}")
    known = {name: fields[name] for name in _RUN_FIELDS if fields.get(name) is not None}
    return Run(**{name: _RUN_FIELDS[name](found, name) for name, found in known.items()})


def _event(fields: dict[str, Any]) -> Event:
    get = fields.get
    n, t, process, ref, kind, op = map(get, _ALWAYS)
    if not (type(n) is type(t) is type(process) is int):
        _refuse_numbers(fields)
    if not (-INT64 <= t < INT64 and -INT32 <= process < INT32):
        _refuse_numbers(fields)
    if ref is not None and type(ref) is not int:
        _refuse_numbers(fields)
    if type(kind) is not str or kind not in _KINDS:
        raise Wrong(f"unknown kind of event e={kind!r:.100}")
    if type(op) is not str or op not in _OPS:
        raise Wrong(f"unknown op {op!r:.100}")
    steps, group, moved, producer, end, tc = map(get, _OFTEN)
    return Event(
        n,
        t,
        process,
        _KINDS[kind],
        _OPS[op],
        ref,
        () if steps is None else _steps(steps),
        None if end is None else _ENDS[_end(end, "end")],
        None if tc is None else integer(tc, "tc"),
        None if producer is None else pair(producer, "id"),
        None if group is None else _group(group),
        NOT_MOVED if moved is None else frozenset(_strings(moved, "moved")),
        NO_DETAILS if _DETAIL_NAMES.isdisjoint(fields) else _details(fields),
    )


def _refuse_numbers(fields: dict[str, Any]) -> NoReturn:
    integer(fields.get("n"), "n")
    integer(fields.get("t"), "t")
    process_number(fields.get("p"), "p")
    raise Wrong(f"ref is not an integer: {fields.get('ref')!r:.100}")


def _steps(found: object) -> tuple[Step, ...]:
    if type(found) is not list:
        raise Wrong("steps is not a list")
    return tuple(map(_step, found))


def _step(found: object) -> Step:
    match found:
        case ["w", str() as part, int() as value, at] if type(value) is type(at) is int:
            # What most steps are. Everything else is looked at more closely.
            if -INT64 <= value < INT64 and 0 <= at < INT64:
                return Write(part, value, at)
            return Write(part, integer(value, "value"), offset(at))
        case ["w", str() as part, value]:
            return Write(part, integer(value, "value"))
        case ["w", str() as part, value, at]:
            return Write(part, integer(value, "value"), None if at is None else offset(at))
        case ["r"]:
            return Read()
        case ["r", dict() as records]:
            return Read({part: _records(entries) for part, entries in records.items()})
        case ["e", dict() as records]:
            return Effects({part: _effects(entries, part) for part, entries in records.items()})
        case _:
            raise Wrong(f"not a step: {found!r:.200}")


def _records(entries: object) -> tuple[Record, ...]:
    if type(entries) is not list:
        raise Wrong(f"not a list of records: {entries!r:.200}")
    records = []
    for entry in entries:
        if type(entry) is not list or len(entry) != 2:
            raise Wrong(f"not a record, [offset, value]: {entry!r:.200}")
        at, value = entry
        if type(at) is not int or not 0 <= at < INT64:
            offset(at)
        if type(value) is not int or not -INT64 <= value < INT64:
            _integer_or_none(value, "value")
        records.append(Record(at, value))
    return tuple(records)


def _effect(entry: object, part: str) -> Effect:
    match entry:
        case [at, origins]:
            return Effect(offset(at), _integers(origins, "origins"))
        case [at, origins, batch]:
            return Effect(offset(at), _integers(origins, "origins"), integer(batch, "batch"))
        case _:
            raise Wrong(f"not an effect in {part}, [offset, origins, batch]: {entry!r:.200}")


def _group(found: object) -> Group:
    match found:
        case [str() as name, generation, dict() as offsets]:
            generation = _integer_or_none(generation, "generation")
            return Group(name, generation, {part: _range(at) for part, at in offsets.items()})
        case _:
            raise Wrong(f"not a group, [name, generation, offsets]: {found!r:.200}")


def _range(found: object) -> Range:
    match found:
        case None:
            return Range(None, None)
        case [start, end]:
            return Range(offset(start), offset(end))
        case _:
            return Range(None, offset(found))


def _details(fields: dict[str, Any]) -> Details:
    return Details(
        **{
            name: _DETAIL_FIELDS[name](found, name)
            for name, found in fields.items()
            if found is not None and name in _DETAIL_FIELDS
        }
    )


def _acks(found: object, name: str) -> str:
    if type(found) not in (int, str) or str(found) not in ("all", "-1", "0", "1"):
        raise Wrong(f"{name} is not all, 0 or 1: {found!r:.100}")
    return "all" if str(found) == "-1" else str(found)


def _pipes(found: object, name: str) -> tuple[Pipe, ...]:
    pipes = []
    written: set[str] = set()
    for pipe, parts in by_name(by_name(list_of(string)))(found, name).items():
        if parts.keys() != {"from", "to"}:
            raise Wrong(f'pipe {pipe!r:.100} is not {{"from":[...],"to":[...]}}')
        if written & set(parts["to"]):
            raise Wrong(f"pipe {pipe!r:.100} writes to a partition that another one writes to")
        written.update(parts["to"])
        pipes.append(Pipe(name=pipe, source=parts["from"], target=parts["to"]))
    return tuple(pipes)


_KINDS: Final[Mapping[str, Kind]] = {kind.value: kind for kind in Kind}
_OPS: Final[Mapping[str, Op]] = {op.value: op for op in Op}
_ENDS: Final[Mapping[str, End]] = {end.value: end for end in End}
_ALWAYS: Final = ("n", "t", "p", "ref", "e", "op")
_OFTEN: Final = ("steps", "group", "moved", "id", "end", "tc")

_end: Final = one_of("commit", "abort")
_strings: Final = list_of(string)
_integers: Final = list_of(integer)
_integer_or_none: Final = or_none(integer)
_effects: Final = list_of(_effect)

_RUN_FIELDS: Final[Mapping[str, Reader[Any]]] = {
    "seed": integer,
    "durability": string,
    "isolation": one_of("read_committed", "read_uncommitted"),
    "mode": one_of("assign", "subscribe"),
    "txn": boolean,
    "idempotent": boolean,
    "acks": _acks,
    "brokers": integer,
    "parts": _strings,
    "heal_s": number,
    "faults": _strings,
    "scale": number,
    "quiet_ops_s": number,
    "pipes": _pipes,
}

_DETAIL_FIELDS: Final[Mapping[str, Reader[Any]]] = {
    "tid": string,
    "err": string,
    "idempotent": boolean,
    "offsets": by_name(or_none(offset)),
    "at": by_name(or_none(offset)),
    "what": string,
    "target": string,
    "over": boolean,
    "ends": by_name(lambda found, name: Ends(*pair(found, name))),
    "more": boolean,
    "starts": by_name(offset),
    "probe": boolean,
    "open_txns": _strings,
    "groups": by_name(string),
    "values": _integers,
    "pipe": string,
    "batch": integer,
}
_DETAIL_NAMES: Final = frozenset(_DETAIL_FIELDS)
