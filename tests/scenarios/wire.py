"""A client that says exactly what a test wants, over a socket or in a simulation."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from oncelog.client.connection import Connection
from oncelog.core.packing import read_records
from oncelog.core.records import Record
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
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
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.core.batches import a_batch

OK = ErrorCode.NONE
TOPIC = "t"


class Line(Protocol):
    """Anything that carries a request to a broker and its answer back."""

    async def request(self, message: Any, version: int) -> Any:
        """Send it in this version."""


class SocketLine:
    """A connection over a real socket."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, bootstrap: str) -> "SocketLine":
        host, _, port = bootstrap.rpartition(":")
        return cls(await Connection.open(host, int(port), negotiates=False))

    async def request(self, message: Any, version: int) -> Any:
        return await self.connection.request(message, version=version, timeout=15)

    async def close(self) -> None:
        await self.connection.close()


def now_ms() -> int:
    """The time that a producer puts into its records."""
    return time.time_ns() // 1_000_000


class Wire:
    """What tests ask a broker for, and nothing that clients do by themselves."""

    def __init__(self, line: Line, *, clock: Callable[[], int] = now_ms) -> None:
        self.line = line
        self._clock = clock

    def ask(self, message: Any, version: int) -> Awaitable[Any]:
        """Any request in any version."""
        return self.line.request(message, version)

    # --- topics -----------------------------------------------------------------------------------

    async def create_topic(
        self, name: str = TOPIC, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> int:
        """The error code of a CreateTopics of one topic."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
        )
        reply = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        return int(reply.topics[0].error_code)

    async def delete_topic(self, name: str = TOPIC) -> int:
        reply = await self.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
        return int(reply.responses[0].error_code)

    async def add_partitions(self, name: str, count: int) -> int:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        reply = await self.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3)
        return int(reply.results[0].error_code)

    async def partition_count(self, name: str = TOPIC) -> int | None:
        """How many partitions the topic has; None where there is no such topic."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        (topic,) = (await self.ask(request, 9)).topics
        return None if topic.error_code else len(topic.partitions)

    async def delete_records(self, offset: int, name: str = TOPIC, partition: int = 0) -> int:
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=name, partitions=[part])
        reply = await self.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
        return int(reply.topics[0].partitions[0].error_code)

    # --- producing --------------------------------------------------------------------------------

    async def init_producer(self) -> int:
        """A fresh producer id."""
        reply: InitProducerIdResponse = await self.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
        )
        assert reply.error_code == 0, reply
        assert reply.producer_epoch == 0
        return reply.producer_id

    def batch(self, **wanted: Any) -> bytes:
        """A batch with the time of now."""
        return a_batch(timestamp_ms=self._clock(), **wanted)

    async def produce(
        self,
        batch: bytes | None,
        *,
        topic: str = TOPIC,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        """Send one batch to one partition."""
        (answer,) = await self.produce_all(
            {partition: batch},
            topic=topic,
            acks=acks,
            version=version,
            transactional_id=transactional_id,
        )
        return answer

    async def produce_all(
        self,
        batches: Mapping[int, bytes | None],
        *,
        topic: str = TOPIC,
        acks: int = -1,
        version: int = 9,
        transactional_id: str | None = None,
    ) -> Sequence[PartitionProduceResponse]:
        """Send batches to several partitions in one request."""
        request = a_produce(batches, topic=topic, acks=acks, transactional_id=transactional_id)
        reply = await self.ask(request, version)
        answers: Sequence[PartitionProduceResponse] = reply.responses[0].partition_responses
        return answers

    # --- reading ----------------------------------------------------------------------------------

    async def fetch(
        self, offset: int = 0, *, topic: str = TOPIC, partition: int = 0, version: int = 12,
        max_wait_ms: int = 0,
    ) -> PartitionData:  # fmt: skip
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 24,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        reply = await self.ask(request, version)
        data: PartitionData = reply.responses[0].partitions[0]
        return data

    async def until_end(self, end_offset: int) -> None:
        """Wait until so many records can be read."""
        reached = 0
        while reached < end_offset:
            data = await self.fetch(reached, max_wait_ms=10_000)
            assert data.high_watermark > reached, data
            reached = data.high_watermark

    async def records(self, topic: str = TOPIC, partition: int = 0) -> list[Record]:
        """All records of a partition, from its start to its high watermark."""
        found: list[Record] = []
        offset = (await self.list_offset(-2, topic, partition)).offset
        while True:
            data = await self.fetch(offset, topic=topic, partition=partition)
            assert data.error_code == 0, data
            read = [r for r in read_records(data.records or b"") if r.offset >= offset]
            if not read:
                assert offset == data.high_watermark
                return found
            found += read
            offset = read[-1].offset + 1

    async def values(self, topic: str = TOPIC, partition: int = 0) -> list[bytes | None]:
        """All values of a partition."""
        return [record.value for record in await self.records(topic, partition)]

    async def list_offset(
        self, timestamp: int, topic: str = TOPIC, partition: int = 0
    ) -> ListOffsetsPartitionResponse:
        """-1 asks for the end, -2 for the start, -3 for the largest time."""
        part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[part])])
        reply = await self.ask(request, 7)
        answer: ListOffsetsPartitionResponse = reply.topics[0].partitions[0]
        return answer

    async def end_offset(self, topic: str = TOPIC, partition: int = 0) -> int:
        return (await self.list_offset(-1, topic, partition)).offset


def a_produce(
    batches: Mapping[int, bytes | None],
    *,
    topic: str = TOPIC,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A Produce request with one batch for each partition."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=batch)
                    for index, batch in batches.items()
                ],
            )
        ],
    )


async def connect(bootstrap: str) -> Wire:
    """A wire over a socket."""
    return Wire(await SocketLine.open(bootstrap))


async def hang_up(*wires: Wire) -> None:
    """Close wires over sockets."""
    for wire in wires:
        assert isinstance(wire.line, SocketLine)
        await wire.line.close()


async def all_of(*requests: Awaitable[Any]) -> list[Any]:
    """Send several requests at once and wait for all of them."""
    return list(await asyncio.gather(*requests))
