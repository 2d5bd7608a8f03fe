"""A simulated member of a consumer group: joins, reads its share, commits, and joins again."""

import asyncio
from random import Random
from typing import Final

from oncelog.check.history import Op, Read, Record
from oncelog.testing.sim.client import RETRIABLE, Client, Part, Stage, part_name
from oncelog.testing.sim.reading import answers, as_read, delivered, fetch_request
from oncelog.testing.sim.world import Disconnected
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
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
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

#: After so long without a word a member is out.
SESSION_MS: Final = 2_000
#: So long a rebalance waits for those who have not joined again.
REBALANCE_S: Final = 3.0
#: How likely a member joins again for no reason, before each poll.
REJOINS: Final = 0.01


class Member(Client):
    """A member of a consumer group: joins, reads its share, commits, and joins again."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        rng: Random,
        *,
        group: str,
        parts: list[Part],
        patience_s: float,
    ) -> None:
        super().__init__(stage, name, rng, patience_s=patience_s)
        self._process = self._recorder.new_process()
        self._group = group
        self._parts = parts
        self._member_id = ""
        self._generation = -1
        #: What it says of itself: where that changes, the group has to begin a new generation.
        self.subscription = b""
        #: Where it reads next.
        self.positions: dict[Part, int] = {}
        self.delivered_count = 0
        #: Whether it reads as much as there is, and does nothing out of the ordinary.
        self.is_hurried = False

    async def work(self, stop: asyncio.Event) -> None:
        """Take part in the group until told to stop."""
        while not stop.is_set():
            try:
                await self.enter()
                await self._read(stop)
            except (Disconnected, Again):
                await self.pause()

    async def enter(self) -> None:
        """Join the group, and begin where it has come to."""
        mine = await self._join()
        self.positions = await self.committed(mine)
        at = {part_name(part): offset for part, offset in self.positions.items()}
        call = self._recorder.call(self._process, Op.ASSIGN, at=at)
        self._recorder.ok(call, at=at)

    async def _join(self) -> list[Part]:
        find = FindCoordinatorRequest(key=self._group, key_type=0)
        reply = await self.ask(find, 2)
        if reply.error_code:
            raise Again
        joined = await self._join_once()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await self._join_once()
        if joined.error_code:
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            raise Again
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(member.member_id for member in joined.members)
            for index, member_id in enumerate(members):
                share = self._parts[index :: len(members)]
                text = ",".join(f"{topic}:{partition}" for topic, partition in share)
                assignments.append(
                    SyncGroupRequestAssignment(member_id=member_id, assignment=text.encode())
                )
        synced = await self.ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="sim",
                assignments=assignments,
            ),
            5,
            more_s=REBALANCE_S,
        )
        if synced.error_code:
            raise Again
        pairs = [part.rpartition(":") for part in synced.assignment.decode().split(",") if part]
        return [(topic, int(partition)) for topic, _, partition in pairs]

    async def _join_once(self) -> JoinGroupResponse:
        reply: JoinGroupResponse = await self.ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=int(REBALANCE_S * 1000),
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="sim", metadata=self.subscription)],
            ),
            5,
            more_s=REBALANCE_S,
        )
        return reply

    async def committed(self, parts: list[Part]) -> dict[Part, int]:
        """How far the group has come, by what is stable."""
        topics: dict[str, list[int]] = {}
        for topic, partition in parts:
            topics.setdefault(topic, []).append(partition)
        if not topics:
            return {}
        asked = {part_name(part): None for part in parts}
        call = self._recorder.call(
            self._process, Op.COMMITTED, group=[self._group, self._generation, asked]
        )
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[
                OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in topics.items()
            ],
        )
        try:
            reply = await self.ask(OffsetFetchRequest(groups=[group], require_stable=True), 8)
            answer = reply.groups[0]
            partitions = [p for topic in answer.topics for p in topic.partitions]
            if answer.error_code or any(p.error_code for p in partitions):
                raise Again
        except (Disconnected, Again):
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
                {part_name(part): None if at < 0 else at for part, at in found.items()},
            ],
        )
        return {part: max(offset, 0) for part, offset in found.items()}

    async def audit(self, parts: list[Part]) -> None:
        """Ask how far the group has come, until there is an answer."""
        while True:
            try:
                find = FindCoordinatorRequest(key=self._group, key_type=0)
                await self.ask(find, 2)
                await self.committed(parts)
            except (Disconnected, Again):
                await self.pause()
            else:
                return

    def _give_up(self, call: int) -> None:
        """The outcome is unknown: the history knows this client under a new number from now on."""
        self._recorder.unknown(call, err="DISCONNECTED")
        self._process = self._recorder.new_process()

    async def _read(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if not await self._heartbeat():
                raise Again
            if not self.is_hurried and self._rng.random() < REJOINS:
                raise Again
            positions = self.positions
            if not positions:
                await asyncio.sleep(0.5)
                continue
            call = self._recorder.call(self._process, Op.POLL)
            # Small fetches begin in the middle of transactions and end there.
            max_bytes = 1 << 16 if self.is_hurried else self._rng.choice((1, 300, 1 << 16))
            request = fetch_request(positions, wait_ms=500, max_bytes=max_bytes)
            try:
                reply = await self.ask(request, 11)
            except Disconnected:
                self._give_up(call)
                raise
            read: dict[str, tuple[Record, ...]] = {}
            ranges: dict[Part, tuple[int, int]] = {}
            for part, answer in answers(reply):
                start = positions[part]
                records, positions[part] = delivered(answer, start)
                fresh = [as_read(record, self._stage.run) for record in records]
                if fresh:
                    read[part_name(part)] = tuple(fresh)
                    ranges[part] = (start, positions[part])
                    self.delivered_count += len(fresh)
            self._recorder.ok(call, [Read(read)] if read else [])
            if read and not await self.handle(ranges, sum(map(len, read.values()))):
                raise Again

    async def handle(self, read: dict[Part, tuple[int, int]], count: int) -> bool:
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
        reply = await self.ask(request, 3)
        if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        return bool(reply.error_code == 0)

    async def _commit(self, positions: dict[Part, int]) -> bool:
        offsets = {part_name(part): offset for part, offset in positions.items()}
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
            reply = await self.ask(request, 7)
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


class Again(Exception):
    """Join the group again."""
