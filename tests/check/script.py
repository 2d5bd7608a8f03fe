"""Histories in a few words: each method appends what a recorder would have written."""

import json
from collections.abc import Iterable, Mapping
from typing import Self

from oncelog.check import Report, judge, parse_history

Pairs = Iterable[tuple[int, int | None]]
MS = 1_000_000


class Script:
    """A history under construction; every call takes a millisecond on its clock."""

    def __init__(self, **run: object) -> None:
        usual: dict[str, object] = {"kind": "run", "format": 1, "isolation": "read_committed"}
        self.lines: list[dict[str, object]] = [usual | run]

    @property
    def next_n(self) -> int:
        return len(self.lines) - 1

    def event(self, process: int, kind: str, op: str, **fields: object) -> int:
        n = self.next_n
        self.lines.append({"n": n, "t": n * MS, "p": process, "e": kind, "op": op, **fields})
        return n

    def call(self, process: int, op: str, **fields: object) -> Self:
        self.event(process, "call", op, **fields)
        return self

    def done(self, kind: str, ref: int | None, **fields: object) -> Self:
        """Complete a call by its number."""
        assert ref is not None
        asked = self.lines[ref + 1]
        self.event(int(str(asked["p"])), kind, str(asked["op"]), ref=ref, **fields)
        return self

    def whole(self, process: int, kind: str, op: str, **fields: object) -> Self:
        """A call and at once its completion; the fields belong to the completion."""
        asked = _asked(_list(fields.get("steps", [])))
        ref = self.event(process, "call", op, **({"steps": asked} if asked else {}))
        self.event(process, kind, op, ref=ref, **fields)
        return self

    def sent(self, process: int, part: str, *values: tuple[int, int | None] | int) -> Self:
        """Confirmed sends of (value, offset), or of a value whose offset is not known."""
        return self.whole(process, "ok", "send", steps=_writes(part, values))

    def refused(self, process: int, part: str, *values: tuple[int, int | None] | int) -> Self:
        return self.whole(process, "fail", "send", steps=_writes(part, values))

    def unsure(self, process: int, part: str, *values: tuple[int, int | None] | int) -> Self:
        return self.whole(process, "unknown", "send", steps=_writes(part, values))

    def read(
        self, process: int, part: str, *records: tuple[int, int | None], **more: object
    ) -> Self:
        """A poll that returned (offset, value)."""
        return self.whole(process, "ok", "poll", steps=[_read({part: records})], **more)

    def final(self, records: Mapping[str, Pairs], **more: object) -> Self:
        return self.whole(99, "ok", "final", steps=[_read(records)], **more)

    def txn(self, process: int, kind: str, *steps: list[object], **fields: object) -> Self:
        """A transaction: C for commit confirmed, A for abort confirmed, ? for an unknown end."""
        outcome, end = {"C": ("ok", "commit"), "A": ("fail", "abort"), "?": ("unknown", "commit")}[
            kind
        ]
        given = {"end": end, "tc": self.next_n * MS} | fields
        return self.whole(process, outcome, "txn", steps=list(steps), **given)

    def together(self, *txns: list[list[object]], kind: str = "ok", **fields: object) -> Self:
        """Transactions of processes 1, 2, ... that are all under way before any is confirmed."""
        calls = [self.event(p, "call", "txn", steps=_asked(t)) for p, t in enumerate(txns, 1)]
        asked_at = self.next_n * MS
        for call, steps in zip(calls, txns, strict=True):
            given = {"end": "commit", "tc": asked_at} | fields
            self.done(kind, call, steps=steps, **given)
        return self

    def effects(self, part: str, *effects: tuple[int, int, int], op: str = "poll") -> Self:
        """A read of a pipeline's output: (offset, the value that it stands for, batch)."""
        found = [[offset, [value], batch] for offset, value, batch in effects]
        ends = {"ends": {part: [100, 100]}} if op == "final" else {}
        return self.whole(98, "ok", op, steps=[["e", {part: found}]], **ends)

    def commit(self, process: int, offset: int, *, kind: str = "ok", group: str = "g") -> Self:
        asked = [group, 1, {"a:0": offset}]
        ref = self.event(process, "call", "commit", group=asked)
        self.event(process, kind, "commit", ref=ref, group=asked)
        return self

    def committed(self, process: int, offset: int | None, *, group: str = "g") -> Self:
        ref = self.event(process, "call", "committed", group=[group, 1, {}])
        self.event(process, "ok", "committed", ref=ref, group=[group, 1, {"a:0": offset}])
        return self

    def latest(self, process: int, offset: int, part: str = "a:0") -> Self:
        return self.whole(process, "ok", "latest", offsets={part: offset})

    def note(self, op: str, process: int = -1, **fields: object) -> Self:
        self.event(process, "note", op, **fields)
        return self

    def text(self) -> list[str]:
        return [json.dumps(line) + "\n" for line in self.lines]

    def judge(self, *, with_floors: bool = False) -> Report:
        return judge(parse_history(self.text()), with_floors=with_floors)


def w(part: str, value: int, offset: int | None = None) -> list[object]:
    return ["w", part, value, offset]


def r(**records: Pairs) -> list[object]:
    """Partitions spelled a0 for a:0."""
    return _read({f"{name[0]}:{name[1:]}": pairs for name, pairs in records.items()})


def _read(records: Mapping[str, Pairs]) -> list[object]:
    return ["r", {part: [list(pair) for pair in pairs] for part, pairs in records.items()}]


def _writes(part: str, values: Iterable[tuple[int, int | None] | int]) -> list[list[object]]:
    return [w(part, *value) if isinstance(value, tuple) else w(part, value) for value in values]


def _asked(steps: Iterable[list[object]]) -> list[list[object]]:
    return [step[:3] if step[0] == "w" else ["r"] for step in steps]


def _list(steps: object) -> list[list[object]]:
    assert isinstance(steps, list)
    return steps
