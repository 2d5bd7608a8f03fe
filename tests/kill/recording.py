"""The history of one pipeline: its input, what readers saw of its output, and what its ledger says.

The input is numbered, and each record of the output says by itself which numbers it stands for. The
driver writes the batch into a header of each. Which input a batch took is in the ledger, so the
checker holds the output against both (effect-lost, effect-twice, effect-foreign, batch-torn).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import Message, Producer

from oncelog.check import (
    Effect,
    Effects,
    Op,
    Pipe,
    Recorder,
    Report,
    Run,
    Write,
    judge,
    open_history,
)
from oncelog.client.admin import EARLIEST, LATEST, list_offsets, topics
from oncelog.client.cluster import Cluster
from oncelog.client.fetching import Range, fetch
from oncelog.core.batch import HEADER_BYTES
from oncelog.core.packing import unpack
from oncelog.core.records import Record
from oncelog.core.types import TopicPartition
from oncelog.spark.ledger import Progress
from oncelog.spark.target import PROGRESS_TOPIC
from oncelog.testing.workload.feeding import parts_of
from oncelog.testing.workload.final import read_everything
from oncelog.testing.workload.rest import note_state

PARTITIONS: Final = 2
BATCH_HEADER: Final = "batch"
SENT_AT_ONCE: Final = 500
FINAL_S: Final = 60.0
#: Longer than any transaction of a driver may last.
REST_S: Final = 70.0

#: The numbers that a record stands for.
Origins: TypeAlias = Callable[[bytes], Iterable[int]]


def number_of(value: bytes) -> int:
    """The number in a record of the input, or of an output that was made of just one."""
    return int(value[1:])


def write_input(servers: str, topic: str, numbers: Sequence[int]) -> list[Write]:
    """Write numbered records, evenly to all partitions; answers where each one is."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    offsets: dict[int, int] = {}

    def told(error: object, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None, "a record has its place"
        offsets[number_of(message.value() or b"")] = offset

    for number in numbers:
        value = b"n%d" % number
        producer.produce(topic, value, key=value, partition=number % PARTITIONS, on_delivery=told)
        producer.poll(0)
    assert producer.flush(30) == 0
    return [Write(f"{topic}:{n % PARTITIONS}", n, offsets[n]) for n in numbers]


class PipeHistory:
    """Writes down what happens around one pipeline, and has it judged."""

    def __init__(
        self, path: Path, name: str, sent: Sequence[Write], targets: Sequence[str], origins: Origins
    ) -> None:
        """`sent` is what has gone into the first topic; `targets` are those it should come out of."""
        self.path = path
        self._name = name
        self._origins = origins
        self.parts = [part for topic in targets for part in parts_of(topic, PARTITIONS)]
        sources = tuple(sorted({write.part for write in sent}))
        pipe = Pipe(name=name, source=sources, target=tuple(self.parts))
        self.recorder = Recorder(path, Run(parts=tuple(self.parts), pipes=(pipe,)))
        process = self.recorder.new_process()
        for start in range(0, len(sent), SENT_AT_ONCE):
            some = sent[start : start + SENT_AT_ONCE]
            self.recorder.ok(self.recorder.call(process, Op.SEND, some), some)

    def killed(self, what: str) -> None:
        """A driver has died where it was told to."""
        self.recorder.note(Op.FAULT, what=what, target=self._name)
        self.recorder.note(Op.FAULT, what=what, target=self._name, over=True)

    def effects_of(self, messages: Iterable[Message]) -> Effects:
        """What a reader was handed of the output."""
        found: dict[str, list[Effect]] = {}
        for message in messages:
            if message.error() is None:
                offset = message.offset()
                assert offset is not None, "a record has its place"
                origins = tuple(self._origins(message.value() or b""))
                part = f"{message.topic()}:{message.partition()}"
                found.setdefault(part, []).append(Effect(offset, origins, _batch_of(message)))
        return Effects({part: tuple(effects) for part, effects in found.items()})

    def note_batches(self, servers: str, source: str) -> int:
        """Write down which input each committed batch took, as the ledger has it; how many."""
        batches = asyncio.run(_batches(servers, source, self._name))
        for batch, values in batches.items():
            self.recorder.note(Op.BATCH, pipe=self._name, batch=batch, values=values)
        return len(batches)

    def finish(self, servers: str) -> Report:
        """The end of the history, and what the checker says of it."""
        self.recorder.note(Op.HEAL)
        note_state(self.recorder, servers, self.parts, within_s=REST_S)
        settings = {"bootstrap.servers": servers}
        read_everything(
            self.recorder,
            settings,
            self.parts,
            run=0,
            within_s=FINAL_S,
            as_step=self.effects_of,
        )
        self.recorder.close()
        return judge(open_history(self.path), with_floors=False)


def _batch_of(message: Message) -> int | None:
    found = dict(message.headers() or ()).get(BATCH_HEADER)
    return None if found is None else int(found)


async def _batches(servers: str, source: str, name: str) -> dict[int, list[int]]:
    """The numbers that each batch of a pipeline took."""
    async with await Cluster.open(servers) as cluster:
        ledger = [
            Progress.decode(record.value or b"")
            async for _, record in _records(cluster, PROGRESS_TOPIC)
            if record.key == name.encode()
        ]
        numbers = {
            (place, record.offset): number_of(record.value or b"")
            async for place, record in _records(cluster, source)
        }
    batches: dict[int, list[int]] = {}
    before: dict[TopicPartition, int] = {}
    for progress in ledger:
        assert progress.batch not in batches, f"batch {progress.batch} was committed twice"
        batches[progress.batch] = [
            numbers[place, offset]
            for place, end in sorted(progress.position.offsets.items())
            for offset in range(before.get(place, 0), end)
            if (place, offset) in numbers
        ]
        before |= progress.position.offsets
    return batches


async def _records(cluster: Cluster, topic: str) -> AsyncIterator[tuple[TopicPartition, Record]]:
    """Every committed record of a topic."""
    (found,) = await topics(cluster, [topic])
    places = [TopicPartition(topic, each.partition_index) for each in found.partitions]
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST), committed_only=True)
    for place in places:
        wanted = Range(
            topic=topic,
            partition=place.partition,
            start=starts[place] or 0,
            end=ends[place] or 0,
        )
        async for some in fetch(cluster, wanted):
            for header, batch in some:
                for record in unpack(header, batch[HEADER_BYTES:]):
                    yield place, record
