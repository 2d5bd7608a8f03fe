"""Reading lines and sending them, without a broker."""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oncelog.cli.failure import CommandFailed
from oncelog.cli.main import parser_for
from oncelog.cli.produce import Sending, lines
from tests.client.fake_broker import running


class FakeProducer:
    """Takes what it is sent; `refuses` says which values are not acknowledged."""

    def __init__(self, refuses: bytes = b"") -> None:
        self.sent: list[dict[str, Any]] = []
        self.flush_count = 0
        self._refuses = refuses

    async def send(self, topic: str, **fields: Any) -> asyncio.Future[None]:
        self.sent.append({"topic": topic, **fields})
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if fields["value"] == self._refuses:
            answer.set_exception(ValueError("too large"))
        else:
            answer.set_result(None)
        await asyncio.sleep(0)
        return answer

    async def flush(self) -> None:
        self.flush_count += 1
        await asyncio.sleep(0)


def given(*words: str) -> argparse.Namespace:
    argv = ["produce", "t", *words]
    return parser_for(argv).parse_args(argv)


async def of(*chunks: list[bytes]) -> AsyncIterator[list[bytes]]:
    for chunk in chunks:
        yield chunk


@running
async def test_each_line_becomes_a_record() -> None:
    producer = FakeProducer()
    sending = Sending(producer, given("--key-separator", ":", "--header", "a=1"), 1)

    await sending.send_all(of([b"k:v"], [b"l:w"]))
    await asyncio.sleep(0)
    sending.finish()

    assert [(r["key"], r["value"], r["headers"]) for r in producer.sent] == [
        (b"k", b"v", [("a", b"1")]),
        (b"l", b"w", [("a", b"1")]),
    ]
    assert sending.acknowledged == 2


@running
async def test_a_json_line_may_say_everything() -> None:
    producer = FakeProducer()
    line = b'{"value":"v","key":"k","headers":[["h",null]],"partition":2,"timestamp":7}'

    await Sending(producer, given("--json"), 3).send_all(of([line]))

    assert producer.sent == [
        {
            "topic": "t",
            "value": b"v",
            "key": b"k",
            "partition": 2,
            "timestamp_ms": 7,
            "headers": [("h", None)],
        }
    ]


@running
async def test_an_option_outweighs_the_partition_of_a_line() -> None:
    producer = FakeProducer()

    args = given("--json", "--partition", "0")
    await Sending(producer, args, 3).send_all(of([b'{"value":"v","partition":2}']))

    assert producer.sent[0]["partition"] == 0


@running
async def test_a_bad_line_is_named_and_what_came_before_it_is_written() -> None:
    producer = FakeProducer()
    sending = Sending(producer, given("--json"), 1)

    with pytest.raises(CommandFailed, match=r"Line 2: it is not JSON.*1 record written\."):
        await sending.send_all(of([b'{"value":"v"}', b"{"]))

    assert len(producer.sent) == producer.flush_count == 1


@running
async def test_a_partition_that_does_not_exist_is_a_bad_line() -> None:
    sending = Sending(FakeProducer(), given("--json"), 2)

    with pytest.raises(CommandFailed, match="Line 1: t has no partition 2"):
        await sending.send_all(of([b'{"partition":2}']))


@running
async def test_what_is_not_acknowledged_is_reported() -> None:
    sending = Sending(FakeProducer(refuses=b"b"), given(), 1)

    await sending.send_all(of([b"a"], [b"b"]))
    await asyncio.sleep(0)

    with pytest.raises(CommandFailed, match=r"1 of 2 records not acknowledged: too large\."):
        sending.finish()


@running
async def test_lines_are_handed_on_as_they_come() -> None:
    read_end, write_end = os.pipe()
    try:
        found = lines(read_end)
        os.write(write_end, b"one\ntw")
        first = await anext(found)
        os.write(write_end, b"o\n\nlast")
        second = await anext(found)
        os.close(write_end)
        third = await anext(found)

        assert [first, second, third] == [[b"one"], [b"two", b""], [b"last"]]
        with pytest.raises(StopAsyncIteration):
            await anext(found)
    finally:
        os.close(read_end)
