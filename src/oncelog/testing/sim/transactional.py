"""A simulated transactional producer of either generation (V1, and V2 of KIP-890), in real frames.

It does what real clients do: tries again what may be tried again, aborts what cannot go on, and opens
a new identity when it is fenced. What it asked for and learnt goes into the history.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from oncelog.check.history import Op, Write
from oncelog.core.packing import encode_batch
from oncelog.testing.sim.client import RETRIABLE, Client, Part, Refused, Stage, part_name
from oncelog.testing.sim.plan import ACKS_ALL
from oncelog.testing.sim.world import Disconnected, SimConnection
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TRANSACTION: Final = 1
#: What a client of transactions simply tries again.
AGAIN: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}
#: How often a request is tried before its sender gives up and calls the outcome unknown.
TRIES: Final = 40


class Lost(Exception):
    """This identity can do no more: start anew."""


class Abortable(Exception):
    """This transaction cannot go on; the producer can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """Input that a transaction has consumed, as half-open ranges, and as whom."""

    group: str
    generation: int
    member_id: str
    ranges: dict[Part, tuple[int, int]]

    def recorded(self) -> list[object]:
        """As a history has it."""
        ranges = {part_name(part): list(span) for part, span in self.ranges.items()}
        return [self.group, self.generation, ranges]


@dataclass(slots=True)
class _Txn:
    """A transaction under way, as its producer knows it."""

    call: int
    number: int
    identity: tuple[int, int]
    offsets: GroupOffsets | None = None
    steps: list[Write] = field(default_factory=list)
    #: Whether a batch was sent of which nobody knows whether it is in the log, or will be.
    is_in_doubt: bool = False
    asked_end: str | None = None
    asked_at: int | None = None


class TxnProducer(Client):
    """Writes transactions under one transactional id."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        rng: Random,
        *,
        transactional_id: str,
        is_v2: bool,
        timeout_ms: int,
        patience_s: float,
        acks: int = ACKS_ALL,
        is_hasty: bool = False,
    ) -> None:
        super().__init__(stage, name, rng, patience_s=patience_s)
        self._process = self._recorder.new_process()
        self._transactional_id = transactional_id
        self._is_v2 = is_v2
        self._timeout_ms = timeout_ms
        self._acks = acks
        self._is_hasty = is_hasty
        #: Where the open transaction's batches went that nobody has said to be durable.
        self._relied_on: SimConnection | None = None
        self._identity: tuple[int, int] | None = None
        self._sequences: dict[Part, int] = {}
        self._number = 0
        self.committed_count = 0
        self.aborted_count = 0
        self.unknown_count = 0

    # --- one transaction ----------------------------------------------------------------------------

    async def transact(
        self,
        writes: Sequence[tuple[Part, int]],
        *,
        commit: bool,
        offsets: GroupOffsets | None = None,
        before_offsets: Callable[[], Awaitable[None]] | None = None,
        linger_s: float = 0.0,
        is_abandoned: bool = False,
        is_probe: bool = False,
    ) -> bool:
        """Write batches of so many values to these partitions, and a group's offsets: all or nothing.

        `linger_s` passes before the end is asked for; of one that is abandoned it never is. A probe
        is made after healing, and has to succeed. Says whether it was committed.
        """
        try:
            if self._identity is None:
                await self._open()
        except Lost:
            return False
        self._number += 1
        batches = [
            (part, [self._recorder.new_value() for _ in range(count)]) for part, count in writes
        ]
        planned = [Write(part_name(part), v) for part, values in batches for v in values]
        asked: dict[str, object] = {"tid": self._transactional_id}
        if is_probe:
            asked["probe"] = True
        call = self._recorder.call(self._process, Op.TXN, planned, **asked)
        assert self._identity is not None, "the producer is open"
        txn = _Txn(call, self._number, self._identity, offsets)
        try:
            await self._write_all(txn, batches)
            if before_offsets is not None:
                await before_offsets()
            if offsets is not None:
                await self._send_offsets(offsets)
            if is_abandoned:
                raise Lost
            await asyncio.sleep(linger_s)
            await self._end(txn, commit=commit)
        except Abortable:
            await self._give_up(txn)
        except Lost:
            self._record_unknown(txn, planned)
        else:
            self._record_end(txn, commit)
            return commit
        return False

    async def _write_all(self, txn: _Txn, batches: list[tuple[Part, list[int]]]) -> None:
        added: set[Part] = set()
        for part, values in batches:
            if not self._is_v2 and part not in added:
                await self._add_partition(part)
                added.add(part)
            offset = await self._write(txn, part, values)
            txn.steps += [
                Write(part_name(part), v, None if offset is None else offset + i)
                for i, v in enumerate(values)
            ]
            if not self._is_hasty:
                await asyncio.sleep(self._rng.choice((0, 0, 0.01, 0.3)))

    async def _give_up(self, txn: _Txn) -> None:
        """Abort what cannot go on; if even that cannot be done, start anew."""
        try:
            await self._end(txn, commit=False)
            if txn.is_in_doubt and not self._is_v2:
                # Before V2 the next transaction has the same epoch, and could take the batch in.
                self._identity = None
        except (Abortable, Lost):
            self._identity = None
        self._record_end(txn, False)

    def _record_end(self, txn: _Txn, commit: bool) -> None:
        self._relied_on = None
        fields = self._end_fields(txn, "commit" if commit else "abort")
        if commit:
            self.committed_count += 1
            self._recorder.ok(txn.call, txn.steps, **fields)
        else:
            self.aborted_count += 1
            # A commit that was never asked for had no effect, however the abort went.
            self._recorder.fail(txn.call, txn.steps, **fields)

    def _record_unknown(self, txn: _Txn, planned: list[Write]) -> None:
        self._identity = None
        if txn.asked_end != "commit":
            self.aborted_count += 1
            self._recorder.fail(txn.call, txn.steps, err="GIVEN_UP", tid=self._transactional_id)
            return
        self.unknown_count += 1
        written = {step.value: step for step in txn.steps}
        steps = [written.get(step.value, step) for step in planned]
        fields = self._end_fields(txn, "commit")
        self._recorder.unknown(txn.call, steps, err="UNKNOWN", **fields)
        self._process = self._recorder.new_process()

    def _end_fields(self, txn: _Txn, end: str) -> dict[str, object]:
        fields: dict[str, object] = {"end": end, "tc": txn.asked_at, "tid": self._transactional_id}
        fields["id"] = list(txn.identity)
        if txn.offsets is not None:
            fields["group"] = txn.offsets.recorded()
        return fields

    # --- requests -----------------------------------------------------------------------------------

    async def ask(self, message: Any, version: int, *, more_s: float = 0.0) -> Any:
        """As any client does; but not on another connection than it relies on."""
        await self.while_stopped()
        relied_on = self._relied_on
        if relied_on is not None and not relied_on.is_open:
            raise Lost
        try:
            return await super().ask(message, version, more_s=more_s)
        except Disconnected:
            if relied_on is not None:
                raise Lost from None
            raise

    async def _open(self) -> None:
        self._relied_on = None
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        call = self._recorder.call(self._process, Op.OPEN, tid=self._transactional_id)
        for tries in range(TRIES):
            try:
                if tries:
                    find = FindCoordinatorRequest(key=self._transactional_id, key_type=TRANSACTION)
                    await self.ask(find, 2)
                reply = await self.ask(request, 4)
                if reply.error_code == 0:
                    self._identity = (reply.producer_id, reply.producer_epoch)
                    self._sequences = {}
                    self._recorder.ok(call, id=list(self._identity), tid=self._transactional_id)
                    return
                if reply.error_code not in AGAIN:
                    raise Refused(f"{self.name}: InitProducerId answered {reply.error_code}")
            except Disconnected:
                pass
            await self.pause()
        self._recorder.unknown(call, err="TIMED_OUT", tid=self._transactional_id)
        self._process = self._recorder.new_process()
        raise Lost

    async def _add_partition(self, part: Part) -> None:
        topic, partition = part
        assert self._identity is not None, "the producer is open"
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        for _ in range(TRIES):
            try:
                reply = await self.ask(request, self._rng.randint(0, 3))
                topic_result = reply.results_by_topic_v3_and_below[0]
                code = topic_result.results_by_partition[0].partition_error_code
                if code == 0:
                    return
                self._check(code)
            except Disconnected:
                pass
            await self.pause()
        raise Lost

    async def _write(self, txn: _Txn, part: Part, values: list[int]) -> int | None:
        """Write a batch; returns its offset, or None where nobody is told."""
        assert self._identity is not None, "the producer is open"
        sequence = self._sequences.get(part, 0)
        index = len(txn.steps)
        records = [
            self._stage.record(process=self._process, number=txn.number, index=index + i, value=v)
            for i, v in enumerate(values)
        ]
        batch = encode_batch(
            records,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=part[1], records=batch)]
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=part[0], partition_data=data)],
        )
        version = 12 if self._is_v2 else self._rng.choice((9, 11))
        if self._acks == 0:
            await self._tell(request, version)
            self._sequences[part] = sequence + len(values)
            return None
        for _ in range(TRIES):
            try:
                reply = await self.ask(request, version)
                answer = reply.responses[0].partition_responses[0]
                if answer.error_code == 0:
                    if self._acks != ACKS_ALL:
                        self._relied_on = self._connection
                    self._sequences[part] = sequence + len(values)
                    txn.is_in_doubt = False
                    return int(answer.base_offset)
                self._check(answer.error_code)
            except Disconnected:
                pass
            txn.is_in_doubt = True
            await self.pause()
        raise Lost

    async def _tell(self, message: Any, version: int) -> None:
        """Send a request that has no answer. It was carried out if one behind it is answered."""
        await self.while_stopped()
        if self._relied_on is not None and not self._relied_on.is_open:
            raise Lost
        try:
            self._relied_on = self.connection()
            self._relied_on.tell(message, version)
        except Disconnected:
            raise Lost from None

    async def _send_offsets(self, offsets: GroupOffsets) -> None:
        assert self._identity is not None, "the producer is open"
        if not self._is_v2:
            await self._retry(
                AddOffsetsToTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self._identity[0],
                    producer_epoch=self._identity[1],
                    group_id=offsets.group,
                ),
                3,
                lambda reply: int(reply.error_code),
            )
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), (_, end) in offsets.ranges.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=end)
            )
        await self._retry(
            TxnOffsetCommitRequest(
                transactional_id=self._transactional_id,
                group_id=offsets.group,
                producer_id=self._identity[0],
                producer_epoch=self._identity[1],
                generation_id=offsets.generation,
                member_id=offsets.member_id,
                topics=[
                    TxnOffsetCommitRequestTopic(name=name, partitions=parts)
                    for name, parts in topics.items()
                ],
            ),
            5 if self._is_v2 else 3,
            lambda reply: max(p.error_code for t in reply.topics for p in t.partitions),
        )

    async def _retry(self, request: Any, version: int, code_of: Callable[[Any], int]) -> None:
        for _ in range(TRIES):
            try:
                code = code_of(await self.ask(request, version))
                if code == 0:
                    return
                self._check(code)
            except Disconnected:
                pass
            await self.pause()
        raise Lost

    async def _end(self, txn: _Txn, *, commit: bool) -> None:
        assert self._identity is not None, "the producer is open"
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=commit,
        )
        if txn.asked_end is None:
            txn.asked_end = "commit" if commit else "abort"
            txn.asked_at = int(asyncio.get_running_loop().time() * 1e9)
        was_lost = False
        for _ in range(TRIES):
            try:
                reply = await self.ask(request, 5 if self._is_v2 else 3)
                if reply.error_code == 0:
                    if self._is_v2:
                        self._identity = (reply.producer_id, reply.producer_epoch)
                        self._sequences = {}
                    return
                self._check(reply.error_code, is_end=was_lost)
            except Disconnected:
                was_lost = True
            await self.pause()
        raise Lost

    def _check(self, code: int, *, is_end: bool = False) -> None:
        """Sort an error: try again, abort, or start anew."""
        if code in AGAIN:
            return
        if is_end or code in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ):
            raise Lost
        raise Abortable
