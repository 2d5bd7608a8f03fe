"""Writing a history: one recorder for all the clients of a run.

The order of the lines is evidence: a read recorded before the call that sent its value is an
anomaly. So a client records a call *before* it sends and a completion *after* the reply, and one
lock gives every event its number, its time and its line. Each line reaches the operating system
before the call returns, so that a harness that is killed leaves a history up to that moment.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from oncelog.check.history import (
    FORMAT,
    HARNESS,
    NO_DETAILS,
    Details,
    Event,
    Kind,
    Op,
    Range,
    Read,
    Run,
    Step,
    Write,
)

_DEFAULT_RUN: Final = Run()


class Recorder:
    """Numbers events without gaps and writes them down; safe to use from many threads."""

    def __init__(
        self, path: Path, run: Run, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next_n = 0
        self._next_process = 0
        self._next_value = 0
        self._calls: dict[int, tuple[int, Op]] = {}
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._write(header(run))

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing can be recorded afterwards."""
        self._file.close()

    def new_process(self) -> int:
        """A number for a client; take a new one after each unknown outcome."""
        with self._lock:
            self._next_process += 1
            return self._next_process - 1

    def new_value(self) -> int:
        """A value that nobody else in this run writes."""
        with self._lock:
            self._next_value += 1
            return self._next_value - 1

    def call(self, process: int, op: Op, steps: Iterable[Step] = (), **fields: object) -> int:
        """Record that an operation is about to be asked for; its number completes it later.

        `fields` are those of the format, by the names it gives them: `group=["g", 3, {...}]`.
        """
        with self._lock:
            n = self._append(process, Kind.CALL, op, steps, fields)
            self._calls[n] = process, op
            return n

    def ok(self, call: int, steps: Iterable[Step] = (), **fields: object) -> int:
        """Record that an operation was confirmed."""
        return self._complete(call, Kind.OK, steps, fields)

    def fail(self, call: int, steps: Iterable[Step] = (), **fields: object) -> int:
        """Record that an operation certainly had no effect."""
        return self._complete(call, Kind.FAIL, steps, fields)

    def unknown(self, call: int, steps: Iterable[Step] = (), **fields: object) -> int:
        """Record that nobody knows; the process number is not used again."""
        return self._complete(call, Kind.UNKNOWN, steps, fields)

    def note(self, op: Op, *, process: int = HARNESS, **fields: object) -> int:
        """Record what the harness did or saw: a fault, its end, healing, a crash."""
        with self._lock:
            return self._append(process, Kind.NOTE, op, (), fields)

    def _complete(
        self, call: int, kind: Kind, steps: Iterable[Step], fields: Mapping[str, object]
    ) -> int:
        with self._lock:
            process, op = self._calls.pop(call)
            return self._append(process, kind, op, steps, {"ref": call, **fields})

    def _append(
        self,
        process: int,
        kind: Kind,
        op: Op,
        steps: Iterable[Step],
        fields: Mapping[str, object],
    ) -> int:
        n = self._next_n
        line: dict[str, object] = {"n": n, "t": self._clock(), "p": process, "e": kind, "op": op}
        encoded = [_step(step, asked=kind is Kind.CALL) for step in steps]
        if encoded:
            line["steps"] = encoded
        self._write(line | dict(fields))
        self._next_n += 1  # only now: a line that could not be written has no number
        return n

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(encode(line) + "\n")
        self._file.flush()


def encode(line: Mapping[str, object]) -> str:
    """A line as text."""
    return json.dumps(line, separators=(",", ":"))


def header(run: Run) -> dict[str, object]:
    """The first line of a history."""
    given = {name: getattr(run, name) for name in Run.__slots__}
    differs = {name: found for name, found in given.items() if found != getattr(_DEFAULT_RUN, name)}
    if run.pipes:
        differs["pipes"] = {
            pipe.name: {"from": pipe.source, "to": pipe.target} for pipe in run.pipes
        }
    usual = {name: given[name] for name in ("durability", "isolation", "mode", "txn", "idempotent")}
    return {"kind": "run", "format": FORMAT} | usual | differs


def event_line(event: Event) -> dict[str, object]:
    """An event as the JSON object that reads back as the same event."""
    line: dict[str, object] = {"n": event.n, "t": event.t, "p": event.process, "e": event.kind}
    if event.kind not in (Kind.CALL, Kind.NOTE):
        line["ref"] = event.ref
    line["op"] = event.op
    if event.steps:
        line["steps"] = [_step(step, asked=event.kind is Kind.CALL) for step in event.steps]
    optional = {"end": event.end, "tc": event.tc, "id": event.producer}
    if event.group is not None:
        offsets = {part: _range(given) for part, given in event.group.offsets.items()}
        line["group"] = [event.group.name, event.group.generation, offsets]
    if event.moved:
        line["moved"] = sorted(event.moved)
    line |= {name: found for name, found in optional.items() if found is not None}
    details = zip(Details._fields, event.details, NO_DETAILS, strict=True)
    return line | {name: found for name, found, default in details if found != default}


def _step(step: Step, *, asked: bool) -> list[object]:
    if isinstance(step, Write):
        return ["w", *step[: 2 if asked else 3]]
    if asked:
        return ["r"]
    return ["r" if isinstance(step, Read) else "e", step.records]


def _range(given: Range) -> object:
    return given.end if given.start is None else list(given)
