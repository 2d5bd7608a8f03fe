"""Hand-written histories: at least three that show each anomaly, three that nearly do."""

import re

import pytest

from oncelog.check.anomaly import ALWAYS_NOTED, Name
from tests.check.script import MS, Script, r, w

A = "a:0"


def overlapping_sends(first: int, second: int) -> Script:
    """Process 1 has two sends under way at once; they end at these offsets."""
    script = Script()
    one = script.event(1, "call", "send", steps=[["w", A, 1]])
    two = script.event(1, "call", "send", steps=[["w", A, 2]])
    script.done("ok", two, steps=[w(A, 2, second)])
    return script.done("ok", one, steps=[w(A, 1, first)])


def overlapping_latest(first: int, second: int) -> Script:
    """Two processes ask for the end at the same time."""
    script = Script()
    one = script.event(1, "call", "latest")
    two = script.event(2, "call", "latest")
    script.done("ok", one, offsets={A: first})
    return script.done("ok", two, offsets={A: second})


def overlapping_commits(*, confirmed: int, other: int, kind: str, found: int | None) -> Script:
    """A commit is asked for and not answered before another is confirmed and read."""
    script = Script()
    slow = script.event(1, "call", "commit", group=["g", 1, {A: other}])
    script.commit(2, confirmed)
    if kind:
        script.done(kind, slow, group=["g", 1, {A: other}])
    return script.committed(3, found)


def overlapping_opens() -> Script:
    """Two processes open the same transactional id at the same time."""
    script = Script()
    one = script.event(1, "call", "open", tid="x")
    two = script.event(2, "call", "open", tid="x")
    return script.done("ok", one).done("ok", two)


def lost_call(process: int, part: str, value: int, offset: int | None) -> Script:
    """The writer's call line died with it; its completion was put together later."""
    script = Script().read(2, part, (0, value))
    script.event(process, "unknown", "send", ref=None, steps=[w(part, value, offset)])
    return script


def piped(*values: int, **run: object) -> Script:
    """Values were sent to a:0, from where the pipeline `p` takes them to b:0."""
    script = Script(pipes={"p": {"from": [A], "to": ["b:0"]}}, **run)
    return script.sent(1, A, *((value, offset) for offset, value in enumerate(values)))


def finished(script: Script, *effects: tuple[int, int, int]) -> Script:
    """The final read of the output finds (offset, value, batch); that of the input is left out."""
    return script.effects("b:0", *effects, op="final")


def marked(script: Script, end: str, part: str, offset: int, *values: int) -> Script:
    return script.note("marker", end=end, at={part: offset}, values=list(values))


def probed(kind: str, *, healed: bool = True, t: int | None = None, **fields: object) -> Script:
    """An operation made to see whether the broker works."""
    script = Script(heal_s=1)
    if healed:
        script.note("heal")
    call = script.event(1, "call", "txn", probe=True, steps=[["w", A, 1]])
    if kind:
        fields = {"end": "commit", "tc": 0} | fields
        script.done(kind, call, steps=[w(A, 1)], **fields, **({} if t is None else {"t": t}))
    return script


SHOWN: dict[str, list[Script]] = {
    "split-offset": [
        Script().sent(1, A, (1, 5)).sent(2, A, (2, 5)).read(3, A, (5, 1)),
        Script().sent(1, A, 1).sent(2, A, 2).read(3, A, (5, 1)).read(4, A, (5, 2)),
        Script().sent(1, A, (1, 5)).unsure(2, A, 2).read(3, A, (5, 2)),
        Script().unsure(1, A, (1, 5)).sent(2, A, (2, 5)).read(3, A, (5, 1)),
    ],
    "moved-value": [
        Script().sent(1, A, (1, 5)).read(2, A, (6, 1)),
        Script().sent(1, A, (1, 5)).final({A: [(4, 1)]}),
        Script().sent(1, A, (1, 5)).read(2, "b:0", (5, 1)),
        Script().unsure(1, A, (1, 5)).read(2, A, (6, 1)),
    ],
    "duplicate": [
        Script().sent(1, A, (1, 5)).read(2, A, (5, 1), (6, 1)),
        Script().sent(1, A, 1).read(2, A, (5, 1)).read(3, A, (9, 1)),
        Script().sent(1, A, (1, 5)).read(2, A, (5, 1)).read(2, "b:0", (5, 1)),
        Script().unsure(1, A, 1).final({A: [(0, 1), (7, 1)]}),
    ],
    "phantom": [
        Script().read(1, A, (0, 77)),
        Script().read(1, A, (0, 1)).sent(2, A, (1, 0)),
        Script().sent(1, A, (1, 0)).read(2, A, (0, 1), (1, None)),
        Script().unsure(1, A, 1).read(2, "b:0", (0, 1)),
    ],
    "lost-write": [
        Script().sent(1, A, (1, 0)).sent(2, A, (2, 1)).read(3, A, (1, 2)),
        Script().sent(1, A, (1, 0), (2, 1)).final({A: [(1, 2)]}),
        Script().sent(1, A, (1, 4)).sent(2, A, (2, 9)).read(3, A, (9, 2)).read(3, A),
        Script().sent(1, A, (1, 4)).sent(2, A, (2, 9)).call(3, "assign", at={A: 4}).read(3, A, (9, 2)),
    ],
    "unseen": [
        Script().sent(1, A, (1, 0)).final({A: []}),
        Script().sent(1, A, (1, 0), (2, 1)).final({A: [(0, 1)]}),
        Script().sent(1, A, 1).final({A: []}),
        Script().sent(1, A, (1, 0)).read(2, A, (0, 1)).final({A: []}),
        Script().unsure(1, A, 1).read(2, A, (0, 1)).final({A: []}),
    ],
    "aborted-read": [
        Script().txn(1, "A", w(A, 1)).read(2, A, (0, 1)),
        Script().refused(1, A, 1).read(2, A, (0, 1)),
        Script().refused(1, A, 1).final({A: [(0, 1)]}),
        Script(isolation="read_uncommitted").refused(1, A, 1).read(2, A, (0, 1)),
    ],
    "send-back": [
        Script().sent(1, A, (1, 5)).sent(1, A, (2, 4)),
        Script().sent(1, A, (1, 5), (2, 4)),
        Script().sent(1, A, 1).sent(1, A, 2).read(2, A, (0, 2), (1, 1)),
        overlapping_sends(5, 4),
        Script().sent(1, A, (1, 5)).refused(1, A, 2).sent(1, A, (3, 4)),
    ],
    "poll-skip": [
        Script().sent(1, A, (1, 1), (2, 2), (3, 3), (4, 4)).read(2, A, (1, 1), (2, 2)).read(2, A, (4, 4))
        .read(3, A, (3, 3)),
        Script().sent(1, A, 1, 2, 3).read(2, A, (0, 1)).read(2, A, (2, 3)).final({A: [(0, 1), (1, 2), (2, 3)]}),
        Script().unsure(1, A, 1, 2, 3).read(2, A, (0, 1)).read(2, A).read(2, A, (9, 3)).read(3, A, (5, 2), (9, 3)),
    ],
    "poll-back": [
        Script().sent(1, A, 1, 2).read(2, A, (0, 1), (1, 2)).read(2, A, (1, 2)),
        Script().sent(1, A, 1, 2).read(2, A, (0, 1), (1, 2)).read(2, A, (0, 1)),
        Script().sent(1, A, 1).read(2, A, (0, 1)).read(2, "b:0").read(2, A, (0, 1)),
    ],
    "inner-skip": [
        Script().sent(1, A, 1, 2, 3).read(2, A, (0, 1), (2, 3)).read(3, A, (1, 2)),
        Script().sent(1, A, 1, 2, 3).read(2, A, (0, 1), (1, 2), (2, 3)).final({A: [(0, 1), (2, 3)]}),
        Script().sent(1, A, (1, 0), (2, 1), (3, 2)).whole(2, "unknown", "poll", steps=[r(a0=[(0, 1), (2, 3)])])
        .read(4, A, (1, 2)),
    ],
    "inner-back": [
        Script().sent(1, A, 1, 2).read(2, A, (1, 2), (0, 1)),
        Script().sent(1, A, 1, 2).read(2, A, (0, 1), (1, 2), (1, 2)),
        Script().sent(1, A, 1, 2).whole(2, "ok", "poll", steps=[r(a0=[(0, 1), (1, 2)]), r(a0=[(0, 1)])]),
    ],
    "latest-back": [
        Script().latest(1, 5).latest(1, 4),
        Script().latest(1, 5).latest(2, 4),
        overlapping_latest(5, 7).latest(3, 6),
    ],
    "stale-offset": [
        Script().commit(1, 5).committed(2, 4),
        Script().commit(1, 5).committed(2, None),
        Script().commit(1, 3).commit(1, 5).committed(2, 3),
        Script().commit(1, 3, kind="unknown").commit(2, 5).committed(3, 2),
        overlapping_commits(confirmed=5, other=3, kind="fail", found=3),
    ],
    "stuck": [
        Script().sent(1, A, (1, 0)).final({A: [(0, 1)]}, ends={A: [1, 3]}),
        Script(parts=[A, "b:0"]).final({}, ends={A: [0, 0], "b:0": [0, 1]}),
        Script().final({}, ends={A: [4, 5]}, more=True),
        Script().note("heal").note("state", open_txns=["c7"]),
        Script().note("heal").note("state", groups={"g": "PreparingRebalance"}),
        probed(""),
        probed("unknown"),
        probed("fail", end="abort", err="PRODUCER_FENCED"),
        probed("ok", t=2_000_000_000),
    ],
    "torn": [
        Script().txn(1, "?", w(A, 1), w("b:0", 2)).final({A: [(0, 1)], "b:0": []}),
        Script().txn(1, "C", w(A, 1), w("b:0", 2)).final({A: [(0, 1)], "b:0": []}),
        Script().txn(1, "?", w(A, 1), w("b:0", 2)).read(2, "b:0", (0, 2)).final({A: [(0, 1)], "b:0": []}),
        # The values without the offsets, and the offsets without the values.
        Script().txn(1, "?", w("b:0", 1), group=["g", 1, {A: [0, 5]}]).note("heal").committed(2, None)
        .final({A: [], "b:0": [(0, 1)]}),
        Script().txn(1, "?", w("b:0", 1), group=["g", 1, {A: [0, 5]}]).note("heal").committed(2, 5)
        .final({A: [], "b:0": []}),
        Script().txn(1, "A", w("b:0", 1), group=["g", 1, {A: [0, 5]}])
        .txn(1, "C", w("b:0", 2), group=["g", 1, {A: [5, 9]}]).note("heal").committed(2, 9)
        .final({A: [], "b:0": [(1, 2)]}),
        # Offsets that were there before their transaction, or in spite of its abort.
        Script().txn(1, "C", w("b:0", 1), group=["g", 1, {A: [0, 5]}], tc=9 * MS).committed(2, 5),
        Script().txn(1, "A", w("b:0", 1), group=["g", 1, {A: [0, 5]}]).committed(2, 5),
    ],
    "zombie-write": [
        Script().whole(1, "ok", "open", tid="x").whole(2, "ok", "open", tid="x")
        .txn(1, "C", w(A, 1), tid="x").read(3, A, (0, 1)),
        Script().whole(2, "ok", "open", tid="x", id=[7, 3]).txn(1, "?", w(A, 1), tid="x", id=[7, 2])
        .final({A: [(0, 1)]}),
        Script().whole(2, "ok", "open", tid="x", id=[8, 0]).txn(1, "C", w(A, 1), tid="x", id=[7, 2])
        .final({A: [(0, 1)]}),
        # Without the transactional id: the producer id says who is meant.
        Script().whole(2, "ok", "open", id=[7, 3]).txn(1, "C", w(A, 1), id=[7, 2]).final({A: [(0, 1)]}),
        # A reply that came late does not make its epoch a newer one.
        Script().whole(2, "ok", "open", tid="x", id=[7, 3]).whole(1, "ok", "open", tid="x", id=[7, 2])
        .txn(1, "C", w(A, 1), tid="x", id=[7, 2]).final({A: [(0, 1)]}),
    ],
    "early-read": [
        Script().txn(1, "C", w(A, 1), tc=9 * MS).read(2, A, (0, 1)),
        Script().txn(1, "?", w(A, 1), tc=9 * MS).final({A: [(0, 1)]}),
        Script().txn(1, "?", w(A, 1), end=None, tc=None).read(2, A, (0, 1)),
    ],
    "own-read": [
        Script().txn(1, "C", w(A, 1, 0), r(a0=[(0, 1)])),
        Script().txn(1, "?", w(A, 1), r(a0=[(0, 1)])),
        Script().txn(1, "C", w(A, 1), w("b:0", 2), r(b0=[(0, 2)])),
    ],
    "overlap": [
        Script().txn(1, "C", group=["g", 1, {"b:0": [0, 5]}]).txn(2, "C", group=["g", 1, {"b:0": [4, 9]}]),
        Script().txn(1, "C", group=["g", 1, {A: [0, 9]}]).txn(2, "C", group=["g", 1, {A: [3, 4]}]),
        Script().txn(1, "C", group=["g", 1, {A: [0, 5]}]).txn(2, "?", w("b:0", 1), group=["g", 2, {A: [0, 5]}])
        .read(3, "b:0", (0, 1)),
    ],
    "hole": [
        Script().sent(9, A, (1, 5)).txn(1, "C", group=["g", 1, {A: [0, 5]}])
        .txn(1, "C", group=["g", 1, {A: [6, 9]}]),
        Script().sent(9, A, (1, 5)).txn(1, "C", group=["g", 1, {A: [6, 9]}])
        .txn(2, "C", group=["g", 1, {A: [0, 5]}]),
        Script().unsure(9, A, 1).read(8, A, (5, 1)).txn(1, "C", group=["g", 1, {A: [0, 3]}])
        .txn(1, "A", group=["g", 1, {A: [3, 6]}]).txn(1, "C", group=["g", 1, {A: [6, 9]}]),
    ],
    "read-cycle": [
        Script().together([w(A, 1), r(b0=[(0, 2)])], [w("b:0", 2), r(a0=[(0, 1)])]),
        Script().together([w(A, 1), r(c0=[(0, 3)])], [w("b:0", 2), r(a0=[(0, 1)])], [w("c:0", 3), r(b0=[(0, 2)])]),
        Script().together([w(A, 1), r(b0=[(0, 2)])], [w("b:0", 2), r(a0=[(0, 1)])], kind="unknown"),
    ],
    "mixed-cycle": [
        # 2 read from 1, and wrote right before it.
        Script().together([w(A, 1, 0), w("b:0", 2, 1)], [r(a0=[(0, 1)]), w("b:0", 3, 0)]),
        Script().together([w(A, 1, 0), w("b:0", 2, 1)], [r(a0=[(0, 1)]), w("c:0", 3, 0)],
                          [r(c0=[(0, 3)]), w("b:0", 4, 0)]),
        Script().together([w(A, 1, 0), w("c:0", 2, 1)], [w(A, 3, 1), w("b:0", 4, 0)],
                          [r(b0=[(0, 4)]), w("c:0", 5, 0)]),
    ],
    "write-cycle": [
        Script().together([w(A, 1, 0), w("b:0", 2, 1)], [w(A, 3, 1), w("b:0", 4, 0)]),
        Script().together([w(A, 1, 0), w("c:0", 2, 1)], [w(A, 3, 1), w("b:0", 4, 0)],
                          [w("b:0", 5, 1), w("c:0", 6, 0)]),
        Script().together([w(A, 1), w("b:0", 2)], [w(A, 3), w("b:0", 4)])
        .final({A: [(0, 1), (1, 3)], "b:0": [(0, 4), (1, 2)]}),
    ],
    "send-gap": [
        Script().together([w(A, 1, 0), w(A, 2, 2)], [w(A, 3, 1)]),
        Script().together([w(A, 1), w(A, 2)], [w(A, 3)]).read(3, A, (4, 1), (6, 3), (7, 2)),
        Script().txn(1, "C", w(A, 1, 0), w(A, 2, 9)).sent(2, A, (3, 5)),
    ],
    "decision-flip": [
        marked(Script().txn(1, "C", w(A, 1, 0)), "abort", A, 1, 1),
        marked(Script().txn(1, "A", w(A, 1, 0)), "commit", A, 1, 1),
        marked(marked(Script().txn(1, "?", w(A, 1), w("b:0", 2)), "commit", A, 1, 1), "abort", "b:0", 1, 2),
        marked(Script().txn(1, "?", w(A, 1)).read(2, A, (0, 1)), "abort", A, 1, 1),
    ],
    "effect-lost": [
        finished(piped(1, 2), (0, 1, 0)),
        finished(piped(1, 2).effects("b:0", (0, 1, 0), (1, 2, 0))),
        finished(Script(pipes={"p": {"from": [A], "to": ["b:0"]}}).unsure(1, A, 1).read(2, A, (0, 1))),
    ],
    "effect-twice": [
        finished(piped(1), (0, 1, 0), (1, 1, 0)),
        finished(piped(1).effects("b:0", (0, 1, 0)), (5, 1, 0)),
        finished(piped(1), (0, 1, 0), (3, 1, 1)),
    ],
    "effect-foreign": [
        finished(piped(1), (0, 1, 0), (1, 77, 0)),
        finished(piped(1).txn(2, "A", w(A, 2)), (0, 1, 0), (1, 2, 0)),
        finished(piped(1).sent(2, "c:0", (2, 0)), (0, 1, 0), (1, 2, 0)),
        piped().effects("b:0", (0, 5, 0)).sent(1, A, 5),
        finished(piped().unsure(1, A, 5).final({A: []}, ends={A: [0, 0]}), (0, 5, 0)),
    ],
    "batch-torn": [
        finished(piped(1, 2).note("batch", pipe="p", batch=4, values=[1, 2]), (0, 1, 4)),
        finished(piped(1, 2).note("batch", pipe="p", batch=4, values=[1, 2]).effects("b:0", (0, 1, 4))),
        finished(piped(1, 2).effects("b:0", (0, 1, 4), (1, 2, 4)), (0, 1, 4), (1, 2, 5)),
    ],
}  # fmt: skip

NEARLY: dict[str, list[Script]] = {
    "split-offset": [
        # The place of a send that is not proven may rightly be given to another.
        Script().unsure(1, A, (1, 5)).sent(2, A, (2, 5)).read(3, A, (5, 2)),
        Script().sent(1, A, (1, 5)).sent(1, "b:0", (2, 5)),
        Script().sent(1, A, (1, 5)).read(2, A, (5, 1)).read(3, A, (5, 1)),
        Script().refused(1, A, (1, 5)).sent(2, A, (2, 5)),
    ],
    "moved-value": [
        Script().sent(1, A, (1, 5)).read(2, A, (5, 1)),
        Script().sent(1, A, 1).read(2, A, (6, 1)),
        Script().sent(1, A, (1, 5)),
    ],
    "duplicate": [
        Script().sent(1, A, (1, 5)).read(2, A, (5, 1)).read(3, A, (5, 1)),
        Script().sent(1, A, (1, 5)).read(2, A, (5, 1)).call(2, "seek", at={A: 5}).read(2, A, (5, 1)),
        Script().sent(1, A, (1, 5)).read(2, A, (5, 1)).final({A: [(5, 1)]}),
    ],
    "phantom": [
        lost_call(1, A, 1, None),
        lost_call(1, A, 1, 0),
        Script().unsure(1, A, 1).read(2, A, (0, 1)),
        Script().call(1, "send", steps=[["w", A, 1]]).read(2, A, (0, 1)),
    ],
    "lost-write": [
        Script().unsure(1, A, (1, 0)).sent(2, A, (2, 1)).read(3, A, (1, 2)),
        Script().sent(1, A, (1, 5)).sent(2, A, (2, 4)).read(3, A, (4, 2)),
        Script().sent(1, A, (1, 0)).sent(2, A, (2, 1)).read(3, A, (1, 2)).read(4, A, (0, 1)),
        Script().sent(1, A, (1, 0)).sent(2, A, (2, 1)).call(3, "assign", at={A: 1}).read(3, A, (1, 2)),
        Script().sent(1, A, (1, 0)).sent(2, A, (2, 1)).note("heal", starts={A: 1}).read(3, A, (1, 2)),
        Script().sent(1, A, (1, 0)).sent(2, "b:0", (2, 1)).read(3, "b:0", (1, 2)),
    ],
    "unseen": [
        Script().unsure(1, A, 1).final({A: []}),
        Script().sent(1, A, (1, 0)).final({"b:0": []}, ends={"b:0": [0, 0]}),
        Script().sent(1, A, (1, 0)).final({A: []}, more=True),
        Script().sent(1, A, (1, 0)),
        Script().sent(1, A, (1, 0)).final({A: []}, starts={A: 1}),
        # Plain sends are no transaction: the value that was seen does not prove its neighbour.
        Script().unsure(1, A, 1, 2).final({A: [(0, 1)]}),
    ],
    "aborted-read": [
        Script().txn(1, "A", w(A, 1)).read(2, A),
        Script().txn(1, "?", w(A, 1)).read(2, A, (0, 1)),
        Script(isolation="read_uncommitted").txn(1, "A", w(A, 1)).read(2, A, (0, 1)),
        Script().unsure(1, A, 1).read(2, A, (0, 1)),
    ],
    "send-back": [
        Script().sent(1, A, (1, 5)).sent(2, A, (2, 4)),
        Script().sent(1, A, (1, 5)).sent(1, "b:0", (2, 4)),
        Script().sent(1, A, (1, 5)).unsure(1, A, (2, 4)),
        overlapping_sends(4, 5),
        Script().sent(1, A, (1, 5)).refused(1, A, (2, 4)),
    ],
    "poll-skip": [
        Script().sent(1, A, (1, 1), (4, 4)).read(2, A, (1, 1)).read(2, A, (4, 4)),
        Script().sent(1, A, 1, 2, 3).read(2, A, (0, 1)).call(2, "seek", at={A: 2}).read(2, A, (2, 3))
        .read(3, A, (1, 2)),
        Script().sent(1, A, 1, 2, 3).read(2, A, (0, 1)).note("crash", process=2).read(2, A, (2, 3))
        .read(3, A, (1, 2)),
        Script(mode="subscribe").sent(1, A, 1, 2, 3).read(2, A, (0, 1)).read(2, A, (2, 3), moved=[A])
        .read(3, A, (1, 2)),
        Script(mode="subscribe").sent(1, A, 1, 2, 3).read(2, A, (0, 1), moved=[A]).read(2, A, (2, 3))
        .read(3, A, (1, 2)),
        Script().unsure(1, A, (1, 0), (2, 1), (3, 2)).read(2, A, (0, 1)).read(2, A, (2, 3)),
        # A transaction that did not commit is read again from where it began.
        Script().sent(1, A, 1, 2, 3).read(2, A, (0, 1)).txn(2, "A", r(a0=[(1, 2)])).read(2, A, (1, 2), (2, 3)),
    ],
    "poll-back": [
        Script().sent(1, A, 1, 2).read(2, A, (0, 1), (1, 2)).read(3, A, (0, 1)),
        Script().sent(1, A, 1, 2).read(2, A, (0, 1), (1, 2)).call(2, "assign").read(2, A, (0, 1)),
        Script().sent(1, A, 1).sent(1, "b:0", 2).read(2, A, (5, 1)).read(2, "b:0", (0, 2)),
        Script(mode="subscribe").sent(1, A, 1, 2).read(2, A, (0, 1)).read(2, "b:0", moved=[A]).read(2, A, (0, 1)),
    ],
    "inner-skip": [
        Script().sent(1, A, 1, 3).read(2, A, (0, 1), (2, 3)),
        Script().sent(1, A, 1, 2, 3).read(2, A, (0, 1), (2, 3), moved=[A]).read(3, A, (1, 2)),
        Script().sent(1, A, 1, 3).sent(1, "b:0", 2).read(2, A, (0, 1), (2, 3)).read(3, "b:0", (1, 2)),
    ],
    "inner-back": [
        Script().sent(1, A, 1, 2).read(2, A, (0, 1), (1, 2)),
        Script().sent(1, A, 1, 2).read(2, A, (1, 2), (0, 1), moved=[A]),
        Script().sent(1, A, 1).sent(1, "b:0", 2).whole(2, "ok", "poll", steps=[r(a0=[(1, 1)], b0=[(0, 2)])]),
    ],
    "latest-back": [
        Script().latest(1, 5).latest(1, 5),
        overlapping_latest(5, 4),
        Script().latest(1, 5).latest(1, 4, part="b:0"),
    ],
    "stale-offset": [
        Script().commit(1, 5).committed(2, 5),
        Script().commit(1, 5).commit(1, 4).committed(2, 4),
        Script().commit(1, 5).committed(2, 4, group="other"),
        Script().commit(1, 4, kind="unknown").commit(2, 5).committed(3, 4),
        Script().commit(1, 5, kind="fail").committed(2, 4),
        overlapping_commits(confirmed=5, other=3, kind="ok", found=3),
        overlapping_commits(confirmed=5, other=3, kind="", found=3),
        Script().committed(2, None).commit(1, 5),
    ],
    "stuck": [
        Script().sent(1, A, (1, 0)).final({A: [(0, 1)]}, ends={A: [1, 1]}),
        Script().final({}, ends={A: [2, 3]}, more=True).final({}, ends={A: [3, 3]}),
        Script().final({}),
        Script().note("state", open_txns=["c7"]).note("heal").note("state", groups={"g": "Stable", "h": "EMPTY"}),
        probed("ok"),
        probed("unknown", healed=False),
    ],
    "torn": [
        Script().txn(1, "?", w(A, 1), w("b:0", 2)).final({A: [], "b:0": []}),
        Script().txn(1, "?", w(A, 1), w("b:0", 2)).final({A: [(0, 1)], "b:0": [(0, 2)]}),
        Script().txn(1, "?", w(A, 1), w("b:0", 2)).read(2, A, (0, 1)),
        Script().txn(1, "?", w("b:0", 1), group=["g", 1, {A: [0, 5]}]).note("heal").committed(2, 5)
        .final({A: [], "b:0": [(0, 1)]}),
        Script().txn(1, "?", w("b:0", 1), group=["g", 1, {A: [0, 5]}]).note("heal").committed(2, None)
        .final({A: [], "b:0": []}),
        # Another transaction consumed the same again.
        Script().txn(1, "A", w("b:0", 1), group=["g", 1, {A: [0, 5]}])
        .txn(2, "C", w("b:0", 2), group=["g", 1, {A: [0, 9]}]).note("heal").committed(3, 9)
        .final({A: [], "b:0": [(1, 2)]}),
        # Somebody set the offset by hand, or asked before all was over.
        Script().txn(1, "?", w("b:0", 1), group=["g", 1, {A: [0, 5]}]).commit(2, 5).note("heal")
        .committed(3, 5).final({A: [], "b:0": []}),
        Script().txn(1, "?", w("b:0", 1), group=["g", 1, {A: [0, 5]}]).committed(2, None).note("heal")
        .final({A: [], "b:0": [(0, 1)]}),
        Script().txn(1, "A", w("b:0", 1), group=["g", 1, {A: [0, 5]}])
        .txn(2, "C", w("b:0", 2), group=["g", 1, {A: [0, 5]}]).committed(3, 5),
        Script().txn(1, "A", w("b:0", 1), group=["g", 1, {A: [2, 5]}]).committed(3, 2),
    ],
    "zombie-write": [
        # The newer one came after the commit was asked for, or is the same one.
        Script().whole(1, "ok", "open", tid="x").txn(1, "?", w(A, 1), tid="x")
        .whole(2, "ok", "open", tid="x").final({A: [(0, 1)]}),
        Script().whole(1, "ok", "open", tid="x").whole(1, "ok", "open", tid="x")
        .txn(1, "C", w(A, 1), tid="x").read(3, A, (0, 1)),
        Script().whole(1, "ok", "open", tid="x").whole(2, "ok", "open", tid="y")
        .txn(1, "C", w(A, 1), tid="x").read(3, A, (0, 1)),
        # Nothing of the zombie was read.
        Script().whole(1, "ok", "open", tid="x").whole(2, "ok", "open", tid="x")
        .txn(1, "?", w(A, 1), tid="x").final({A: []}),
        # Asked for at the same time: who was first is not known without epochs, and known with them.
        overlapping_opens().txn(1, "C", w(A, 1), tid="x").read(3, A, (0, 1)),
        Script().whole(2, "ok", "open", tid="x", id=[7, 2]).txn(1, "C", w(A, 1), tid="x", id=[7, 3])
        .read(3, A, (0, 1)),
        Script().whole(2, "ok", "open", id=[8, 3]).txn(1, "C", w(A, 1), id=[7, 2]).final({A: [(0, 1)]}),
    ],
    "early-read": [
        Script().txn(1, "C", w(A, 1)).read(2, A, (0, 1)),
        Script(isolation="read_uncommitted").txn(1, "C", w(A, 1), tc=9 * MS).read(2, A, (0, 1)),
        # What died with its process may well have asked.
        Script().call(1, "txn", steps=[["w", A, 1]]).read(2, A, (0, 1)),
    ],
    "own-read": [
        Script().txn(1, "C", w(A, 1, 0), r(a0=[])),
        Script().txn(1, "C", w(A, 1, 0)).txn(1, "C", r(a0=[(0, 1)])),
        Script(isolation="read_uncommitted").txn(1, "C", w(A, 1, 0), r(a0=[(0, 1)])),
    ],
    "overlap": [
        Script().txn(1, "C", group=["g", 1, {A: [0, 5]}]).txn(2, "C", group=["g", 1, {A: [5, 9]}]),
        Script().txn(1, "C", group=["g", 1, {A: [0, 5]}]).txn(2, "C", group=["h", 1, {A: [4, 9]}]),
        Script().txn(1, "A", group=["g", 1, {A: [0, 5]}]).txn(2, "C", group=["g", 1, {A: [0, 9]}]),
        Script().txn(1, "?", w(A, 1), group=["g", 1, {A: [0, 5]}]).txn(2, "C", group=["g", 1, {A: [0, 9]}]),
    ],
    "hole": [
        Script().txn(1, "C", group=["g", 1, {A: [0, 5]}]).txn(2, "C", group=["g", 1, {A: [7, 9]}]),
        Script().sent(9, A, (1, 5)).txn(1, "C", group=["g", 1, {A: [0, 5]}])
        .txn(2, "?", group=["g", 1, {A: [5, 6]}]).txn(3, "C", group=["g", 1, {A: [6, 9]}]),
        Script().sent(9, A, (1, 9)).txn(1, "C", group=["g", 1, {A: [0, 5]}])
        .txn(2, "C", group=["g", 1, {A: [5, 9]}]),
    ],
    "read-cycle": [
        Script().together([w(A, 1), r(b0=[(0, 2)])], [w("b:0", 2), r(a0=[])]),
        # One of both did not commit, or nobody knows.
        Script().txn(1, "C", w(A, 1)).txn(2, "A", w("b:0", 2), r(a0=[(0, 1)])),
        Script().together([w(A, 1), r(c0=[])], [w("b:0", 2), r(a0=[(0, 1)])], [w("c:0", 3), r(b0=[(0, 2)])]),
    ],
    "mixed-cycle": [
        Script().together([w(A, 1, 0), w("b:0", 2, 0)], [r(a0=[(0, 1)]), w("b:0", 3, 1)]),
        Script().together([w(A, 1, 0), w("b:0", 2, 1)], [w("b:0", 3, 0)], [r(a0=[(0, 1)])]),
        Script().txn(1, "C", w(A, 1, 0)).txn(2, "C", r(a0=[(0, 1)]), w(A, 2, 2)).txn(1, "C", w(A, 3, 4)),
    ],
    "write-cycle": [
        Script().together([w(A, 1, 0), w("b:0", 2, 0)], [w(A, 3, 1), w("b:0", 4, 1)]),
        Script().together([w(A, 1, 0), w("b:0", 2, 5)], [w(A, 3, 1), w("c:0", 4, 0)]),
        # Two transactions of one process are not one.
        Script().txn(1, "C", w(A, 1, 0)).txn(2, "C", w(A, 2, 1)).txn(1, "C", w(A, 3, 2)),
    ],
    "send-gap": [
        Script().together([w(A, 1, 0), w(A, 2, 1)], [w(A, 3, 2)]),
        # What stands between is a marker or aborted, in another partition, or never proven.
        Script().txn(1, "C", w(A, 1, 0), w(A, 2, 4)).txn(2, "A", w(A, 3, 2)),
        Script().txn(1, "C", w(A, 1, 0), w("b:0", 2, 2)).txn(2, "C", w(A, 3, 1)),
        Script().txn(1, "C", w(A, 1, 0), w(A, 2, 2)).unsure(2, A, (3, 1)),
    ],
    "decision-flip": [
        marked(Script().txn(1, "C", w(A, 1, 0)), "commit", A, 1, 1),
        marked(Script().txn(1, "A", w(A, 1, 0)), "abort", A, 1, 1),
        marked(marked(Script().txn(1, "?", w(A, 1), w("b:0", 2)), "abort", A, 1, 1), "abort", "b:0", 1, 2),
        marked(Script().txn(1, "?", w(A, 1)).read(2, A, (0, 1)), "commit", A, 1, 1),
        # The marker of somebody else's transaction.
        marked(Script().txn(1, "C", w(A, 1, 0)), "abort", A, 1, 2),
    ],
    "effect-lost": [
        finished(piped(1, 2), (0, 2, 0), (1, 1, 0)),
        # Not committed, not of the input, or not yet at its end.
        finished(piped(1).txn(2, "A", w(A, 2)).unsure(3, A, 3).sent(4, "c:0", 4), (0, 1, 0)),
        piped(1, 2).effects("b:0", (0, 1, 0)),
        finished(piped(1, 2).note("heal", starts={A: 1}), (0, 2, 0)),
    ],
    "effect-twice": [
        finished(piped(1).effects("b:0", (0, 1, 0)).effects("b:0", (0, 1, 0)), (0, 1, 0)),
        finished(piped(1, 2), (0, 1, 0), (1, 2, 0)),
        # One record may stand for several: a sum, say.
        piped(1, 2).whole(9, "ok", "final", steps=[["e", {"b:0": [[0, [1, 2]]]}]], ends={"b:0": [1, 1]}),
    ],
    "effect-foreign": [
        finished(piped(1).unsure(2, A, 2), (0, 1, 0), (1, 2, 0)),
        finished(piped(1).txn(2, "?", w(A, 2)), (0, 1, 0), (1, 2, 0)),
        finished(piped().unsure(1, A, 5).final({A: [(0, 5)]}, ends={A: [1, 1]}), (0, 5, 0)),
    ],
    "batch-torn": [
        finished(piped(1, 2).note("batch", pipe="p", batch=4, values=[1, 2]), (0, 1, 4), (1, 2, 4)),
        # A reader sees one half a moment before the other.
        finished(piped(1, 2).effects("b:0", (0, 1, 4)).effects("b:0", (1, 2, 4)), (0, 1, 4), (1, 2, 4)),
        # Given up before anybody saw it, and done again as another.
        finished(piped(1, 2).note("batch", pipe="p", batch=4, values=[1, 2]), (0, 1, 5), (1, 2, 5)),
        piped(1, 2).note("batch", pipe="p", batch=4, values=[1, 2]).effects("b:0", (0, 1, 4)),
    ],
}  # fmt: skip

# A final read that skips a value also lacks it.
ALSO = {"inner-skip": {"unseen"}, "send-gap": {"write-cycle"}}


def numbered(table: dict[str, list[Script]]) -> list[object]:
    return [
        pytest.param(name, script, id=f"{name}-{index}")
        for name, scripts in table.items()
        for index, script in enumerate(scripts)
    ]


@pytest.mark.parametrize(("name", "script"), numbered(SHOWN))
def test_an_anomaly_is_named(name: str, script: Script) -> None:
    report = script.judge()

    assert name in report.names
    assert report.names <= {name} | ALSO.get(name, set())
    assert report.verdict == ("valid" if name in ALWAYS_NOTED else "invalid")


@pytest.mark.parametrize(("name", "script"), numbered(NEARLY))
def test_what_is_nearly_an_anomaly_is_not_named(name: str, script: Script) -> None:
    report = script.judge()

    assert report.names == set()
    assert report.verdict == "valid"


@pytest.mark.parametrize(("name", "script"), numbered(SHOWN))
def test_every_anomaly_is_explained(name: str, script: Script) -> None:
    """The sentence names what the data name: values, where they stand, and events to look at."""
    (finding,) = [found for found in script.judge().findings if found.name == name]

    for anomaly in finding.examples:
        numbers = {int(number) for number in re.findall(r"\d+", anomaly.text)}
        assert set(anomaly.values) <= numbers
        assert {place.offset for place in anomaly.places} <= numbers
        assert all(place.part in anomaly.text for place in anomaly.places)
        assert anomaly.events
        assert set(anomaly.events) & numbers


def test_every_anomaly_has_three_histories_that_show_it_and_three_that_nearly_do() -> None:
    assert set(SHOWN) == set(NEARLY) == {name.value for name in Name}
    assert min(map(len, SHOWN.values())) >= 3
    assert min(map(len, NEARLY.values())) >= 3


#: The table of smallest examples: history and the name it must be given.
SMALLEST: list[tuple[Script, str]] = [
    (Script().sent(1, A, (1, 5)).sent(2, A, (2, 5)).read(3, A, (5, 1)), "split-offset"),
    (Script().txn(1, "C", w(A, 1, 5)).txn(2, "C", w(A, 2, 5)).read(3, A, (5, 1)), "split-offset"),
    (Script().sent(1, A, (1, 0)).sent(2, A, (2, 1)).read(3, A, (1, 2)), "lost-write"),
    (Script().txn(1, "C", w(A, 1, 0)).txn(2, "C", w(A, 2, 1)).read(3, A, (1, 2)), "lost-write"),
    (Script().txn(1, "?", w(A, 1), w("b:0", 2)).final({A: [(0, 1)], "b:0": []}), "torn"),
    (Script().txn(1, "A", w(A, 1)).read(2, A, (0, 1)), "aborted-read"),
    (
        Script().together([w(A, 1), r(b0=[(0, 2)])], [w("b:0", 2), r(a0=[(0, 1)])]),
        "read-cycle",
    ),
    (
        Script().sent(1, A, (1, 1), (2, 2), (3, 3), (4, 4)).read(2, A, (1, 1), (2, 2)).read(2, A, (4, 4)),
        "poll-skip",
    ),
    (
        Script()
        .txn(1, "C", group=["g", 1, {"b:0": [0, 5]}])
        .txn(2, "C", group=["g", 1, {"b:0": [4, 9]}]),
        "overlap",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("script", "name"), SMALLEST)
def test_the_smallest_example_is_named(script: Script, name: str) -> None:
    assert name in script.judge().names


def test_an_unknown_send_that_nothing_reads_is_legal() -> None:
    assert Script().unsure(1, A, 1).judge().verdict == "valid"


def test_a_plain_producer_may_repeat_and_reorder() -> None:
    script = Script(idempotent=False).sent(1, A, 1, 2).read(2, A, (0, 2), (1, 1), (2, 1))

    report = script.judge()

    assert report.names == {"duplicate"}
    assert report.verdict == "valid"


def test_one_plain_send_may_repeat_in_a_run_of_idempotent_ones() -> None:
    script = Script()
    ref = script.event(1, "call", "send", steps=[["w", A, 1]], idempotent=False)
    script.done("ok", ref, steps=[w(A, 1)]).read(2, A, (0, 1), (1, 1))

    assert script.judge().verdict == "valid"


def test_without_acks_a_loss_is_only_noted() -> None:
    report = Script(acks=1).sent(1, A, (1, 0)).final({A: []}).judge()

    assert report.names == {"unseen"}
    assert report.verdict == "valid"


def test_an_explanation_names_values_events_and_places() -> None:
    report = Script().sent(1, A, (71, 0)).sent(2, A, (72, 1)).read(3, A, (1, 72)).judge()

    (finding,) = report.findings
    (anomaly,) = finding.examples
    assert anomaly.values == (71,)
    assert anomaly.events == (1, 5)
    assert [str(place) for place in anomaly.places] == ["a:0@0"]
    assert anomaly.text == (
        "value 71 was acknowledged at a:0@0 by event 1; event 5 read up to a:0@1, and no read "
        "returned the value"
    )


def test_of_a_cycle_the_shortest_is_told() -> None:
    """Three read from each other in a circle, and two of them also directly."""
    script = Script().together(
        [w(A, 1), r(b0=[(0, 2)], c0=[(0, 3)])],
        [w("b:0", 2), r(a0=[(0, 1)])],
        [w("c:0", 3), r(b0=[(0, 2)])],
    )

    (finding,) = script.judge().findings

    (anomaly,) = finding.examples
    assert anomaly.text == (
        "the transaction of events 1, 4 read value 1 at a:0@0 of that of events 0, 3, and the "
        "transaction of events 0, 3 read value 2 at b:0@0 of that of events 1, 4"
    )
    assert (anomaly.values, anomaly.events) == ((1, 2), (0, 3, 1, 4))
    assert [str(place) for place in anomaly.places] == ["a:0@0", "b:0@0"]


def test_a_cycle_may_run_through_more_transactions_than_python_would_recurse() -> None:
    count = 1_200
    script = Script().together(
        *(
            [w(f"a:{i}", i), r(**{f"a{(i - 1) % count}": [(0, (i - 1) % count)]})]
            for i in range(count)
        )
    )

    (finding,) = script.judge().findings

    assert finding.name == "read-cycle"
    assert len(finding.examples[0].values) == count


def test_a_cycle_of_reads_of_what_is_not_committed_is_only_noted() -> None:
    script = Script(isolation="read_uncommitted")
    script.together([w(A, 1), r(b0=[(0, 2)])], [w("b:0", 2), r(a0=[(0, 1)])])

    report = script.judge()

    assert report.names == {"read-cycle"}
    assert report.verdict == "valid"
