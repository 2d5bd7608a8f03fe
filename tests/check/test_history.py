"""What the reader accepts, and how it says what is wrong."""

import json
from pathlib import Path

import pytest

from oncelog.check import (
    End,
    Event,
    Group,
    Kind,
    Op,
    Range,
    Read,
    Record,
    Unreadable,
    Write,
    judge,
    open_history,
    parse_history,
)

EXAMPLE = """\
{"kind":"run","format":1,"seed":4711,"durability":"fsync","isolation":"read_committed","mode":"assign","txn":true,"idempotent":true,"brokers":3,"parts":["a:0","a:1","b:0"],"heal_s":30}
{"n":0,"t":1200,"p":7,"e":"call","op":"txn","steps":[["w","a:0",71],["r"],["w","b:0",72]],"tid":"c7"}
{"n":1,"t":9100,"p":7,"e":"ok","ref":0,"op":"txn","end":"commit","tc":8100,"steps":[["w","a:0",71,40],["r",{"b:0":[[12,55],[13,56]]}],["w","b:0",72,null]],"id":[1003,4],"group":["g1",3,{"b:0":[12,14]}]}
{"n":2,"t":9300,"p":-1,"e":"note","op":"fault","what":"kill","target":"n2"}
{"n":3,"t":9900,"p":8,"e":"unknown","ref":null,"op":"txn","end":"commit","tc":9500,"err":"REQUEST_TIMED_OUT","steps":[["w","a:1",81,null]],"id":[1004,0]}
"""

HEADER = '{"kind":"run","format":1}'


def event(**fields: object) -> str:
    return json.dumps({"n": 0, "t": 0, "p": 1, "e": "call", "op": "poll"} | fields)


def test_the_example_of_the_format_reads_as_it_is_meant() -> None:
    run, events, _ = parse_history(EXAMPLE.splitlines())
    call, done, fault, unknown = events

    assert (run.seed, run.txn, run.parts) == (4711, True, ("a:0", "a:1", "b:0"))
    assert call.steps == (Write("a:0", 71), Read(), Write("b:0", 72))
    assert call.details.tid == "c7"
    assert done == Event(
        n=1,
        t=9100,
        process=7,
        kind=Kind.OK,
        op=Op.TXN,
        ref=0,
        end=End.COMMIT,
        tc=8100,
        producer=(1003, 4),
        steps=(
            Write("a:0", 71, 40),
            Read({"b:0": (Record(12, 55), Record(13, 56))}),
            Write("b:0", 72),
        ),
        group=Group(name="g1", generation=3, offsets={"b:0": Range(12, 14)}),
    )
    assert (fault.details.what, fault.details.target) == ("kill", "n2")
    assert (unknown.kind, unknown.ref, unknown.details.err) == (
        Kind.UNKNOWN,
        None,
        "REQUEST_TIMED_OUT",
    )


def test_fields_that_are_not_known_are_ignored() -> None:
    history = parse_history([HEADER, event(attempts=["ok"], colour="blue")])

    assert [found.op for found in history.events] == [Op.POLL]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"n":0,"t":0,"p":1,"e":"call","op":"poll"', "not JSON"),
        (event(n=1), "event 1 where 0 was expected"),
        (event(n=True), "n is not an integer"),
        (event(t=0.5), "t is not an integer"),
        (event(t=None), "t is not an integer"),
        (event(p="x"), "p is not an integer"),
        (event(p=1 << 31), "p does not fit into 32 bits"),
        (event(e="maybe"), "unknown kind"),
        (event(op="dance"), "unknown op"),
        (event(op=None), "unknown op"),
        (event(e="ok", ref=0), "not an open call"),
        (event(e="ok", ref="x"), "ref is not an integer"),
        (event(steps={}), "steps is not a list"),
        (event(steps=[["w", "a:0"]]), "not a step"),
        (event(steps=[["w", 0, 1]]), "not a step"),
        (event(steps=[["w", "a:0", 1 << 63]]), "64 bits"),
        (event(steps=[["w", "a:0", 1, -1]]), "negative offset"),
        (event(steps=[["r", {"a:0": [[1]]}]]), "not a record"),
        (event(steps=[["r", {"a:0": {}}]]), "not a list of records"),
        (event(steps=[["r", {"a:0": [[1, "x"]]}]]), "value is not an integer"),
        (event(group=["g"]), "not a group"),
        (event(group=["g", 1, {"a:0": [1, 2, 3]}]), "offset is not an integer"),
        (event(end="perhaps"), "end is not commit or abort"),
        (event(id=[1]), "id is not a pair"),
        (event(moved="a:0"), "moved is not a list"),
        (event(over=1), "over is not true or false"),
        (event(offsets=[1]), "offsets is not an object"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_a_reason(line: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        list(parse_history([HEADER, line], source="run.jsonl").events)

    assert str(caught.value).startswith("run.jsonl:2: ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "not JSON"),
        (event(), "must describe the run"),
        ('{"kind":"run","format":2}', "reads format 1"),
        ('{"kind":"run"}', "reads format 1"),
        ('{"kind":"run","format":1,"isolation":"none"}', "isolation is not"),
        ('{"kind":"run","format":1,"parts":"a:0"}', "parts is not a list"),
        ('{"kind":"run","format":1,"scale":"big"}', "scale is not a number"),
        ('{"kind":"run","format":1,"acks":2}', "acks is not"),
    ],
)
def test_a_bad_header_is_refused(line: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        parse_history([line])

    assert caught.value.line == 1


@pytest.mark.parametrize("op", ["assign", "subscribe", "seek", "crash", "final", "state"])
def test_what_no_broker_is_asked_for_may_be_noted(op: str) -> None:
    history = parse_history([HEADER, event(e="note", op=op)])

    assert judge(history, with_floors=False).verdict == "valid"


def test_a_completion_must_fit_its_call() -> None:
    call = event(op="send", steps=[])
    other_op = event(n=1, e="ok", op="poll", ref=0)
    other_process = event(n=1, e="ok", op="send", ref=0, p=2)
    twice = [event(n=1, e="ok", op="send", ref=0), event(n=2, e="ok", op="send", ref=0)]

    for lines in ([other_op], [other_process], twice):
        with pytest.raises(Unreadable, match="completes 0"):
            list(parse_history([HEADER, call, *lines]).events)


def test_a_process_ends_with_its_unknown_event() -> None:
    unknown = event(e="unknown", op="send", ref=None)

    with pytest.raises(Unreadable, match="goes on after its unknown event 0"):
        list(parse_history([HEADER, unknown, event(n=1)]).events)


def test_what_was_called_before_an_unknown_event_may_still_complete() -> None:
    lines = [event(), event(n=1), event(n=2, e="unknown", ref=0), event(n=3, e="ok", ref=1)]

    assert len(list(parse_history([HEADER, *lines]).events)) == 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([["w", "a:0", 1]], [["w", "a:0", 1]]),
        ([["w", "a:0", 1], ["w", "b:0", 1]], []),
    ],
)
def test_a_value_is_written_once(first: object, second: object) -> None:
    lines = [event(op="send", steps=first), event(n=1, op="send", steps=second, p=2)]

    with pytest.raises(Unreadable, match="value 1 is written twice") as caught:
        judge(parse_history([HEADER, *lines], source="run.jsonl"))

    assert caught.value.source == "run.jsonl"


def test_a_value_is_completed_where_it_was_asked_for() -> None:
    lines = [
        event(op="send", steps=[["w", "a:0", 1]]),
        event(n=1, e="ok", ref=0, op="send", steps=[["w", "b:0", 1, 0]]),
    ]

    with pytest.raises(Unreadable, match="asked for in a:0 and is completed in b:0") as caught:
        judge(parse_history([HEADER, *lines]))

    assert caught.value.line == 3


def test_a_file_that_is_missing_or_no_text_is_unreadable(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(HEADER.encode() + b"\n\xff\xfe\n")

    with pytest.raises(Unreadable, match="No such file"):
        open_history(tmp_path / "missing")
    with pytest.raises(Unreadable, match="utf-8"):
        list(open_history(binary).events)
