"""Finished record batches on their way to the brokers, with all duties of an idempotent producer.

Whoever calls has a producer id and an epoch and brings batches that lack only these and their
sequence numbers. Each partition has a lane: its batches get consecutive sequence numbers from 0, the
first goes alone, then a few are under way at once. When one is not accepted for a reason that
passes (a leader moved, the coordinator is busy, a connection broke), the lane waits until all that
are under way have been answered, and sends again from there, in order, one at a time: a broker
answers a repeat with the offset of the original.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from oncelog.client.cluster import Cluster
from oncelog.client.connection import Connection
from oncelog.client.errors import ClientError, Refused, describe
from oncelog.core.batch import MAX_SEQUENCE, Buffer
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

#: What brokers allow of one idempotent producer and partition.
_UNDER_WAY_MAX: Final = 5
#: How many batches are held at once, over all partitions.
_QUEUED_MAX: Final = 32
#: How long a broker may wait for its replicas.
_BROKERS_PATIENCE_MS: Final = 30_000
#: The last Produce before transactions V2, and the last that names topics.
_PRODUCE_V1: Final = 11
_PRODUCE_V2: Final = 12
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5

_LEADER_NOT_AVAILABLE: Final = 5
_NETWORK_EXCEPTION: Final = 13
_NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20

#: The batch may be sent again as it is.
PASSING: Final = frozenset(
    {
        _LEADER_NOT_AVAILABLE,
        _NETWORK_EXCEPTION,
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        int(ErrorCode.REQUEST_TIMED_OUT),
        int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        int(ErrorCode.NOT_COORDINATOR),
        int(ErrorCode.NOT_ENOUGH_REPLICAS),
        _NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        int(ErrorCode.CONCURRENT_TRANSACTIONS),
        int(ErrorCode.KAFKA_STORAGE_ERROR),
    }
)

#: Puts producer id, epoch and a first sequence number into a batch, and its checksum.
Stamp = Callable[[Buffer, int], Buffer]


class NotSent(ClientError):
    """A batch that was not accepted within the time allowed; its outcome is unknown."""


class WrittenBefore(ClientError):
    """The broker answered with an old offset: somebody else has written under this identity."""


@dataclass(slots=True)
class Written:
    """What a partition has taken."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(frozen=True, slots=True)
class _Batch:
    content: Buffer
    records: int
    sequence: int


class Sender:
    """Make one for each task, `send` batches, and `finish`; `close` it in any case."""

    def __init__(
        self,
        cluster: Cluster,
        stamp: Stamp,
        *,
        transactional_id: str | None = None,
        is_v2: bool = False,
        acks: int = -1,
        patience_s: float = 60.0,
    ) -> None:
        """`patience_s` is how long one batch may be tried; 0 allows one try."""
        self.patience_s = patience_s
        self._cluster = cluster
        self._stamp = stamp
        self._transactional_id = transactional_id
        self._version = _PRODUCE_V2 if is_v2 else _PRODUCE_V1
        self._acks = acks
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._room = asyncio.Semaphore(_QUEUED_MAX)

    async def send(
        self, place: TopicPartition, content: Buffer, records: int, *, not_before: int = 0
    ) -> None:
        """Queue a batch; waits while many are under way, and raises what went wrong with any.

        If the first batch of a partition gets an offset below `not_before`, the end of the
        partition as the caller saw it, somebody else has written it.
        """
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(self, place, not_before)
        await self._room.acquire()
        self._raise_problem()
        lane.add(content, records)

    async def finish(self) -> dict[TopicPartition, Written]:
        """Wait until everything is accepted, and say where it is."""
        for lane in self._lanes.values():
            await lane.finish()
        self._raise_problem()
        return {place: lane.written for place, lane in self._lanes.items()}

    async def close(self) -> None:
        """Stop; what is under way may or may not arrive."""
        for lane in self._lanes.values():
            await lane.stop()

    def _raise_problem(self) -> None:
        for lane in self._lanes.values():
            if lane.problem is not None:
                raise lane.problem

    # --- for the lanes ---

    def make_room(self) -> None:
        """A batch has been answered for good."""
        self._room.release()

    async def post(self, place: TopicPartition, batch: _Batch) -> PartitionProduceResponse:
        """One try with one batch."""
        connection = await self._leader(place)
        data = PartitionProduceData(
            index=place.partition, records=self._stamp(batch.content, batch.sequence)
        )
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=_BROKERS_PATIENCE_MS,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
        reply = await connection.request(request, at_most=self._version)
        answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
        return answer

    def forget_leader(self, place: TopicPartition) -> None:
        """It was not the leader, or cannot be reached: ask anew before the next try."""
        self._leaders.pop(place, None)

    async def _leader(self, place: TopicPartition) -> Connection:
        node_id = self._leaders.get(place)
        if node_id is None:
            (node_id,) = await self._cluster.leaders([place])
            self._leaders[place] = node_id
        return await self._cluster.node(node_id)


class _Lane:
    """The batches of one partition, in order."""

    def __init__(self, sender: Sender, place: TopicPartition, not_before: int) -> None:
        self.written = Written()
        self.problem: ClientError | None = None
        self._sender = sender
        self._place = place
        self._not_before = not_before
        self._sequence = 0
        self._queue: deque[_Batch] = deque()
        self._is_finishing = False
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def add(self, content: Buffer, records: int) -> None:
        self._queue.append(_Batch(content, records, self._sequence))
        self._sequence = (self._sequence + records) & MAX_SEQUENCE
        self._changed.set()

    async def finish(self) -> None:
        self._is_finishing = True
        self._changed.set()
        await self._task

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while await self._has_more():
                if self.written.records == 0:
                    await self._insist([self._queue.popleft()])
                else:
                    await self._stream()
        except ClientError as error:
            self.problem = error
            # Nobody shall wait for room that a broken lane keeps.
            for _ in range(_QUEUED_MAX):
                self._sender.make_room()

    async def _has_more(self) -> bool:
        while not self._queue and not self._is_finishing:
            self._changed.clear()
            await self._changed.wait()
        return bool(self._queue)

    async def _stream(self) -> None:
        """Keep a few batches under way until the queue is empty or one is not accepted."""
        under_way: deque[tuple[_Batch, asyncio.Task[PartitionProduceResponse]]] = deque()
        try:
            while self._queue or under_way:
                while self._queue and len(under_way) < _UNDER_WAY_MAX:
                    batch = self._queue.popleft()
                    task = asyncio.create_task(self._sender.post(self._place, batch))
                    under_way.append((batch, task))
                batch, task = under_way[0]
                await asyncio.wait([task])
                if not self._is_accepted(batch, task):
                    await asyncio.wait([task for _, task in under_way])
                    await self._insist([batch for batch, _ in under_way])
                    return
                under_way.popleft()
        finally:
            for _, task in under_way:
                task.cancel()
            await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)

    async def _insist(self, batches: list[_Batch]) -> None:
        """Send each until it is accepted, one at a time."""
        loop = asyncio.get_running_loop()
        for batch in batches:
            deadline = loop.time() + self._sender.patience_s
            pause = _FIRST_PAUSE_S
            while True:
                task = asyncio.ensure_future(self._sender.post(self._place, batch))
                await asyncio.wait([task])
                if self._is_accepted(batch, task):
                    break
                if loop.time() + pause > deadline:
                    raise NotSent(
                        f"Partition {self._place} did not take a batch within "
                        f"{self._sender.patience_s:g} s: {_problem(task)}"
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _is_accepted(self, batch: _Batch, task: "asyncio.Task[PartitionProduceResponse]") -> bool:
        """Note where a batch is; False if it must be sent again, and raises what will not pass."""
        error = task.exception()
        if error is not None:
            if isinstance(error, Refused) and error.code not in PASSING:
                raise error
            if not isinstance(error, ClientError):
                raise error
            self._sender.forget_leader(self._place)
            return False
        answer = task.result()
        if answer.error_code in PASSING:
            self._sender.forget_leader(self._place)
            return False
        if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.written.records:
            # One before it is missing: that one is sent again first.
            return False
        if answer.error_code:
            raise Refused(answer.error_code, f"Partition {self._place}", answer.error_message)
        self._note(batch, answer.base_offset)
        return True

    def _note(self, batch: _Batch, offset: int) -> None:
        if self.written.records == 0:
            if 0 <= offset < self._not_before:
                raise WrittenBefore(
                    f"Partition {self._place} answered with offset {offset}, though its end was "
                    f"{self._not_before}: this has been written before."
                )
            self.written.first_offset = offset
        self.written.records += batch.records
        self.written.last_offset = offset + batch.records - 1
        self._sender.make_room()


def _problem(task: "asyncio.Task[PartitionProduceResponse]") -> str:
    error = task.exception()
    return str(error) if error is not None else describe(task.result().error_code)
