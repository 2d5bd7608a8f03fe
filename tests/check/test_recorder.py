"""A recorder's file reads back as what was recorded, whoever records at the same time."""

import dataclasses
import json
import threading
from pathlib import Path

import pytest

from oncelog.check import (
    BadPayload,
    Kind,
    Op,
    Payload,
    Read,
    Record,
    Recorder,
    Run,
    Verdict,
    Write,
    decode_payload,
    encode_payload,
    judge,
    open_history,
    parse_history,
    value_of,
)
from oncelog.check.recorder import encode, event_line, header
from tests.check.test_history import EXAMPLE

A = "a:0"


def test_what_is_recorded_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run = Run(seed=7, parts=(A,), faults=("kill",), scale=0.5, acks="1")

    with Recorder(path, run, clock=iter(range(100)).__next__) as recorder:
        writer = recorder.new_process()
        value = recorder.new_value()
        call = recorder.call(writer, Op.SEND, [Write(A, value)])
        recorder.ok(call, [Write(A, value, 0)])
        recorder.note(Op.FAULT, what="kill", target="n1")
        reader = recorder.new_process()
        poll = recorder.call(reader, Op.POLL)
        recorder.unknown(poll, [Read({A: (Record(0, value),)})], err="REQUEST_TIMED_OUT")
    found, events, _ = open_history(path)
    asked, done, fault, _, polled = events

    assert found == run
    assert asked.steps == (Write(A, value),)
    assert (done.kind, done.ref, done.steps) == (Kind.OK, call, (Write(A, value, 0),))
    assert (fault.t, fault.details.target) == (2, "n1")
    assert polled.steps == (Read({A: (Record(0, value),)}),)
    assert polled.details.err == "REQUEST_TIMED_OUT"


def test_each_line_is_in_the_file_before_the_next_step_of_its_client(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    with Recorder(path, Run()) as recorder:
        recorder.call(recorder.new_process(), Op.POLL)

        assert len(list(open_history(path).events)) == 1


def test_many_threads_give_numbers_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, Run(parts=(A,))) as recorder:

        def send() -> None:
            process = recorder.new_process()
            for _ in range(50):
                value = recorder.new_value()
                call = recorder.call(process, Op.SEND, [Write(A, value)])
                recorder.ok(call, [Write(A, value)])

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    report = judge(open_history(path), with_floors=False)
    assert report.verdict is Verdict.VALID
    assert report.counts["confirmed"] == 400


def test_an_event_survives_being_written_and_read() -> None:
    history = parse_history(EXAMPLE.splitlines())
    events = list(history.events)

    lines = [encode(header(history.run)), *(encode(event_line(event)) for event in events)]

    again = parse_history(lines)
    assert again.run == history.run
    assert list(again.events) == events


def test_the_rarer_fields_survive_too() -> None:
    lines = [
        {"n": 0, "t": 0, "p": 1, "e": "call", "op": "assign", "at": {A: 3, "a:1": None}},
        {"n": 1, "t": 1, "p": 2, "e": "call", "op": "commit", "group": ["g", None, {A: 3}]},
        {"n": 2, "t": 2, "p": -1, "e": "note", "op": "fault", "what": "kill", "over": True},
        {"n": 3, "t": 3, "p": 3, "e": "ok", "ref": None, "op": "poll", "moved": [A]},
        {"n": 4, "t": 4, "p": 3, "e": "ok", "ref": None, "op": "final", "ends": {A: [3, 4]}},
        {"n": 5, "t": 5, "p": 3, "e": "ok", "ref": None, "op": "latest", "offsets": {A: 4}},
    ]  # fmt: skip
    events = parse_history(['{"kind":"run","format":1}', *map(json.dumps, lines)]).events

    assert [json.loads(encode(event_line(event))) for event in events] == lines


def test_a_payload_tells_where_it_came_from() -> None:
    payload = Payload(run=2**64 - 1, process=7, txn_number=3, index=1, value=-71)

    assert decode_payload(encode_payload(payload)) == payload
    assert decode_payload(encode_payload(payload, size_bytes=1000)) == payload
    assert len(encode_payload(payload, size_bytes=1000)) == 1000


@pytest.mark.parametrize("size_bytes", [32, 40])
def test_no_changed_bit_of_a_payload_goes_unnoticed(size_bytes: int) -> None:
    whole = encode_payload(
        Payload(run=1, process=2, txn_number=3, index=4, value=5), size_bytes=size_bytes
    )

    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadPayload):
            decode_payload(bytes(flipped))
    for size in range(len(whole)):
        with pytest.raises(BadPayload):
            decode_payload(whole[:size])


def test_only_bytes_of_this_run_have_a_value() -> None:
    payload = Payload(run=1, process=2, txn_number=3, index=4, value=5)

    assert value_of(encode_payload(payload), run=1) == 5
    assert value_of(encode_payload(dataclasses.replace(payload, run=9)), run=1) is None
    assert value_of(b"something else", run=1) is None
