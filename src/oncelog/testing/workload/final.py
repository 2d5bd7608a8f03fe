"""The end of a history: a fresh reader reads each partition whole."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from oncelog.check import Op, Read, Record, Recorder, value_of
from oncelog.check.history import Step

#: How long a question about offsets may take.
ASK_S: Final = 10.0


def read_everything(
    recorder: Recorder,
    settings: dict[str, Any],
    parts: Sequence[str],
    *,
    run: int,
    within_s: float,
    seen: Callable[[Message], None] = lambda message: None,
    as_step: Callable[[Sequence[Message]], Step] | None = None,
) -> None:
    """Read these partitions (`topic:0`) from their start to their last stable offset.

    `seen` is given each record, and `as_step` says what some of them are in the history: values of
    this run, if nothing else is said. Raises TimeoutError if that takes longer than it may.
    """
    step_of = as_step or partial(read_of, run=run)
    process = recorder.new_process()
    places = [place_of(part) for part in parts]
    ends = _ranges(settings, places, "read_uncommitted")
    ranges = _ranges(settings, places, "read_committed")
    with closing(_consumer(settings, "read_committed")) as consumer:
        consumer.assign([TopicPartition(*place, ranges[place][0]) for place in places])
        left = {place for place, (start, end) in ranges.items() if start < end}
        deadline = time.monotonic() + within_s
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read within {within_s:g} s: {sorted(left)}")
            call = recorder.call(process, Op.FINAL)
            messages = consumer.consume(500, timeout=0.2)
            recorder.ok(call, [step_of(messages)], more=True)
            for message in messages:
                if message.error() is None:
                    seen(message)
            left -= {
                (at.topic, at.partition)
                for at in consumer.position([TopicPartition(*place) for place in left])
                if at.offset >= ranges[at.topic, at.partition][1]
            }
    recorder.ok(
        recorder.call(process, Op.FINAL),
        ends={_part(place): [ranges[place][1], ends[place][1]] for place in places},
        starts={_part(place): start for place, (start, _) in ranges.items() if start},
    )


def read_of(messages: Iterable[Message], *, run: int) -> Read:
    """What was handed over, by partition; an error that passes is no record."""
    found: dict[str, list[Record]] = {}
    for message in messages:
        if message.error() is None:
            offset = message.offset()
            assert offset is not None, "a record has its place"
            part = f"{message.topic()}:{message.partition()}"
            value = value_of(message.value() or b"", run=run)
            found.setdefault(part, []).append(Record(offset, value))
    return Read({part: tuple(records) for part, records in found.items()})


def place_of(part: str) -> tuple[str, int]:
    """The topic and the number of a partition that a history names."""
    topic, _, index = part.rpartition(":")
    return topic, int(index)


def _part(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}"


def _consumer(settings: dict[str, Any], isolation: str) -> Consumer:
    return Consumer(
        {
            **settings,
            "group.id": "final",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )


def _ranges(
    settings: dict[str, Any], places: Sequence[tuple[str, int]], isolation: str
) -> dict[tuple[str, int], tuple[int, int]]:
    """Where each partition begins, and where it ends for readers of this kind."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    with closing(_consumer(settings, isolation)) as consumer:
        for place in places:
            start, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=ASK_S)
            found[place] = (start, end)
    return found
