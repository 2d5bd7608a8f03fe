"""What is looked at when everything has healed."""

import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from oncelog.check import Recorder, Report, judge, open_history
from oncelog.check.payload import decode_payload
from oncelog.testing.workload.copier import GROUP, SOURCE, TARGET, origin_of
from oncelog.testing.workload.final import ASK_S, read_everything
from oncelog.testing.workload.rest import PROBE_KEY

#: How long the final read may take; at a few MB/s that is enough for hours of load.
FINAL_S: Final = 600.0
POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The input beside the output, record by record."""

    input_count: int
    output_count: int
    #: Input partitions whose copies are not exactly what they hold.
    wrong_parts: tuple[str, ...]


class Comparison:
    """Collects input and output while they are read; eight bytes a record."""

    def __init__(self, partitions: int) -> None:
        self._inputs = [array("q") for _ in range(partitions)]
        self._outputs = [array("q") for _ in range(partitions)]

    def add(self, message: Message) -> None:
        """Take in one record of either topic; probes are no input, and were copied by nobody."""
        key = message.key() or b""
        if key == PROBE_KEY:
            return
        if message.topic() == SOURCE:
            partition = message.partition()
            assert partition is not None, "a record has its place"
            self._inputs[partition].append(decode_payload(message.value() or b"").value)
        elif message.topic() == TARGET:
            partition, value = origin_of(key)
            self._outputs[partition].append(value)

    def copy(self) -> Copy:
        """Equal means: every input once, and in its order."""
        pairs = zip(self._inputs, self._outputs, strict=True)
        return Copy(
            input_count=sum(map(len, self._inputs)),
            output_count=sum(map(len, self._outputs)),
            wrong_parts=tuple(
                f"{SOURCE}:{index}" for index, (given, got) in enumerate(pairs) if given != got
            ),
        )


def wait_until_copied(settings: dict[str, Any], partitions: int, *, within_s: float) -> None:
    """Wait until the copiers' group has come to the end of its input."""
    consumer = Consumer({**settings, "group.id": GROUP, "enable.auto.commit": False})
    places = [TopicPartition(SOURCE, index) for index in range(partitions)]
    deadline = time.monotonic() + within_s
    try:
        ends = [consumer.get_watermark_offsets(place, timeout=ASK_S)[1] for place in places]
        while True:
            found = [max(each.offset, 0) for each in consumer.committed(places, timeout=ASK_S)]
            if found == ends:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the copiers did not get to the end of {SOURCE} within {within_s:g} s: "
                    f"they are at {found} of {ends}"
                )
            time.sleep(POLL_S)
    finally:
        consumer.close()


def read_and_compare(
    recorder: Recorder,
    settings: dict[str, Any],
    parts: tuple[str, ...],
    *,
    partitions: int,
    seed: int,
) -> Copy:
    """The end of the history, and the input beside the output."""
    comparison = Comparison(partitions)
    read_everything(recorder, settings, parts, run=seed, within_s=FINAL_S, seen=comparison.add)
    return comparison.copy()


def judged(history: Path) -> Report:
    """What `oncelog check` says; how much has happened is for the reader of the summary."""
    return judge(open_history(history), with_floors=False)
