"""Simulated clients: an idempotent producer and a group member, speaking real frames.

They do what real clients do and no more: retry with the same sequence numbers, rejoin when told to,
commit what they have read. What they asked for and what they learnt goes into the history.
"""

import asyncio
from random import Random

from oncelog.check.history import Op, Read, Record, Write
from oncelog.check.payload import Payload, encode_payload, value_of
from oncelog.check.recorder import Recorder
from oncelog.core.packing import encode_batch, is_commit, read_batches
from oncelog.core.records import Record as LogRecord
from oncelog.testing.sim.world import Disconnected, SimBroker, SimConnection
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

#: Answers after which a producer sends the same batch again.
RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Refused(Exception):
    """The broker said no, and meant it."""


class Client:
    """Keeps a connection, opening it again when it breaks."""

    def __init__(self, broker: SimBroker, name: str, rng: Random) -> None:
        self._broker = broker
        self._name = name
        self._rng = rng
        self._connection: SimConnection | None = None

    def connection(self) -> SimConnection:
        """The connection, or a new one."""
        if self._connection is None or not self._connection.is_open:
            self._connection = SimConnection(self._broker, self._name)
        return self._connection

    async def pause(self) -> None:
        """Back off as clients do."""
        await asyncio.sleep(self._rng.uniform(0.02, 0.2))


class Producer(Client):
    """An idempotent producer with one batch in flight per partition."""

    def __init__(
        self, broker: SimBroker, name: str, rng: Random, recorder: Recorder, run: int
    ) -> None:
        super().__init__(broker, name, rng)
        self._recorder = recorder
        self._process = recorder.new_process()
        self._run = run
        self._producer_id = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self.acknowledged_count = 0

    async def open(self) -> None:
        """Get a producer id."""
        while self._producer_id < 0:
            try:
                request = InitProducerIdRequest(transactional_id=None)
                reply = await self.connection().request(request, 4)
                if reply.error_code not in (0, *RETRIABLE):
                    raise Refused(f"{self._name}: InitProducerId answered {reply.error_code}")
                self._producer_id = reply.producer_id
            except Disconnected:
                await self.pause()

    async def send(self, topic: str, partition: int, count: int, number: int) -> None:
        """Send `count` values in one batch, again and again until it is acknowledged."""
        values = [self._recorder.new_value() for _ in range(count)]
        part = f"{topic}:{partition}"
        call = self._recorder.call(self._process, Op.SEND, [Write(part, v) for v in values])
        records = [
            LogRecord(
                0,
                self._broker.clock.now().wall_ms,
                None,
                encode_payload(
                    Payload(
                        run=self._run,
                        process=self._process,
                        txn_number=number,
                        index=index,
                        value=value,
                    )
                ),
            )
            for index, value in enumerate(values)
        ]
        sequence = self._sequences.get((topic, partition), 0)
        batch = encode_batch(
            records, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
        )
        offset = await self._deliver(topic, partition, batch)
        self._sequences[topic, partition] = sequence + count
        self.acknowledged_count += count
        self._recorder.ok(
            call, [Write(part, value, offset + index) for index, value in enumerate(values)]
        )

    async def _deliver(self, topic: str, partition: int, batch: bytes) -> int:
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        while True:
            try:
                reply = await self.connection().request(request, self._rng.randint(3, 12))
                answer = reply.responses[0].partition_responses[0]
                if answer.error_code == 0:
                    return int(answer.base_offset)
                if answer.error_code not in RETRIABLE:
                    raise Refused(f"{self._name}: Produce answered {answer.error_code}")
            except Disconnected:
                pass
            await self.pause()


class Reader(Client):
    """Reads one partition from its beginning to its end, alone."""

    async def read(self, topic: str, partition: int, run: int) -> tuple[list[Record], int]:
        """Everything that is there, and the end that was reached."""
        found: list[Record] = []
        offset = 0
        while True:
            try:
                end = await self._end(topic, partition)
                if offset >= end:
                    return found, end
                request = fetch_request({(topic, partition): offset}, wait_ms=10)
                reply = await self.connection().request(request, 11)
                for answer in reply.responses[0].partitions:
                    records, offset = committed_records(answer, offset)
                    found += [
                        Record(record.offset, value_of(record.value or b"", run=run))
                        for record in records
                    ]
            except Disconnected:
                await self.pause()

    async def _end(self, topic: str, partition: int) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)],
                )
            ],
        )
        while True:
            reply = await self.connection().request(request, 3)
            answer = reply.topics[0].partitions[0]
            if answer.error_code == 0:
                return int(answer.offset)
            await self.pause()


def committed_records(answer: PartitionData, offset: int) -> tuple[list[LogRecord], int]:
    """What a read_committed consumer delivers from a fetch, and where it goes on.

    An aborted transaction begins to count with the first batch at or after its first offset, and
    ends with its ABORT marker. Markers are not delivered, but they take an offset.
    """
    waiting = sorted((t.first_offset, t.producer_id) for t in answer.aborted_transactions or ())
    aborted: set[int] = set()
    found: list[LogRecord] = []
    for header, records in read_batches(answer.records or b""):
        while waiting and waiting[0][0] <= header.last_offset:
            aborted.add(waiting.pop(0)[1])
        if header.is_control:
            if records and not is_commit(records[0]):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [record for record in records if record.offset >= offset]
        offset = max(offset, header.next_offset)
    return found, offset


def fetch_request(positions: dict[tuple[str, int], int], *, wait_ms: int) -> FetchRequest:
    """A fetch without a session."""
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        topics.setdefault(topic, []).append(
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 16)
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_epoch=-1,
        topics=[FetchTopic(topic=t, partitions=p) for t, p in topics.items()],
    )


class Member(Client):
    """A member of a consumer group: joins, reads its share, commits, and joins again."""

    def __init__(
        self,
        broker: SimBroker,
        name: str,
        rng: Random,
        recorder: Recorder,
        *,
        group: str,
        parts: list[tuple[str, int]],
        run: int,
    ) -> None:
        super().__init__(broker, name, rng)
        self._recorder = recorder
        self._process = recorder.new_process()
        self._group = group
        self._parts = parts
        self._run = run
        self._member_id = ""
        self._generation = -1
        self.delivered_count = 0
        self.generations: list[int] = []

    async def work(self, stop: asyncio.Event) -> None:
        """Take part in the group until told to stop."""
        while not stop.is_set():
            try:
                mine = await self._join()
                positions = await self._committed(mine)
                self._recorder.note(
                    Op.ASSIGN,
                    process=self._process,
                    at={f"{t}:{p}": offset for (t, p), offset in positions.items()},
                )
                await self._read(positions, stop)
            except (Disconnected, _Again):
                await self.pause()

    async def _join(self) -> list[tuple[str, int]]:
        find = FindCoordinatorRequest(key=self._group, key_type=0)
        reply = await self.connection().request(find, 2)
        if reply.error_code:
            raise _Again
        joined = await self._join_once()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await self._join_once()
        if joined.error_code:
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            raise _Again
        self._member_id, self._generation = joined.member_id, joined.generation_id
        self.generations.append(self._generation)
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(member.member_id for member in joined.members)
            for index, member_id in enumerate(members):
                share = self._parts[index :: len(members)]
                text = ",".join(f"{topic}:{partition}" for topic, partition in share)
                assignments.append(
                    SyncGroupRequestAssignment(member_id=member_id, assignment=text.encode())
                )
        synced = await self.connection().request(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="sim",
                assignments=assignments,
            ),
            5,
        )
        if synced.error_code:
            raise _Again
        pairs = [part.rpartition(":") for part in synced.assignment.decode().split(",") if part]
        return [(topic, int(partition)) for topic, _, partition in pairs]

    async def _join_once(self) -> JoinGroupResponse:
        reply: JoinGroupResponse = await self.connection().request(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=6000,
                rebalance_timeout_ms=6000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="sim", metadata=b"")],
            ),
            5,
        )
        return reply

    async def _committed(self, parts: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        topics: dict[str, list[int]] = {}
        for topic, partition in parts:
            topics.setdefault(topic, []).append(partition)
        if not topics:
            return {}
        call = self._recorder.call(self._process, Op.COMMITTED)
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[
                OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in topics.items()
            ],
        )
        try:
            reply = await self.connection().request(
                OffsetFetchRequest(groups=[group], require_stable=True), 8
            )
            answer = reply.groups[0]
            if answer.error_code:
                raise _Again
        except (Disconnected, _Again):
            self._give_up(call)
            raise
        found = {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in answer.topics
            for partition in topic.partitions
        }
        self._recorder.ok(
            call,
            group=[
                self._group,
                self._generation,
                {f"{t}:{p}": None if offset < 0 else offset for (t, p), offset in found.items()},
            ],
        )
        return {part: max(offset, 0) for part, offset in found.items()}

    def _give_up(self, call: int) -> None:
        """The outcome is unknown: the history knows this client under a new number from now on."""
        self._recorder.unknown(call, err="DISCONNECTED")
        self._process = self._recorder.new_process()

    async def _read(self, positions: dict[tuple[str, int], int], stop: asyncio.Event) -> None:
        while not stop.is_set():
            if not await self._heartbeat():
                raise _Again
            if not positions:
                await asyncio.sleep(0.5)
                continue
            call = self._recorder.call(self._process, Op.POLL)
            try:
                reply = await self.connection().request(fetch_request(positions, wait_ms=500), 11)
            except Disconnected:
                self._give_up(call)
                raise
            read: dict[str, tuple[Record, ...]] = {}
            ranges: dict[tuple[str, int], tuple[int, int]] = {}
            for topic in reply.responses:
                for answer in topic.partitions:
                    part = (topic.topic, answer.partition_index)
                    start = positions[part]
                    records, positions[part] = committed_records(answer, start)
                    fresh = [
                        Record(r.offset, value_of(r.value or b"", run=self._run)) for r in records
                    ]
                    if fresh:
                        read[f"{part[0]}:{part[1]}"] = tuple(fresh)
                        ranges[part] = (start, positions[part])
                        self.delivered_count += len(fresh)
            self._recorder.ok(call, [Read(read)] if read else [])
            if read and not await self.handle(ranges, sum(map(len, read.values()))):
                raise _Again

    async def handle(self, read: dict[tuple[str, int], tuple[int, int]], count: int) -> bool:
        """Do with the records what a consumer does: here, note how far it has come."""
        return await self._commit({part: end for part, (_, end) in read.items()})

    @property
    def group_id(self) -> str:
        """The group that it is in."""
        return self._group

    @property
    def generation(self) -> int:
        """The generation that it joined last."""
        return self._generation

    @property
    def member_id(self) -> str:
        """What the group calls it."""
        return self._member_id

    async def _heartbeat(self) -> bool:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id
        )
        reply = await self.connection().request(request, 3)
        if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        return bool(reply.error_code == 0)

    async def _commit(self, positions: dict[tuple[str, int], int]) -> bool:
        offsets = {f"{t}:{p}": offset for (t, p), offset in positions.items()}
        call = self._recorder.call(
            self._process, Op.COMMIT, group=[self._group, self._generation, offsets]
        )
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in positions.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
        )
        try:
            reply = await self.connection().request(request, 7)
        except Disconnected:
            self._give_up(call)
            raise
        codes = {p.error_code for topic in reply.topics for p in topic.partitions}
        if codes == {0}:
            self._recorder.ok(call, group=[self._group, self._generation, offsets])
            return True
        if codes & RETRIABLE:
            self._give_up(call)
        else:
            self._recorder.fail(call, err=str(sorted(codes)))
        return False


class _Again(Exception):
    """Join the group again."""
