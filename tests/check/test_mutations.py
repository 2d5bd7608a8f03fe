"""For each fatal anomaly: a change to a correct random history that makes it, and its name is found."""

import functools
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from oncelog.check.anomaly import ALWAYS_NOTED, Name
from tests.check import test_random_histories as simple
from tests.check.copying import FINAL_READER, PROBER, READER, Copying
from tests.check.script import Script

SEEDS = range(60)
Line = dict[str, Any]  # Any: lines of JSON, which these tests take apart
Mutation = Callable[[list[Line], random.Random], bool]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_correct_history_of_copiers_is_not_flagged(seed: int) -> None:
    report = Copying(seed).script.judge()

    assert report.names <= ALWAYS_NOTED
    assert report.counts["confirmed"] > 5


@functools.cache
def correct_history(seed: int) -> list[str]:
    return Copying(seed).script.text()


# --- mutations: each breaks one promise, and says whether it found where to ----------------------


def ask_late(lines: list[Line], rng: random.Random) -> bool:
    """Readers had the values before the commit was asked for."""
    found = [line for line in committed(lines) if len(line["steps"]) > 1]
    if found:
        rng.choice(found)["tc"] = 10**15
    return bool(found)


def read_own(lines: list[Line], rng: random.Random) -> bool:
    """A transaction was handed what it had just written."""
    found = [(line, step) for line in committed(lines) for step in writes(line)]
    if found:
        line, (_, part, value, offset) = rng.choice(found)
        line["steps"].append(["r", {part: [[offset, value]]}])
    return bool(found)


def read_each_other(lines: list[Line], rng: random.Random) -> bool:
    """Two transactions under way at once were handed each other's records."""
    found = [
        (first, second)
        for first, second in pairwise(committed(lines))
        if second["ref"] < first["n"] and writes(first) and writes(second)
    ]
    if found:
        first, second = rng.choice(found)
        for line, other in ((first, writes(second)[0]), (second, writes(first)[0])):
            line["steps"].append(["r", {other[1]: [[other[3], other[2]]]}])
    return bool(found)


def forget_everywhere(lines: list[Line], rng: random.Random) -> bool:
    """A record that was acknowledged is gone, and readers went past its place."""
    final = last_read(lines)
    found = [chunk for part, chunk in final.items() if part.startswith("a") and len(chunk) > 1]
    if found:
        chunk = rng.choice(found)
        remove_value(lines, chunk[rng.randrange(len(chunk) - 1)][1])
    return bool(found)


def forget_last(lines: list[Line], rng: random.Random) -> bool:
    """The last record of a partition is gone, and nobody went past its place."""
    found = [chunk for part, chunk in last_read(lines).items() if part.startswith("a") and chunk]
    if found:
        remove_value(lines, rng.choice(found)[-1][1])
    return bool(found)


def skip_between_polls(lines: list[Line], rng: random.Random) -> bool:
    """A consumer lost the beginning of a poll."""
    found = [after for before, after in polls_in_turn(lines) if len(after) > 1]
    if found:
        del rng.choice(found)[0]
    return bool(found)


def repeat_between_polls(lines: list[Line], rng: random.Random) -> bool:
    """A consumer was handed the end of a poll again."""
    found = list(polls_in_turn(lines))
    if found:
        before, after = rng.choice(found)
        after.insert(0, before[-1])
    return bool(found)


def consume_again(lines: list[Line], rng: random.Random) -> bool:
    """Two transactions of a group consumed the same record."""
    found = ranges_in_turn(lines)
    if found:
        rng.choice(found)[1][0] -= 1
    return bool(found)


def consume_too_little(lines: list[Line], rng: random.Random) -> bool:
    """A group left a record out."""
    unknown = [
        (part, span)
        for line in lines
        if line["op"] == "txn" and line["e"] == "unknown" and "group" in line
        for part, span in line["group"][2].items()
    ]
    found = [
        span
        for part, span in ranges_in_turn(lines)
        if span[1] - span[0] > 1
        # One whose end nobody knows may have consumed it.
        and not any(part == other and low <= span[0] < end for other, (low, end) in unknown)
    ]
    if found:
        rng.choice(found)[0] += 1
    return bool(found)


def lower_epoch(lines: list[Line], rng: random.Random) -> bool:
    """A producer that had been replaced got its transaction committed."""
    found = [line for line in committed(lines) if writes(line) and "id" in line]
    if found:
        rng.choice(found)["id"][1] -= 1
    return bool(found)


def flip_marker(lines: list[Line], rng: random.Random) -> bool:
    """The log decided otherwise than the client was told."""
    told = {
        step[2]
        for line in lines
        if line["op"] == "txn" and line["e"] in ("ok", "fail")
        for step in writes(line)
    }
    found = [line for line in lines if line["op"] == "marker" and told & set(line["values"])]
    if found:
        line = rng.choice(found)
        line["end"] = "abort" if line["end"] == "commit" else "commit"
    return bool(found)


def never_rest(lines: list[Line], rng: random.Random) -> bool:
    """Something hangs after healing."""
    state = next(line for line in lines if line["op"] == "state")
    final = next(line for line in lines if line["p"] == FINAL_READER and line["e"] == "ok")
    probe = next(line for line in lines if line["p"] == PROBER and line["e"] == "ok")
    match rng.randrange(4):
        case 0:
            state["open_txns"] = ["t0"]
        case 1:
            state["groups"]["g"] = "CompletingRebalance"
        case 2:
            final["ends"][rng.choice(sorted(final["ends"]))][1] += 1
        case _:
            probe["e"] = "unknown"
    return True


def move_offsets_alone(lines: list[Line], rng: random.Random) -> bool:
    """The offsets of a transaction that was aborted were applied."""
    spans = [
        (line["e"], span)
        for line in lines
        if line["op"] == "txn" and "group" in line
        for span in line["group"][2].items()
    ]
    set_by_others = {(part, span[1]) for kind, (part, span) in spans if kind != "fail"}
    aborted = [
        (part, span[1])
        for kind, (part, span) in spans
        if kind == "fail" and span[0] < span[1] and (part, span[1]) not in set_by_others
    ]
    fetches = [line for line in lines if line["op"] == "committed" and line["e"] == "ok"]
    if aborted and fetches:
        part, end = rng.choice(aborted)
        rng.choice(fetches)["group"][2][part] = end
    return bool(aborted and fetches)


def lose_batch(lines: list[Line], rng: random.Random) -> bool:
    """All effects of a batch that readers may have seen are gone."""
    batches = [line for line in lines if line["op"] == "batch"]
    if batches:
        remove_effects(lines, set(rng.choice(batches)["values"]))
    return bool(batches)


def lose_part_of_batch(lines: list[Line], rng: random.Random) -> bool:
    """Some effects of a batch are there, and others are not."""
    batches = [line for line in lines if line["op"] == "batch" and len(line["values"]) > 1]
    if batches:
        remove_effects(lines, {rng.choice(rng.choice(batches)["values"])})
    return bool(batches)


def repeat_effect(lines: list[Line], rng: random.Random) -> bool:
    """A batch was written a second time."""
    found = final_effects(lines)
    if found:
        found.append([10_000, *rng.choice(found)[1:]])
    return bool(found)


def invent_effect(lines: list[Line], rng: random.Random) -> bool:
    """The output holds something that no committed input explains."""
    found = final_effects(lines)
    copies = [step[2] for line in committed(lines) for step in writes(line)]
    found.append([10_000, [rng.choice([999_999, *copies])]])
    return True


def on_simple(mutation: Callable[[list[Line], random.Random], set[str] | None]) -> Mutation:
    """A mutation of the other model's histories, which have these lines as well."""
    return lambda lines, rng: mutation(lines, rng) is not None


#: Each fatal anomaly, the mutation that makes it, and whose histories it changes.
COPYING: dict[str, Mutation] = {
    "early-read": ask_late,
    "own-read": read_own,
    "read-cycle": read_each_other,
    "lost-write": forget_everywhere,
    "unseen": forget_last,
    "poll-skip": skip_between_polls,
    "poll-back": repeat_between_polls,
    "overlap": consume_again,
    "hole": consume_too_little,
    "zombie-write": lower_epoch,
    "decision-flip": flip_marker,
    "stuck": never_rest,
    "torn": move_offsets_alone,
    "effect-lost": lose_batch,
    "batch-torn": lose_part_of_batch,
    "effect-twice": repeat_effect,
    "effect-foreign": invent_effect,
}
SIMPLE: dict[str, Mutation] = {
    "split-offset": on_simple(simple.swap_values_in_poll),
    "moved-value": on_simple(simple.move_ack),
    "duplicate": on_simple(simple.repeat_in_final),
    "phantom": on_simple(simple.invent),
    "aborted-read": on_simple(simple.unsend),
    "send-back": on_simple(simple.swap_sends),
    "inner-skip": on_simple(simple.drop_inside_poll),
    "inner-back": on_simple(simple.swap_in_poll),
    "stale-offset": on_simple(simple.forget_commit),
    "latest-back": on_simple(simple.shrink_latest),
}


def test_every_fatal_anomaly_has_a_mutation() -> None:
    assert set(COPYING) | set(SIMPLE) == {name.value for name in Name} - ALWAYS_NOTED
    assert not set(COPYING) & set(SIMPLE)


@pytest.mark.parametrize("name", [*COPYING, *SIMPLE])
def test_a_mutation_is_found_by_its_name(name: str) -> None:
    broken = 0
    for seed in SEEDS:
        if name in COPYING and seed % 4 == 0:
            continue  # what retention may have taken is not missed
        text = correct_history(seed) if name in COPYING else simple.correct_history(seed, txn=True)
        mutant = Script()
        mutant.lines = [json.loads(line) for line in text]
        if not (COPYING | SIMPLE)[name](mutant.lines[1:], random.Random(seed)):
            continue
        broken += 1

        report = mutant.judge()

        assert name in report.names, f"seed {seed}: only {sorted(report.names)}"
        assert report.verdict == "invalid"
    assert broken >= 10


# --- what a history holds ------------------------------------------------------------------------


def committed(lines: list[Line]) -> list[Line]:
    return [
        line for line in lines if line["op"] == "txn" and line["e"] == "ok" and line["p"] != PROBER
    ]


def writes(line: Line) -> list[list[Any]]:
    return [step for step in line.get("steps", []) if step[0] == "w"]


def last_read(lines: list[Line]) -> dict[str, list[Any]]:
    final = next(line for line in lines if line["p"] == FINAL_READER and line["e"] == "ok")
    found: dict[str, list[Any]] = final["steps"][0][1]
    return found


def final_effects(lines: list[Line]) -> list[Any]:
    final = next(line for line in lines if line["p"] == FINAL_READER and line["e"] == "ok")
    found: list[Any] = final["steps"][1][1]["c:0"]
    return found


def remove_value(lines: list[Line], value: int) -> None:
    for line in lines:
        for chunk in simple.chunks_of(line):
            chunk[:] = [record for record in chunk if record[1] != value]


def remove_effects(lines: list[Line], values: set[int]) -> None:
    for line in lines:
        for step in line.get("steps", []):
            if step[0] == "e" and len(step) > 1:
                for chunk in step[1].values():
                    chunk[:] = [effect for effect in chunk if not values & set(effect[1])]


def polls_in_turn(lines: list[Line]) -> Iterator[tuple[list[Any], list[Any]]]:
    """What one consumer was handed of a partition in two polls, one after the other."""
    last: dict[str, list[Any]] = {}
    for line in lines:
        if line["p"] == READER and line["e"] == "ok":
            for part, chunk in line["steps"][0][1].items():
                if chunk:
                    if part in last:
                        yield last[part], chunk
                    last[part] = chunk


def ranges_in_turn(lines: list[Line]) -> list[tuple[str, list[int]]]:
    """Partitions and ranges of committed transactions that begin where another one ends."""
    spans = [
        (part, span)
        for line in committed(lines)
        if "group" in line
        for part, span in line["group"][2].items()
    ]
    ends = {(part, span[1]) for part, span in spans}
    return [(part, span) for part, span in spans if (part, span[0]) in ends]
