"""Random histories of copiers and a pipeline on a log that keeps its promises.

Copiers take what was sent to `a` to `b` in transactions that commit their group's offsets; they abort,
break off, and are replaced by newer ones. A pipeline takes the same input to `c`, batch by batch. One
seed gives one history; every fourth run loses the beginning of its input to retention.
"""

import random

from tests.check.script import MS, Script, w

INPUTS = ("a:0", "a:1")
OUTPUTS = ("b:0", "b:1")
PIPED = "c:0"
READER = 500
FINAL_READER = 600
PROBER = 700


class Copying:
    def __init__(self, seed: int, *, steps: int = 80) -> None:
        self.random = random.Random(seed)
        pipes = {"p": {"from": list(INPUTS), "to": [PIPED]}}
        parts = [*INPUTS, *OUTPUTS, PIPED]
        self.script = Script(txn=True, parts=parts, pipes=pipes, seed=seed, mode="subscribe")
        #: None is a marker or aborted data: an offset that no reader is given.
        self.logs: dict[str, list[int | None]] = {part: [] for part in (*INPUTS, *OUTPUTS)}
        self.effects: list[tuple[int, int]] = []  # value and batch, by offset
        self.markers: list[tuple[str, str, int, list[int]]] = []
        self.next_value = 0
        self.next_process = 100
        self.processes = [0, 0]
        self.epochs = [-1, -1]
        self.copied = [0, 0]  # the groups' offsets
        self.piped = [0, 0]
        self.batch = 0
        self.read: dict[str, int] = {}
        for copier in range(2):
            self.open(copier)
        actions = [
            self.feed,
            self.feed,
            self.copy,
            self.copy_both,
            self.pipe,
            self.poll,
            self.watch,
            self.fetch,
        ]
        for _ in range(steps):
            self.random.choice(actions)()
        self.finish(has_retention=seed % 4 == 0)

    def value(self) -> int:
        self.next_value += 1
        return self.next_value

    def feed(self) -> None:
        part = self.random.choice(INPUTS)
        values = [self.value() for _ in range(self.random.randint(1, 4))]
        first = len(self.logs[part])
        self.logs[part] += values
        self.script.sent(1, part, *((v, first + i) for i, v in enumerate(values)))

    # --- copiers ------------------------------------------------------------------------------

    def open(self, copier: int) -> None:
        """A new process takes over."""
        self.next_process += 1
        process = self.processes[copier] = self.next_process
        self.epochs[copier] += 1
        identity = [1000 + copier, self.epochs[copier]]
        self.script.whole(process, "ok", "open", tid=f"t{copier}", id=identity)
        self.script.whole(process, "ok", "assign", at={INPUTS[copier]: self.copied[copier]})

    def copy(self) -> None:
        self.run_copies([self.random.randrange(2)])

    def copy_both(self) -> None:
        self.run_copies([0, 1])

    def run_copies(self, copiers: list[int]) -> None:
        """Copiers whose transactions overlap in time."""
        calls = []
        for copier in copiers:
            count = len(self.logs[INPUTS[copier]]) - self.copied[copier]
            writes = [(self.random.choice(OUTPUTS), self.value()) for _ in range(count)]
            asked = [["r"], *(["w", part, value] for part, value in writes)]
            process = self.processes[copier]
            calls.append(
                (self.script.event(process, "call", "txn", steps=asked, tid=f"t{copier}"), writes)
            )
        for copier, (call, writes) in zip(copiers, calls, strict=True):
            outcome = self.random.choice(["ok"] * 5 + ["fail", "lost", "unknown"])
            self.end_copy(copier, call, writes, outcome)

    def end_copy(self, copier: int, call: int, writes: list[tuple[str, int]], outcome: str) -> None:
        source, start = INPUTS[copier], self.copied[copier]
        end = len(self.logs[source])
        found = [[offset, self.logs[source][offset]] for offset in range(start, end)]
        is_committed = outcome in ("ok", "unknown")
        steps: list[list[object]] = [["r", {source: found}]]
        for part, value in writes:
            steps.append(
                w(part, value, len(self.logs[part]) if outcome in ("ok", "fail") else None)
            )
            if outcome != "lost":
                self.logs[part].append(value if is_committed else None)
        if outcome != "lost":
            self.mark("commit" if is_committed else "abort", writes)
        group = {"group": ["g", 1, {source: [start, end]}]} if start < end else {}
        kind = {"ok": "ok", "fail": "fail"}.get(outcome, "unknown")
        self.script.done(
            kind,
            call,
            steps=steps,
            end="abort" if outcome == "fail" else "commit",
            tc=call * MS + 1,
            tid=f"t{copier}",
            id=[1000 + copier, self.epochs[copier]],
            **group,
        )
        if is_committed:
            self.copied[copier] = end
        if kind == "unknown":
            self.open(copier)

    def mark(self, end: str, writes: list[tuple[str, int]]) -> None:
        for part in sorted({part for part, _ in writes}):
            values = [value for home, value in writes if home == part]
            self.markers.append((end, part, len(self.logs[part]), values))
            self.logs[part].append(None)

    def fetch(self) -> None:
        found = {part: self.copied[i] or None for i, part in enumerate(INPUTS)}
        call = self.script.event(400, "call", "committed", group=["g", None, {}])
        self.script.done("ok", call, group=["g", None, found])

    # --- the pipeline and readers -------------------------------------------------------------

    def pipe(self) -> None:
        values: list[int] = []
        for index, part in enumerate(INPUTS):
            values += [value for value in self.logs[part][self.piped[index] :] if value is not None]
            self.piped[index] = len(self.logs[part])
        if values:
            self.script.note("batch", pipe="p", batch=self.batch, values=values)
            self.effects += [(value, self.batch) for value in values]
            self.batch += 1

    def poll(self) -> None:
        part = self.random.choice(OUTPUTS)
        start, log = self.read.get(part, 0), self.logs[part]
        self.read[part] = end = min(len(log), start + self.random.randint(1, 6))
        records = [[o, log[o]] for o in range(start, end) if log[o] is not None]
        self.script.whole(READER, "ok", "poll", steps=[["r", {part: records}]])

    def watch(self) -> None:
        """A reader of the pipeline's output, which may see a part of a batch."""
        end = self.random.randint(0, len(self.effects))
        self.script.whole(READER + 1, "ok", "poll", steps=[self.seen(end)])

    def seen(self, end: int) -> list[object]:
        return ["e", {PIPED: [[o, [v], b] for o, (v, b) in enumerate(self.effects[:end])]}]

    def finish(self, *, has_retention: bool) -> None:
        self.pipe()
        starts = {part: len(self.logs[part]) // 2 if has_retention else 0 for part in INPUTS}
        if has_retention:
            self.script.note("fault", what="retention", starts=starts)
        self.script.note("heal")
        self.probe()
        self.script.note("state", open_txns=[], groups={"g": "Stable"})
        self.fetch()
        for end, part, offset, values in self.markers:
            self.script.note("marker", end=end, at={part: offset}, values=values)
        records = {
            part: [[o, v] for o, v in enumerate(log) if v is not None and o >= starts.get(part, 0)]
            for part, log in self.logs.items()
        }
        ends = {part: [len(log), len(log)] for part, log in self.logs.items()}
        ends[PIPED] = [len(self.effects)] * 2
        steps = [["r", records], self.seen(len(self.effects))]
        self.script.whole(FINAL_READER, "ok", "final", steps=steps, ends=ends)

    def probe(self) -> None:
        value = self.value()
        call = self.script.event(PROBER, "call", "txn", steps=[["w", "b:0", value]], probe=True)
        offset = len(self.logs["b:0"])
        self.logs["b:0"].append(value)
        self.mark("commit", [("b:0", value)])
        steps = [w("b:0", value, offset)]
        self.script.done("ok", call, steps=steps, end="commit", tc=call * MS + 1)
