"""Fetch (1), versions 4-18: read record batches.

4 isolation level, last stable offset, aborted transactions; 5 log start offset; 7 sessions; 9 leader
epoch of the client; 11 rack, preferred replica (we have one, so it is never named); 12 flexible,
truncation detection; 13 topics by id; 15 replica state; 16 node endpoints; 17 directory id;
18 high watermark of the client.

Bytes go from the file to the socket untouched. A fetch waits until `min_bytes` are there or
`max_wait_ms` has passed; every advance of a high watermark that it watches makes it look again.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, FencedLeaderEpoch, UnknownLeaderEpoch
from oncelog.core.types import TopicPartition
from oncelog.runtime.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchKey,
    FetchSession,
    FetchTarget,
)
from oncelog.runtime.node import Node
from oncelog.runtime.partition import Partition, ReadBatches
from oncelog.wire.errors import error_code
from oncelog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

FIRST_BY_ID: Final = 13
READ_COMMITTED: Final = 1
#: A waiting fetch holds no data, but a client may not wait for ever.
MAX_WAIT_MS: Final = 300_000


async def handle(node: Node, request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Read now, or wait for more and read again."""
    try:
        session, targets = _targets(node, request)
    except BrokerError as error:
        return FetchResponse(error_code=error_code(error), session_id=NO_SESSION)
    plan = _Plan(node, request, context, targets)
    if not plan.is_satisfied():
        await plan.wait(min(max(request.max_wait_ms, 0), MAX_WAIT_MS))
    return plan.answer(session)


def check_leader_epoch(partition: Partition, known: int) -> None:
    """Refuse a client that is behind our leader epoch, or ahead of it (KIP-320)."""
    if known < 0 or known == partition.leader_epoch:
        return
    if known < partition.leader_epoch:
        raise FencedLeaderEpoch(
            f"{partition.topic_partition} is at leader epoch {partition.leader_epoch}, not {known}"
        )
    raise UnknownLeaderEpoch(
        f"{partition.topic_partition} is at leader epoch {partition.leader_epoch}, not yet {known}"
    )


def _targets(
    node: Node, request: FetchRequest
) -> tuple[FetchSession | None, dict[FetchKey, FetchTarget]]:
    """What to read: all that the request names, or what its session remembers."""
    named = {
        FetchKey(topic.topic, topic.topic_id, partition.partition): FetchTarget(
            fetch_offset=partition.fetch_offset,
            max_bytes=partition.partition_max_bytes,
            current_leader_epoch=partition.current_leader_epoch,
            last_fetched_epoch=partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    if request.session_epoch == FINAL_EPOCH:
        node.fetch_sessions.close(request.session_id)
        return None, named
    if request.session_epoch == INITIAL_EPOCH:
        node.fetch_sessions.close(request.session_id)
        session = node.fetch_sessions.create()
        if session is not None:
            session.targets = named
        return session, named
    session = node.fetch_sessions.resume(request.session_id, request.session_epoch)
    for key, target in named.items():
        known = session.targets.get(key)
        target.told = known.told if known else None
        session.targets[key] = target
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.targets.pop(FetchKey(forgotten.topic, forgotten.topic_id, index), None)
    return session, session.targets


@dataclass(slots=True)
class _Found:
    """A partition that can be read, or why it cannot."""

    key: FetchKey
    target: FetchTarget
    partition: Partition | None
    error: BrokerError | None = None
    diverging: EpochEndOffset | None = None


class _Plan:
    """One fetch: which partitions, how much, until when."""

    def __init__(
        self,
        node: Node,
        request: FetchRequest,
        context: RequestContext,
        targets: dict[FetchKey, FetchTarget],
    ) -> None:
        self._node = node
        self._by_id = context.version >= FIRST_BY_ID
        self._min_bytes = request.min_bytes
        self._max_bytes = min(max(request.max_bytes, 0), node.config.fetch_max_bytes)
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._found = [self._find(key, target) for key, target in targets.items()]
        self._woken = asyncio.Event()

    def _find(self, key: FetchKey, target: FetchTarget) -> _Found:
        found = _Found(key, target, None)
        try:
            if self._by_id:
                partition = self._node.partition_by_id(key.topic_id, key.partition)
            else:
                partition = self._node.logs.get(TopicPartition(key.topic, key.partition))
            found.partition = partition
            self._check(found, partition)
        except BrokerError as error:
            found.error = error
        return found

    def _check(self, found: _Found, partition: Partition) -> None:
        partition.check_online()
        check_leader_epoch(partition, found.target.current_leader_epoch)
        found.diverging = _divergence(partition, found.target)
        if found.diverging is None:
            partition.check_range(found.target.fetch_offset)

    def is_satisfied(self) -> bool:
        """Whether there is a reason to answer now."""
        if self._min_bytes <= 0 or not self._found:
            return True
        available = 0
        for found in self._found:
            if found.error is not None or found.diverging is not None:
                return True
            assert found.partition is not None, "no error, so a partition"
            if found.partition.offline is not None:
                return True
            available += found.partition.available_bytes(
                found.target.fetch_offset, committed_only=self._committed_only
            )
            if available >= self._min_bytes:
                return True
        return False

    async def wait(self, wait_ms: int) -> None:
        """Sleep until there is enough to read, or the time is over."""
        partitions = [found.partition for found in self._found if found.partition is not None]
        for partition in partitions:
            partition.watch(self._woken.set)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not self.is_satisfied():
                    self._woken.clear()
                    await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            for partition in partitions:
                partition.unwatch(self._woken.set)

    def answer(self, session: FetchSession | None) -> FetchResponse:
        """Read, and say what is there."""
        topics: dict[tuple[str, object], FetchableTopicResponse] = {}
        left = self._max_bytes
        is_first = True
        incremental = session is not None and session.epoch != INITIAL_EPOCH
        for found in self._found:
            data = self._read(found, left, is_first)
            size = len(data.records or b"")
            left -= size
            is_first = is_first and size == 0
            told = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
            is_news = size > 0 or data.error_code != 0 or told != found.target.told
            if incremental and not is_news and found.diverging is None:
                continue
            # An error is told again with the next fetch, should it last.
            found.target.told = None if data.error_code else told
            key = found.key
            topic = topics.setdefault(
                (key.topic, key.topic_id),
                FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[]),
            )
            assert isinstance(topic.partitions, list), "made three lines above"
            topic.partitions.append(data)
        return FetchResponse(
            session_id=session.session_id if session else NO_SESSION,
            responses=list(topics.values()),
        )

    def _read(self, found: _Found, left: int, is_first: bool) -> PartitionData:
        error, partition = found.error, found.partition
        batches = ReadBatches(b"", ())
        if error is None and found.diverging is None:
            assert partition is not None, "no error, so a partition"
            try:
                batches = partition.read(
                    found.target.fetch_offset,
                    max_bytes=min(left, max(found.target.max_bytes, 0)),
                    # A first batch above the limits is delivered all the same: progress first.
                    whole_first=is_first,
                    committed_only=self._committed_only,
                )
            except BrokerError as raised:
                error = raised
        if error is not None or partition is None:
            return PartitionData(
                partition_index=found.key.partition,
                error_code=error_code(error) if error else 0,
                high_watermark=-1,
                # As Kafka has it: no list where the partition is there, an empty one where not.
                aborted_transactions=[] if partition is None else None,
                records=b"",
            )
        return PartitionData(
            partition_index=found.key.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            diverging_epoch=found.diverging or EpochEndOffset(),
            aborted_transactions=_aborted(batches) if self._committed_only else None,
            records=batches.data,
        )


def _aborted(batches: ReadBatches) -> list[AbortedTransaction]:
    """The aborted transactions in what is returned; the client leaves their records out."""
    return [
        AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
        for txn in batches.aborted
    ]


def _divergence(partition: Partition, target: FetchTarget) -> EpochEndOffset | None:
    """Where the client's log and ours part, if they do (version 12)."""
    if target.last_fetched_epoch < 0:
        return None
    log = partition.log
    known = log.leader_epochs.end_offset_for(target.last_fetched_epoch, log.log_end_offset)
    if known is None:
        return None
    epoch, end_offset = known
    if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
