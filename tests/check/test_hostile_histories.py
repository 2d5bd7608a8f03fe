"""Whatever a file holds, the checker ends with a verdict or with a sentence that names the line."""

import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from oncelog.check import Unreadable, judge, open_history, parse_history
from oncelog.check import history as history_module
from oncelog.check.command import main
from tests.check.copying import Copying
from tests.check.script import Script

A = "a:0"
HEADER = '{"kind":"run","format":1}\n'

#: What may stand in place of anything: wrong types, sizes and depths.
ODD: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, float("nan"), float("inf"), 1e308,
    "", "x", "a:0", "\x00", "\ud800", [], {}, [[]], [{}], {"": []}, [None], ["w"], ["r", None], ["e", {"a:0": [1]}],
    ["w", "a:0", 10**400, 0], ["r", {"a:0": [[0, 10**30]]}], [1, 2, 3], {"a:0": None}, {"a:0": [-1, 5]},
    {"a:0": 2**63 - 1}, "commit", "abort", "ok", "note", "txn", "final", "batch", "marker", "crash",
]  # fmt: skip
FIELDS = ["n", "t", "p", "e", "ref", "op", "steps", "moved", "end", "tc", "id", "tid", "group", "err", "starts",
          "idempotent", "offsets", "at", "what", "target", "over", "ends", "more", "probe", "open_txns", "groups",
          "values", "pipe", "batch",
          "kind", "format", "isolation", "parts", "scale", "acks", "pipes", "heal_s"]  # fmt: skip


def spoil(lines: list[Any], rng: random.Random) -> None:
    """Change one thing in one line, at any depth."""
    line = rng.choice(lines)
    if rng.random() < 0.4:
        line[rng.choice(FIELDS)] = rng.choice(ODD)
        return
    holder, key = line, rng.choice(sorted(line))
    while isinstance(holder[key], list | dict) and holder[key] and rng.random() < 0.7:
        holder = holder[key]
        key = rng.choice(sorted(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    holder[key] = rng.choice(ODD)


@pytest.mark.parametrize("seed", range(8))
def test_spoilt_histories_are_judged_or_refused_with_a_line(seed: int) -> None:
    rng = random.Random(seed)
    text = Copying(seed, steps=15).script.text()
    refused_lines = []
    for _ in range(120):
        lines = [json.loads(line) for line in text]
        spoil(lines, rng)
        try:
            judge(parse_history(json.dumps(line) + "\n" for line in lines))
        except Unreadable as error:
            refused_lines.append(error.line or 0)

    assert len(refused_lines) > 20
    assert min(refused_lines) >= 1
    assert max(refused_lines) <= len(text)


@pytest.mark.parametrize("seed", range(4))
def test_files_of_damaged_bytes_are_judged_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = "".join(Copying(seed, steps=15).script.text()).encode()
    path = tmp_path / "run.jsonl"
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.choice((0, 1, 1, 50))] = rng.randbytes(rng.randint(0, 3))
        path.write_bytes(damaged)

        assert main(["--no-floors", str(path)]) in (0, 1, 2)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (['{"n":0,"t":0,"p":1,"e":"note","op":"send"}'], "a note of send"),
        (['{"n":0,"t":0,"p":1,"e":"call","op":"heal"}'], "heal can only be noted"),
        (['{"n":0,"t":0,"p":1,"e":[],"op":"poll"}'], "unknown kind of event"),
        (['{"n":0,"t":0,"p":1,"e":"call","op":{}}'], "unknown op"),
        (['{"n":0,"t":0,"p":1,"e":"ok","op":"poll","ref":7}'], "completes 7, which is not an open call"),
        (['{"n":0,"t":0,"p":1,"e":"call","op":"poll"} {}'], "something follows"),
        (['{"n":0,"t":0,"p":1,"e":"call","op":"poll","x":' + "[" * 100_000], "not JSON"),
        (['{"n":0,"t":0,"p":1,"e":"call","op":"poll","tc":' + "9" * 5_000 + "}"], "not JSON"),
        (['{"n":0,"t":0,"p":1,"e":"ok","op":"poll","ref":null,"steps":[["e",{"z:0":[[0,[1]]]}]]}'], "to no pipe"),
        (['{"n":0,"t":0,"p":1,"e":"note","op":"batch","pipe":"q","batch":1}'], "a pipe of the header"),
    ],
)  # fmt: skip
def test_what_breaks_the_format_is_refused_with_a_reason(lines: list[str], why: str) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        judge(parse_history([HEADER, *(line + "\n" for line in lines)]))

    assert caught.value.line == 2


def test_the_same_number_twice_is_refused() -> None:
    note = '{"n":0,"t":0,"p":-1,"e":"note","op":"heal"}\n'

    with pytest.raises(Unreadable, match="event 0 where 1 was expected") as caught:
        judge(parse_history([HEADER, note, note]))

    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"scale": float("nan")}, "scale is negative or too large"),
        ({"scale": 10**400}, "scale is negative or too large"),
        ({"heal_s": -1}, "heal_s is negative"),
        ({"pipes": {"p": {"from": []}}}, "pipe 'p' is not"),
        (
            {"pipes": {"p": {"from": [], "to": [A]}, "q": {"from": [], "to": [A]}}},
            "another one writes to",
        ),
    ],
)
def test_a_header_of_the_wrong_sizes_is_refused(header: dict[str, object], why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        Script(**header).judge()


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "LINE_LIMIT", 1_000)
    path = tmp_path / "run.jsonl"
    path.write_text(HEADER + '{"n":0,' + " " * 10_000)

    with pytest.raises(Unreadable, match="longer than 1000 characters") as caught:
        list(open_history(path).events)

    assert caught.value.line == 2


# --- the command ---------------------------------------------------------------------------------


def test_a_file_that_was_cut_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(Script().sent(1, A, (1, 0)).text())
    path = tmp_path / "run.jsonl"
    path.write_text(text[:-20])

    assert main([str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}:3: not JSON" in said
    assert "the file ends in the middle of this line: without it the rest can be judged" in said


def test_missing_and_empty_files_and_directories_are_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()

    assert main([str(tmp_path / "missing"), str(tmp_path), str(tmp_path / "empty")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"unreadable: {tmp_path}/missing: No such file or directory",
        f"unreadable: {tmp_path}: Is a directory",
        f"unreadable: {tmp_path}/empty:1: empty: the first line must describe the run, and events follow",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_file_shows_on_a_terminal_how_far_it_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.check.command.PROGRESS_EVENTS", 10)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    path = tmp_path / "run.jsonl"
    path.write_text("".join(Copying(1).script.text()))

    assert main(["--no-floors", str(path)]) == 0
    assert "million events read" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")
