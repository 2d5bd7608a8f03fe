"""Random histories of a log that keeps its promises: a list for each partition, and nothing else.

Sends, transactions, polls and offset commits overlap in time, fail, break off and arrive late, as
with a real broker; one seed gives one history.
"""

import random
from dataclasses import dataclass, field

from tests.check.script import MS, Script, w

PARTS = ("a:0", "a:1", "b:0")
LAST_READER = 1_000_000  # a process number above all others


@dataclass
class Pending:
    """An operation between its call and its completion."""

    ref: int
    writes: list[tuple[str, int]]
    is_txn: bool
    outcome: str  # ok, abort, fail, unknown
    is_written: bool  # whether the log takes it
    tc: int
    offsets: list[int | None] = field(default_factory=list)


class Model:
    def __init__(self, seed: int, *, txn: bool = False, steps: int = 150) -> None:
        self.random = random.Random(seed)
        isolation = self.random.choice(
            ["read_committed", "read_uncommitted"] if not txn else ["read_committed"]
        )
        self.script = Script(txn=txn, parts=list(PARTS), isolation=isolation, seed=seed)
        self.txn = txn
        #: None is a marker or aborted data: an offset that no reader is given.
        self.logs: dict[str, list[int | None]] = {part: [] for part in PARTS}
        self.next_value = 0
        self.next_process = 100
        self.writers = [self.fresh_process() for _ in range(4)]
        self.pending: dict[int, Pending] = {}
        self.late: list[Pending] = []  # broken off for the client, still under way
        self.readers: dict[int, dict[str, int]] = {self.fresh_process(): {} for _ in range(3)}
        self.committed: dict[str, int] = {}
        actions = [self.call, self.call, self.complete, self.complete, self.poll, self.poll, self.arrive,
                   self.seek, self.rebalance, self.crash, self.commit, self.fetch, self.latest]  # fmt: skip
        for _ in range(steps):
            self.random.choice(actions)()
        self.finish()

    def fresh_process(self) -> int:
        self.next_process += 1
        return self.next_process

    # --- writers ------------------------------------------------------------------------------

    def call(self) -> None:
        idle = [process for process in self.writers if process not in self.pending]
        if not idle:
            return
        process = self.random.choice(idle)
        writes = [
            (self.random.choice(PARTS), self.value()) for _ in range(self.random.randint(1, 4))
        ]
        is_txn = self.txn and self.random.random() < 0.8
        outcome = self.random.choice(["ok"] * 6 + ["unknown"] * 2 + ["fail"] + ["abort"] * is_txn)
        asked = [["w", part, value] for part, value in writes]
        ref = self.script.event(process, "call", "txn" if is_txn else "send", steps=asked)
        is_written = outcome == "ok" or (outcome == "unknown" and self.random.random() < 0.5)
        # The end is asked for while the operation is under way; nothing else happens before that.
        pending = Pending(ref, writes, is_txn, outcome, is_written, tc=ref * MS + 1)
        self.pending[process] = pending
        if self.random.random() < 0.5:
            self.append(pending)

    def value(self) -> int:
        self.next_value += 1
        return self.next_value

    def append(self, pending: Pending) -> None:
        if pending.offsets:
            return
        for part, value in pending.writes:
            is_noise = not pending.is_written
            if is_noise and not (pending.is_txn and pending.outcome == "abort"):
                pending.offsets.append(None)
                continue
            pending.offsets.append(len(self.logs[part]))
            self.logs[part].append(None if is_noise else value)
        if pending.is_txn:
            for part in sorted({part for part, _ in pending.writes}):
                self.logs[part].append(None)

    def complete(self) -> None:
        if not self.pending:
            return
        process = self.random.choice(sorted(self.pending))
        pending = self.pending.pop(process)
        is_unknown = pending.outcome == "unknown"
        if is_unknown and not pending.offsets and self.random.random() < 0.5:
            self.late.append(pending)
        else:
            self.append(pending)
        known = [
            offset if self.random.random() < (0.3 if is_unknown else 0.9) else None
            for offset in pending.offsets or [None] * len(pending.writes)
        ]
        steps = [
            w(part, value, offset)
            for (part, value), offset in zip(pending.writes, known, strict=True)
        ]
        end = {"end": "abort" if pending.outcome == "abort" else "commit", "tc": pending.tc}
        kind = "fail" if pending.outcome == "abort" else pending.outcome
        self.script.done(kind, pending.ref, steps=steps, **(end if pending.is_txn else {}))
        if is_unknown:
            self.writers[self.writers.index(process)] = self.fresh_process()

    def arrive(self) -> None:
        if self.late:
            self.append(self.late.pop(self.random.randrange(len(self.late))))

    # --- readers ------------------------------------------------------------------------------

    def poll(self) -> None:
        reader = self.random.choice(sorted(self.readers))
        parts = self.random.sample(PARTS, self.random.randint(1, 3))
        records = {part: self.take(self.readers[reader], part) for part in parts}
        kind = "unknown" if self.random.random() < 0.05 else "ok"
        self.script.whole(reader, kind, "poll", steps=[["r", records]])
        if kind == "unknown":
            del self.readers[reader]
            self.readers[self.fresh_process()] = {}

    def take(self, positions: dict[str, int], part: str) -> list[list[int]]:
        start = positions.get(part, 0)
        log = self.logs[part]
        end = min(len(log), start + self.random.randint(0, 8))
        positions[part] = end
        return [
            [offset, value] for offset in range(start, end) if (value := log[offset]) is not None
        ]

    def seek(self) -> None:
        reader = self.random.choice(sorted(self.readers))
        part = self.random.choice(PARTS)
        offset = self.random.randint(0, len(self.logs[part]))
        self.script.whole(reader, "ok", "seek", at={part: offset})
        self.readers[reader][part] = offset

    def rebalance(self) -> None:
        reader = self.random.choice(sorted(self.readers))
        part = self.random.choice(PARTS)
        self.readers[reader][part] = self.random.randint(0, self.readers[reader].get(part, 0))
        records = self.take(self.readers[reader], part)
        self.script.whole(reader, "ok", "poll", steps=[["r", {part: records}]], moved=[part])

    def crash(self) -> None:
        if self.random.random() < 0.2:
            reader = self.random.choice(sorted(self.readers))
            self.script.note("crash", process=reader)
            self.readers[reader] = {}

    # --- offsets ------------------------------------------------------------------------------

    def commit(self) -> None:
        part = self.random.choice(PARTS)
        offset = self.random.randint(self.committed.get(part, 0), len(self.logs[part]))
        asked = ["g", 1, {part: offset}]
        kind = self.random.choice(["ok", "ok", "fail"])
        ref = self.script.event(50, "call", "commit", group=asked)
        self.script.done(kind, ref, group=asked)
        if kind == "ok":
            self.committed[part] = offset

    def fetch(self) -> None:
        ref = self.script.event(51, "call", "committed", group=["g", None, {}])
        if self.random.random() < 0.3:
            self.commit()
        found = {part: self.committed.get(part) for part in PARTS}
        self.script.done("ok", ref, group=["g", None, found])

    def latest(self) -> None:
        ref = self.script.event(52, "call", "latest")
        ends = {part: len(log) for part, log in self.logs.items()}
        self.script.done("ok", ref, offsets=ends)

    def finish(self) -> None:
        while self.pending:
            self.complete()
        while self.late:
            self.arrive()
        self.script.note("heal")
        positions: dict[str, int] = {}
        while any(positions.get(part, 0) < len(log) for part, log in self.logs.items()):
            records = {part: self.take(positions, part) for part in PARTS}
            self.script.whole(LAST_READER, "ok", "final", steps=[["r", records]], more=True)
        ends = {part: [len(log), len(log)] for part, log in self.logs.items()}
        self.script.whole(LAST_READER, "ok", "final", ends=ends)
