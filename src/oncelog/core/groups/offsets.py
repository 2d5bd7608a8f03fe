"""How far each group has come: committed offsets, and when they may be forgotten.

Every offset remembers where its own record stands in `__consumer_offsets`: of two commits for one
partition the one written later wins, which is also what compaction of that log would leave. That
holds for transactions too (KAFKA-5247): what one of them has committed is pending until its marker
comes, and then still gives way to a plain commit that was written after it.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from oncelog.core.decision import Decision
from oncelog.core.errors import (
    BrokerError,
    GroupSubscribedToTopic,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
)
from oncelog.core.groups.changes import GroupChanged, GroupDecision, Record, TransactionEnded
from oncelog.core.groups.classic import check_commit, check_txn_commit
from oncelog.core.groups.commands import (
    CommitOffsets,
    CommittedOffset,
    CommitTxnOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetsForgotten,
    OffsetToCommit,
    PartitionOutcome,
    TopicDeleted,
)
from oncelog.core.groups.config import GroupConfig
from oncelog.core.groups.group import ClassicGroup, GroupState
from oncelog.core.groups.machine import NEXT, Hold, Input, refusal
from oncelog.core.groups.records import (
    MAX_STRING_BYTES,
    GroupDeleted,
    OffsetCommitted,
    OffsetDeleted,
    OffsetPending,
    fits,
)
from oncelog.core.groups.subscription import CONSUMER
from oncelog.core.types import Now, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffset:
    """A committed offset and the place of its record in the log."""

    committed: OffsetCommitted
    record_offset: int


NOTHING: Final[Mapping[TopicPartition, StoredOffset]] = {}
NOBODY: Final[Mapping[TopicPartition, Set[int]]] = {}


class OffsetTable:
    """The offsets of one shard, visible and pending. Changed by `apply` alone."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, StoredOffset]] = {}
        # By producer id: a marker decides all that its producer has committed, and nothing else.
        self._pending: dict[int, dict[tuple[str, TopicPartition], StoredOffset]] = {}
        # The producers behind the pending offsets of a partition; it finds entries of `_pending`.
        self._undecided: dict[str, dict[TopicPartition, set[int]]] = {}

    def put(self, record: OffsetCommitted, record_offset: int) -> None:
        """The group has come this far."""
        offsets = self._groups.setdefault(record.group_id, {})
        offsets[record.partition] = StoredOffset(committed=record, record_offset=record_offset)

    def put_pending(self, record: OffsetPending, record_offset: int) -> None:
        """The group has come this far, if the producer's transaction is committed."""
        group_id, partition = record.committed.group_id, record.committed.partition
        pending = StoredOffset(committed=record.committed, record_offset=record_offset)
        self._pending.setdefault(record.producer_id, {})[group_id, partition] = pending
        undecided = self._undecided.setdefault(group_id, {})
        undecided.setdefault(partition, set()).add(record.producer_id)

    def end(self, ended: TransactionEnded) -> None:
        """A transaction is decided: its offsets become visible, unless later ones are, or go."""
        for (group_id, partition), pending in self._pending.pop(ended.producer_id, {}).items():
            self._undecided[group_id][partition].discard(ended.producer_id)
            self._tidy(group_id, partition)
            visible = self.of(group_id).get(partition)
            is_later = visible is None or visible.record_offset < pending.record_offset
            if ended.committed and is_later:
                self.put(pending.committed, pending.record_offset)

    def remove(self, record: OffsetDeleted) -> None:
        """The offset is forgotten; a pending one must not bring it back."""
        group_id, partition = record.group_id, record.partition
        offsets = self._groups.get(group_id, {})
        offsets.pop(partition, None)
        if not offsets:
            self._groups.pop(group_id, None)
        producer_ids = self.undecided_of(group_id).get(partition, set())
        for producer_id in producer_ids:
            of_producer = self._pending[producer_id]
            del of_producer[group_id, partition]
            if not of_producer:
                del self._pending[producer_id]
        if producer_ids:
            self._undecided[group_id][partition] = set()
            self._tidy(group_id, partition)

    def _tidy(self, group_id: str, partition: TopicPartition) -> None:
        undecided = self._undecided[group_id]
        if not undecided[partition]:
            del undecided[partition]
        if not undecided:
            del self._undecided[group_id]

    def of(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        """The visible offsets of one group."""
        return self._groups.get(group_id, NOTHING)

    def undecided_of(self, group_id: str) -> Mapping[TopicPartition, Set[int]]:
        """The partitions for which a group has pending offsets, and whose they are."""
        return self._undecided.get(group_id, NOBODY)

    def pending(self, group_id: str, partition: TopicPartition) -> Iterator[StoredOffset]:
        """The pending offsets of one partition, in no order."""
        for producer_id in self.undecided_of(group_id).get(partition, ()):
            yield self._pending[producer_id][group_id, partition]

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """The partitions for which a group has offsets of either kind, in order."""
        return sorted(self.of(group_id).keys() | self.undecided_of(group_id).keys())

    def group_ids(self) -> list[str]:
        """The groups that have offsets of either kind, in order."""
        return sorted(self._groups.keys() | self._undecided.keys())

    def all_pending(self) -> Iterator[tuple[int, StoredOffset]]:
        """All pending offsets with their producers' ids, in order."""
        for producer_id, of_producer in sorted(self._pending.items()):
            for _, pending in sorted(of_producer.items()):
                yield producer_id, pending


# --- commands -------------------------------------------------------------------------------


def commit(
    group: ClassicGroup, command: CommitOffsets, now: Now, config: GroupConfig
) -> GroupDecision:
    """Write down offsets for a group that accepts them, except those with too long metadata."""
    if not fits(command.group_id):
        raise InvalidGroupId(f"a group id has at most {MAX_STRING_BYTES} bytes")
    after = check_commit(group, command, now)
    errors = [_check_metadata(each, config) for each in command.offsets]
    records: list[Record] = [
        _committed(command.group_id, each, now, command.retention_ms)
        for each, error in zip(command.offsets, errors, strict=True)
        if error is None
    ]
    if after.members:
        records.append(GroupChanged(group=after))
    return Decision(reply=_outcomes(command.offsets, errors), records=tuple(records))


def check_txn_group_id(group_id: str) -> None:
    """Refuse a name under which no transaction can commit offsets."""
    if not group_id or not fits(group_id):
        raise InvalidGroupId(f"a group id has 1 to {MAX_STRING_BYTES} bytes")


def commit_in_txn(
    group: ClassicGroup, command: CommitTxnOffsets, now: Now, config: GroupConfig
) -> GroupDecision:
    """Write down offsets that count when the producer's transaction is committed."""
    check_txn_group_id(command.group_id)
    check_txn_commit(group, command)
    errors = [_check_offset(each) or _check_metadata(each, config) for each in command.offsets]
    records = tuple(
        OffsetPending(
            producer_id=command.producer_id,
            committed=_committed(command.group_id, each, now, retention_ms=None),
        )
        for each, error in zip(command.offsets, errors, strict=True)
        if error is None
    )
    return Decision(
        reply=_outcomes(command.offsets, errors),
        records=records,
        producer=(command.producer_id, command.producer_epoch),
    )


def _check_metadata(each: OffsetToCommit, config: GroupConfig) -> BrokerError | None:
    if len(each.metadata) <= config.offset_metadata_max_bytes and fits(each.metadata):
        return None
    return OffsetMetadataTooLarge(
        f"{len(each.metadata)} of {config.offset_metadata_max_bytes} for {each.partition}"
    )


def _check_offset(each: OffsetToCommit) -> BrokerError | None:
    # Kafka stores it by accident. The next consumer would read it as "nothing committed", begin
    # where its own settings say, and so repeat or skip what the transaction has done.
    if each.offset >= 0:
        return None
    return InvalidRequest(f"{each.offset} is no offset of {each.partition}")


def _outcomes(
    offsets: Sequence[OffsetToCommit], errors: Sequence[BrokerError | None]
) -> tuple[PartitionOutcome, ...]:
    return tuple(
        PartitionOutcome(partition=each.partition, error=error)
        for each, error in zip(offsets, errors, strict=True)
    )


def _committed(
    group_id: str, each: OffsetToCommit, now: Now, retention_ms: int | None
) -> OffsetCommitted:
    # The format has room for an expiry, or for an epoch and a topic id; clients that choose a
    # retention know of neither.
    is_expiring = retention_ms is not None
    return OffsetCommitted(
        group_id=group_id,
        partition=each.partition,
        offset=each.offset,
        leader_epoch=None if is_expiring else each.leader_epoch,
        metadata=each.metadata,
        committed_at_ms=now.wall_ms,
        expires_at_ms=None if retention_ms is None else now.wall_ms + retention_ms,
        topic_id=None if is_expiring else each.topic_id,
    )


def fetch(table: OffsetTable, command: FetchOffsets) -> tuple[FetchedOffset, ...]:
    """The offsets asked for, in that order; a group that nobody knows has committed nothing."""
    if command.topics is None:
        # As with Kafka, a partition that has only a pending offset is not among them.
        return tuple(
            _fetched(table, command.group_id, partition, stored.committed.topic_id)
            for partition, stored in sorted(table.of(command.group_id).items())
        )
    return tuple(
        _fetched(table, command.group_id, TopicPartition(wanted.topic, number), wanted.topic_id)
        for wanted in command.topics
        for number in wanted.partitions
    )


def _fetched(
    table: OffsetTable, group_id: str, partition: TopicPartition, topic_id: UUID | None
) -> FetchedOffset:
    committed = None
    stored = table.of(group_id).get(partition)
    if stored is not None and _is_of(topic_id, stored):
        committed = CommittedOffset(
            offset=stored.committed.offset,
            leader_epoch=stored.committed.leader_epoch,
            metadata=stored.committed.metadata,
        )
    return FetchedOffset(
        partition=partition,
        topic_id=topic_id,
        committed=committed,
        is_stable=not any(_is_of(topic_id, each) for each in table.pending(group_id, partition)),
    )


def _is_of(topic_id: UUID | None, stored: StoredOffset) -> bool:
    """Whether it may be an offset of this topic, and not one of a deleted namesake."""
    return topic_id is None or stored.committed.topic_id in (None, topic_id)


def delete_offsets(
    group: ClassicGroup, table: OffsetTable, command: DeleteOffsets
) -> GroupDecision:
    """Forget offsets that no member can be using."""
    if group.state is GroupState.DEAD:
        raise refusal(Hold.MISSING, group)
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        raise NonEmptyGroup(f"{group.group_id} has members, and nobody knows what they read")
    known = set(table.partitions_of(command.group_id))
    records: list[Record] = []
    outcomes = []
    is_in_use = {t: group.is_subscribed_to(t) for t in {p.topic for p in command.partitions}}
    for partition in command.partitions:
        error = None
        if is_in_use[partition.topic]:
            error = GroupSubscribedToTopic(f"{group.group_id} reads {partition.topic}")
        elif partition in known:
            records.append(OffsetDeleted(group_id=command.group_id, partition=partition))
        outcomes.append(PartitionOutcome(partition=partition, error=error))
    return Decision(reply=tuple(outcomes), records=tuple(records))


def delete_group(
    group: ClassicGroup, table: OffsetTable
) -> tuple[tuple[Record, ...], BrokerError | None]:
    """Forget a group without members, and all that it has committed, decided or not."""
    step = NEXT[Input.DELETE][group.state]
    if isinstance(step, Hold):
        return (), refusal(step, group)
    return _all_of(group.group_id, table), None


def _all_of(group_id: str, table: OffsetTable) -> tuple[Record, ...]:
    offsets = (
        OffsetDeleted(group_id=group_id, partition=partition)
        for partition in table.partitions_of(group_id)
    )
    return (*offsets, GroupDeleted(group_id=group_id))


def forget_topic(table: OffsetTable, command: TopicDeleted) -> GroupDecision:
    """A topic is gone, and a namesake must not inherit its offsets."""
    records = tuple(
        OffsetDeleted(group_id=group_id, partition=partition)
        for group_id in table.group_ids()
        for partition in table.partitions_of(group_id)
        if partition.topic == command.topic
        and all(_is_of(command.topic_id, each) for each in _both(table, group_id, partition))
    )
    return Decision(reply=OffsetsForgotten(count=len(records)), records=records)


def _both(table: OffsetTable, group_id: str, partition: TopicPartition) -> Iterator[StoredOffset]:
    """What one deletion would take away: the visible offset and the pending ones."""
    visible = table.of(group_id).get(partition)
    if visible is not None:
        yield visible
    yield from table.pending(group_id, partition)


# --- expiry ---------------------------------------------------------------------------------


def expired(
    group: ClassicGroup, table: OffsetTable, now: Now, config: GroupConfig
) -> tuple[Record, ...]:
    """What may be forgotten of one group: old offsets, and the group when nothing is left.

    KAFKA-19163: a pending offset counts as one that is not old. To forget the visible one beside
    it would be to forget the pending one too, for a tombstone takes both.
    """
    offsets, undecided = table.of(group.group_id), table.undecided_of(group.group_id)
    due = tuple(
        OffsetDeleted(group_id=group.group_id, partition=partition)
        for partition in sorted(_expired_partitions(group, offsets, now, config))
        if partition not in undecided
    )
    is_idle = group.state is GroupState.EMPTY and not group.pending and not undecided
    if is_idle and len(due) == len(offsets):
        return (*due, GroupDeleted(group_id=group.group_id))
    return due


def _expired_partitions(
    group: ClassicGroup,
    offsets: Mapping[TopicPartition, StoredOffset],
    now: Now,
    config: GroupConfig,
) -> list[TopicPartition]:
    """KIP-211: a group that lives keeps its offsets; one that has died keeps them for a while."""
    in_use: frozenset[str] = frozenset()
    since_ms: int | None = None
    if group.protocol_type is not None and group.state is GroupState.EMPTY:
        since_ms = group.state_since_ms
    elif group.protocol_type is not None:
        topics = group.subscribed_topics() if group.protocol_type == CONSUMER else None
        if topics is None or group.state is not GroupState.STABLE:
            return []
        in_use = topics
    return [
        partition
        for partition, stored in offsets.items()
        if partition.topic not in in_use
        and _is_expired(stored.committed, since_ms, now.wall_ms, config.offsets_retention_ms)
    ]


def _is_expired(
    committed: OffsetCommitted, since_ms: int | None, wall_ms: int, retention_ms: int
) -> bool:
    if committed.expires_at_ms is not None:
        return wall_ms >= committed.expires_at_ms
    base_ms = committed.committed_at_ms if since_ms is None else since_ms
    return wall_ms - base_ms >= retention_ms
