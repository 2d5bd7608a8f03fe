"""Simulated administrators: one deletes records, one creates and deletes topics."""

import itertools
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from oncelog.check.history import Op
from oncelog.core.packing import encode_batch
from oncelog.core.records import Record
from oncelog.testing.sim.client import RETRIABLE, Admitted, Part, Refused, Stage, part_name
from oncelog.testing.sim.reading import Reader, delivered, fetch_request
from oncelog.testing.sim.world import Disconnected
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_ALREADY_EXISTS: Final = int(ErrorCode.TOPIC_ALREADY_EXISTS)
UNKNOWN_TOPIC: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Janitor(Reader):
    """Deletes the older records of a partition, again and again."""

    def __init__(self, stage: Stage, name: str, rng: Random, *, patience_s: float) -> None:
        super().__init__(stage, name, rng, patience_s=patience_s)
        #: Where each partition begins at least: so far it was told that all is deleted.
        self._starts: dict[Part, int] = {}

    async def delete(self, part: Part) -> None:
        """Delete up to somewhere before the last stable offset; it may or may not succeed."""
        ends = (await self.ends([part]))[part]
        self._check(part, ends.log_start_offset)
        offset = self._rng.randint(ends.log_start_offset, ends.last_stable_offset)
        if await self._delete_up_to(part, offset) and offset:
            # Up to where it begins later by now: that must not bring anything back.
            await self._delete_up_to(part, self._rng.randrange(offset))

    async def _delete_up_to(self, part: Part, offset: int) -> bool:
        # Said before it is asked for: from now on nobody may count on what lies below.
        self._recorder.note(Op.FAULT, what="delete-records", starts={part_name(part): offset})
        asked = [DeleteRecordsPartition(partition_index=part[1], offset=offset)]
        topics = [DeleteRecordsTopic(name=part[0], partitions=asked)]
        reply = await self.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)
        answer = reply.topics[0].partitions[0]
        if answer.error_code not in (0, *RETRIABLE):
            raise Refused(f"{self.name}: DeleteRecords answered {answer.error_code}")
        if answer.error_code:
            return False
        self._starts[part] = max(self._starts.get(part, 0), offset)
        self._check(part, answer.low_watermark)
        return True

    def _check(self, part: Part, log_start_offset: int) -> None:
        deleted = self._starts.get(part, 0)
        if log_start_offset < deleted:
            raise Admitted(
                f"{part_name(part)} begins at {log_start_offset} after it was deleted up to "
                f"{deleted}"
            )


class Builder(Reader):
    """Creates topics, and deletes and creates one of the same name: nothing old may come back."""

    def __init__(self, stage: Stage, name: str, rng: Random, *, patience_s: float = 5.0) -> None:
        super().__init__(stage, name, rng, patience_s=patience_s)
        #: What was sent more than once: a copy may arrive in a later topic of the same name.
        self._late: set[bytes] = set()

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic, asking until it is there."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        await self._insist(
            request, 5, lambda reply: int(reply.topics[0].error_code), TOPIC_ALREADY_EXISTS
        )

    async def delete(self, name: str) -> None:
        """Delete a topic, asking until it is gone."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
        await self._insist(
            request, 5, lambda reply: int(reply.responses[0].error_code), UNKNOWN_TOPIC
        )

    async def rebuild(self, name: str, number: int) -> None:
        """Create a topic, write to it, see that it holds that alone, and delete it."""
        part = (name, 0)
        await self.create(name, 1, {})
        written = f"{self.name} {number}".encode()
        batch = encode_batch([Record(0, self._stage.broker.clock.now().wall_ms, None, written)])
        data = [PartitionProduceData(index=0, records=batch)]
        produce = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=name, partition_data=data)],
        )
        tries = await self._insist(
            produce,
            9,
            lambda reply: int(reply.responses[0].partition_responses[0].error_code),
            UNKNOWN_TOPIC,
        )
        if tries > 1:
            self._late.add(written)
        values: set[bytes | None] = set()
        offset = 0
        while not values:
            try:
                reply = await self.ask(fetch_request({part: offset}, wait_ms=100), 11)
            except Disconnected:
                await self.pause()
                continue
            answer = reply.responses[0].partitions[0]
            if answer.error_code == UNKNOWN_TOPIC:
                return  # A request to delete that was given up has arrived after all.
            records, offset = delivered(answer, offset)
            values |= {record.value for record in records}
        if not values <= {written, *self._late}:
            raise Refused(f"{name} holds {sorted(map(str, values))} instead of {written!r}")
        await self.delete(name)

    async def _insist(
        self, request: Any, version: int, code_of: Callable[[Any], int], also_good: int = 0
    ) -> int:
        """Ask until the answer is good; returns how often it took."""
        for tries in itertools.count(1):
            try:
                code = code_of(await self.ask(request, version))
                if code in (0, also_good):
                    return tries
                if code not in RETRIABLE:
                    what = type(request).__name__
                    raise Refused(f"{self.name}: {what} was answered with {code}")
            except Disconnected:
                pass
            await self.pause()
        raise AssertionError("it asks until it is answered")
