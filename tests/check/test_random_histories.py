"""Correct histories are never flagged; with one thing changed for the worse, they always are."""

import functools
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.check.anomaly import ALWAYS_NOTED
from tests.check.model import LAST_READER, Model
from tests.check.script import Script

SEEDS = range(100)
FEWER_SEEDS = range(40)  # of each mutation
Line = dict[str, Any]  # Any: lines of JSON, which these tests take apart


@pytest.mark.parametrize("txn", [False, True], ids=["sends", "transactions"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_correct_history_is_not_flagged(seed: int, txn: bool) -> None:
    report = Model(seed, txn=txn).script.judge()

    assert report.names <= ALWAYS_NOTED


@functools.cache
def correct_history(seed: int, *, txn: bool) -> list[str]:
    return Model(seed, txn=txn).script.text()


# --- mutations: each changes one thing and says under which names it may be found ---------------


def drop_from_final(lines: list[Line], rng: random.Random) -> set[str] | None:
    """The log forgot a record that was acknowledged or seen."""
    found = [(records, at) for line in finals(lines) for records, at in records_of(line)]
    proven = acknowledged(lines) | polled(lines)
    found = [(records, at) for records, at in found if records[at][1] in proven]
    if not found:
        return None
    records, at = rng.choice(found)
    del records[at]
    return {"unseen", "lost-write", "torn"}


def drop_inside_poll(lines: list[Line], rng: random.Random) -> set[str] | None:
    """A consumer was not handed a record, but was handed its neighbours."""
    found = [
        (records, at)
        for line in polls(lines)
        for records, at in records_of(line)
        if 0 < at < len(records) - 1
    ]
    if not found:
        return None
    records, at = rng.choice(found)
    del records[at]
    return {"inner-skip"}


def drop_between_polls(lines: list[Line], rng: random.Random) -> set[str] | None:
    """A reader lost the first record of a fetch, and had the one before and the one after."""
    last: dict[str, int] = {}
    found: list[list[Any]] = []
    proven = acknowledged(lines) | polled(lines)
    for line in finals(lines):
        for step in line.get("steps", []):
            for part, chunk in step[1].items():
                if len(chunk) > 1 and part in last and chunk[0][1] in proven:
                    found.append(chunk)
                if chunk:
                    last[part] = chunk[-1][0]
    if not found:
        return None
    chunk = rng.choice(found)
    offset, value = chunk.pop(0)
    is_known = value in polled(lines) or any((value, offset) in acks(line) for line in lines)
    return {"poll-skip"} if is_known else {"unseen", "torn"}


def repeat_in_final(lines: list[Line], rng: random.Random) -> set[str] | None:
    """A retry was appended a second time."""
    chunks = [chunk for line in finals(lines) for chunk in chunks_of(line) if chunk]
    if not chunks:
        return None
    chunk = rng.choice(chunks)
    chunk.append([10_000, rng.choice(chunk)[1]])
    return {"duplicate"}


def repeat_in_poll(lines: list[Line], rng: random.Random) -> set[str] | None:
    """A consumer was handed one record twice."""
    found = [(records, at) for line in polls(lines) for records, at in records_of(line)]
    if not found:
        return None
    records, at = rng.choice(found)
    records.insert(at, records[at])
    return {"inner-back"}


def swap_in_poll(lines: list[Line], rng: random.Random) -> set[str] | None:
    """Two records were handed over in the wrong order."""
    found = [
        (records, at)
        for line in polls(lines)
        for records, at in records_of(line)
        if at + 1 < len(records)
    ]
    if not found:
        return None
    records, at = rng.choice(found)
    records[at], records[at + 1] = records[at + 1], records[at]
    return {"inner-back"}


def swap_values_in_poll(lines: list[Line], rng: random.Random) -> set[str] | None:
    """Two readers disagree on what stands where."""
    found = [
        (records, at)
        for line in polls(lines)
        for records, at in records_of(line)
        if at + 1 < len(records)
    ]
    if not found:
        return None
    records, at = rng.choice(found)
    (low, first), (high, second) = records[at], records[at + 1]
    records[at], records[at + 1] = [low, second], [high, first]
    return {"split-offset"}


def swap_sends(lines: list[Line], rng: random.Random) -> set[str] | None:
    """Two records of one operation stand in the reverse order, for everyone."""
    seen = polled(finals(lines))
    pairs: list[tuple[int, int]] = []
    for line in lines:
        if line["e"] == "call" and line["op"] in ("send", "txn"):
            last: dict[str, int] = {}
            for _, part, value in line["steps"]:
                if part in last and {value, last[part]} <= seen:
                    pairs.append((last[part], value))
                last[part] = value
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    swapped = {first: second, second: first}
    for line in lines:
        for step in line.get("steps", []):
            if step[0] == "r" and len(step) > 1:
                for records in step[1].values():
                    for record in records:
                        record[1] = swapped.get(record[1], record[1])
            elif len(step) == 4 and step[2] in swapped:
                step[3] = None  # an acknowledgement would give it away as moved
    return {"send-back"}


def move_in_final(lines: list[Line], rng: random.Random) -> set[str] | None:
    """A record changed its offset."""
    seen = polled(lines)
    acked = {value for line in lines for value, offset in acks(line) if offset is not None}
    found = [
        (chunk, chunk[-1][1] in seen)
        for line in finals(lines)
        for chunk in chunks_of(line)
        if chunk and chunk[-1][1] in seen | acked
    ]
    if not found:
        return None
    chunk, was_polled = rng.choice(found)
    chunk[-1] = [10_000, chunk[-1][1]]
    return {"duplicate"} if was_polled else {"moved-value"}


def move_ack(lines: list[Line], rng: random.Random) -> set[str] | None:
    """An acknowledgement named a wrong offset."""
    found = [
        step
        for line in lines
        if line["e"] == "ok"
        for step in line.get("steps", [])
        if len(step) == 4 and step[3] is not None
    ]
    if not found:
        return None
    rng.choice(found)[3] += 10_000
    return {"moved-value"}


def unsend(lines: list[Line], rng: random.Random) -> set[str] | None:
    """What was refused is there."""
    found = [line for line in lines if line["e"] == "ok" and line["op"] in ("send", "txn")]
    if not found:
        return None
    rng.choice(found)["e"] = "fail"
    return {"aborted-read"}


def confirm_what_failed(lines: list[Line], rng: random.Random) -> set[str] | None:
    """What was confirmed is not there."""
    found = [line for line in lines if line["e"] == "fail" and line["op"] in ("send", "txn")]
    if not found:
        return None
    line = rng.choice(found)
    line["e"] = "ok"
    if line["op"] == "txn":
        line["end"] = "commit"
    for step in line["steps"]:
        step[3] = None
    return {"unseen"}


def confirm_what_was_lost(lines: list[Line], rng: random.Random) -> set[str] | None:
    """An unknown send that did not make it had been acknowledged after all."""
    there = polled(finals(lines))
    found = [
        line
        for line in lines
        if line["e"] == "unknown" and line["op"] in ("send", "txn")
        if not any(step[2] in there for step in line["steps"])
    ]
    if not found:
        return None
    rng.choice(found)["e"] = "ok"
    return {"unseen", "lost-write"}


def tear(lines: list[Line], rng: random.Random) -> set[str] | None:
    """One partition forgot its part of a transaction."""
    found = [
        {value for value, _ in acks(line)}
        for line in lines
        if line["op"] == "txn" and line["e"] == "ok" and len(line["steps"]) > 1
    ]
    if not found:
        return None
    lost = rng.choice(sorted(rng.choice(found)))
    for line in lines:
        for chunk in chunks_of(line):
            chunk[:] = [record for record in chunk if record[1] != lost]
    return {"torn"}


def invent(lines: list[Line], rng: random.Random) -> set[str] | None:
    """A reader was handed something that nobody sent."""
    found = [(records, at) for line in polls(lines) for records, at in records_of(line)]
    if not found:
        return None
    records, at = rng.choice(found)
    records[at] = [records[at][0], rng.choice([None, 999_999])]
    return {"phantom"}


def forget_commit(lines: list[Line], rng: random.Random) -> set[str] | None:
    """A group was sent back behind an offset whose commit was confirmed."""
    found = [
        (line["group"][2], part)
        for line in lines
        if line["op"] == "committed" and line["e"] == "ok"
        for part, offset in line["group"][2].items()
        # At the call, not at the completion: a commit during the read binds it to nothing.
        if offset and offset == bound(lines, line["ref"], part)
    ]
    if not found:
        return None
    offsets, part = rng.choice(found)
    offsets[part] = rng.choice([None, offsets[part] - 1])
    return {"stale-offset"}


def shrink_latest(lines: list[Line], rng: random.Random) -> set[str] | None:
    """The end of a partition went back."""
    reads = [line for line in lines if line["op"] == "latest" and line["e"] == "ok"]
    found = [
        (line["offsets"], part, before["offsets"][part])
        for before, line in itertools.pairwise(reads)
        for part in line["offsets"]
        if before["offsets"][part]
    ]
    if not found:
        return None
    offsets, part, known = rng.choice(found)
    offsets[part] = known - 1
    return {"latest-back"}


MUTATIONS: list[Callable[[list[Line], random.Random], set[str] | None]] = [
    drop_from_final,
    drop_inside_poll,
    drop_between_polls,
    repeat_in_final,
    repeat_in_poll,
    swap_in_poll,
    swap_values_in_poll,
    swap_sends,
    move_in_final,
    move_ack,
    unsend,
    confirm_what_failed,
    confirm_what_was_lost,
    tear,
    invent,
    forget_commit,
    shrink_latest,
]


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("txn", [False, True], ids=["sends", "transactions"])
def test_a_broken_promise_is_named(
    mutation: Callable[[list[Line], random.Random], set[str] | None], txn: bool
) -> None:
    broken = 0
    for seed in FEWER_SEEDS:
        mutant = Script()
        mutant.lines = [json.loads(line) for line in correct_history(seed, txn=txn)]
        names = mutation(mutant.lines[1:], random.Random(seed))
        if names is None:
            continue
        broken += 1

        report = mutant.judge()

        assert report.verdict == "invalid", f"seed {seed}"
        assert report.names & names, f"seed {seed}: {report.names} and none of {names}"
    assert broken > len(FEWER_SEEDS) / 2 or (mutation is tear and not txn)


# --- what a history holds ------------------------------------------------------------------------


def polls(lines: list[Line]) -> list[Line]:
    """Polls of which no partition was moved."""
    return [line for line in lines if line["op"] == "poll" and not line.get("moved")]


def finals(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["p"] == LAST_READER and line["e"] == "ok"]


def chunks_of(line: Line) -> Iterator[list[Any]]:
    for step in line.get("steps", []):
        if step[0] == "r" and len(step) > 1:
            yield from step[1].values()


def records_of(line: Line) -> Iterator[tuple[list[Any], int]]:
    for chunk in chunks_of(line):
        for at in range(len(chunk)):
            yield chunk, at


def acks(line: Line) -> Iterator[tuple[int, int | None]]:
    for step in line.get("steps", []):
        if len(step) == 4:
            yield step[2], step[3]


def acknowledged(lines: list[Line]) -> set[int]:
    return {value for line in lines if line["e"] == "ok" for value, _ in acks(line)}


def polled(lines: list[Line]) -> set[int]:
    """Values that readers other than the last were handed; or all of its own, given its lines."""
    is_final = bool(lines) and all(line["p"] == LAST_READER for line in lines)
    return {
        chunk[at][1]
        for line in lines
        if is_final or line["p"] != LAST_READER
        for chunk, at in records_of(line)
    }


def bound(lines: list[Line], before: int, part: str) -> int | None:
    """The last offset whose commit was confirmed before this event."""
    confirmed = [
        line["group"][2][part]
        for line in lines[:before]
        if line["op"] == "commit" and line["e"] == "ok" and part in line["group"][2]
    ]
    return confirmed[-1] if confirmed else None
