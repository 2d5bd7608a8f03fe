"""A simulated idempotent producer: up to five batches in flight, sent again until acknowledged."""

from random import Random
from typing import Final

from oncelog.check.history import Op, Write
from oncelog.core.packing import encode_batch
from oncelog.testing.sim.client import RETRIABLE, Admitted, Client, Part, Refused, Stage, part_name
from oncelog.testing.sim.world import Disconnected
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

#: How many batches an idempotent producer may have in flight.
IN_FLIGHT: Final = 5
#: More sequences than it ever sends: a batch so far ahead never becomes the next one.
GAP: Final = 1 << 20


class Producer(Client):
    """Sends batches to one partition at a time."""

    def __init__(self, stage: Stage, name: str, rng: Random, *, patience_s: float) -> None:
        super().__init__(stage, name, rng, patience_s=patience_s)
        self._process = self._recorder.new_process()
        self._producer_id = -1
        self._sequences: dict[Part, int] = {}
        self.acknowledged: dict[str, int] = {}

    async def open(self) -> None:
        """Get a producer id."""
        while self._producer_id < 0:
            try:
                reply = await self.ask(InitProducerIdRequest(transactional_id=None), 4)
                if reply.error_code not in (0, *RETRIABLE):
                    raise Refused(f"{self.name}: InitProducerId answered {reply.error_code}")
                if reply.error_code == 0:
                    self._producer_id = reply.producer_id
                    return
            except Disconnected:
                pass
            await self.pause()

    async def send(self, part: Part, sizes: list[int], number: int) -> None:
        """Send batches of these sizes back to back, again until each is acknowledged."""
        if part not in self._sequences:
            # Without any state a broker takes a later batch for the first, should that one fail.
            sizes = sizes[:1]
        values = [[self._recorder.new_value() for _ in range(size)] for size in sizes]
        name = part_name(part)
        call = self._recorder.call(
            self._process, Op.SEND, [Write(name, value) for batch in values for value in batch]
        )
        requests = []
        sequence = self._sequences.get(part, 0)
        for batch in values:
            requests.append(self._request(part, batch, sequence, number))
            sequence += len(batch)
        offsets = await self._deliver(requests)
        self._sequences[part] = sequence
        self.acknowledged[name] = self.acknowledged.get(name, 0) + sum(sizes)
        self._recorder.ok(
            call,
            [
                Write(name, value, offset + index)
                for batch, offset in zip(values, offsets, strict=True)
                for index, value in enumerate(batch)
            ],
        )

    async def skip(self, part: Part, number: int) -> None:
        """Send a batch that leaves many sequences out: it is refused, whenever it arrives."""
        if part not in self._sequences:
            return  # Without any state a broker takes it for the first.
        value, name = self._recorder.new_value(), part_name(part)
        call = self._recorder.call(self._process, Op.SEND, [Write(name, value)])
        request = self._request(part, [value], self._sequences[part] + GAP, number)
        try:
            reply = await self.ask(request, 9)
            code = reply.responses[0].partition_responses[0].error_code
            if code == 0:
                raise Admitted(f"{self.name}: {name} took a batch that leaves {GAP} sequences out")
            if code not in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, *RETRIABLE):
                raise Refused(f"{self.name}: a batch out of order was answered with {code}")
        except Disconnected:
            pass
        self._recorder.fail(call, [Write(name, value)], err="OUT_OF_ORDER_SEQUENCE_NUMBER")

    def _request(self, part: Part, values: list[int], sequence: int, number: int) -> ProduceRequest:
        records = [
            self._stage.record(process=self._process, number=number, index=index, value=value)
            for index, value in enumerate(values)
        ]
        batch = encode_batch(
            records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
        )
        data = [PartitionProduceData(index=part[1], records=batch)]
        topics = [TopicProduceData(name=part[0], partition_data=data)]
        return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)

    async def _deliver(self, requests: list[ProduceRequest]) -> list[int]:
        offsets: dict[int, int] = {}
        while len(offsets) < len(requests):
            left = [index for index in range(len(requests)) if index not in offsets]
            try:
                await self._round(requests, left, offsets)
            except Disconnected:
                pass
            if len(offsets) < len(requests):
                await self.pause()
        return [offsets[index] for index in range(len(requests))]

    async def _round(
        self, requests: list[ProduceRequest], left: list[int], offsets: dict[int, int]
    ) -> None:
        """Send what is left, all at once, and take the answers as they come."""
        await self.while_stopped()
        version = self._rng.randint(3, 12)
        futures = [self.connection().send(requests[index], version) for index in left]
        has_failed = False
        for index, future in zip(left, futures, strict=True):
            reply = await self.answer(future)
            await self.while_stopped()
            answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
            if answer.error_code == 0:
                offsets[index] = int(answer.base_offset)
            elif answer.error_code in RETRIABLE:
                has_failed = True
            elif not (has_failed and answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
                raise Refused(f"{self.name}: Produce answered {answer.error_code}")
