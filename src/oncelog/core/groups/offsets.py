"""How far each group has come: committed offsets, and when they may be forgotten.

Every offset remembers where its own record stands in `__consumer_offsets`: of two commits for one
partition the one written later wins, which is also what compaction of that log would leave.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from oncelog.core.decision import Decision
from oncelog.core.errors import (
    BrokerError,
    GroupSubscribedToTopic,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
)
from oncelog.core.groups.changes import GroupChanged, GroupDecision, Record
from oncelog.core.groups.classic import check_commit
from oncelog.core.groups.commands import (
    CommitOffsets,
    CommittedOffset,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetsForgotten,
    OffsetToCommit,
    PartitionOutcome,
    TopicDeleted,
    WantedOffsets,
)
from oncelog.core.groups.config import GroupConfig
from oncelog.core.groups.group import ClassicGroup, GroupState
from oncelog.core.groups.machine import NEXT, Hold, Input, refusal
from oncelog.core.groups.records import (
    MAX_STRING_BYTES,
    GroupDeleted,
    OffsetCommitted,
    OffsetDeleted,
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


class OffsetTable:
    """The offsets of one shard. Changed by `apply` alone."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, StoredOffset]] = {}
        # Offsets of open transactions will stand beside them, by producer id, group and partition:
        # a COMMIT marker moves one over if its record is the later one, an ABORT marker drops it.

    def put(self, record: OffsetCommitted, record_offset: int) -> None:
        """The group has come this far."""
        offsets = self._groups.setdefault(record.group_id, {})
        offsets[record.partition] = StoredOffset(committed=record, record_offset=record_offset)

    def remove(self, record: OffsetDeleted) -> None:
        """The offset is forgotten."""
        offsets = self._groups.get(record.group_id, {})
        offsets.pop(record.partition, None)
        if not offsets:
            self._groups.pop(record.group_id, None)

    def of(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        """The offsets of one group."""
        return self._groups.get(group_id, NOTHING)

    def all(self) -> Mapping[str, Mapping[TopicPartition, StoredOffset]]:
        """The offsets of all groups that have any."""
        return self._groups


# --- commands -------------------------------------------------------------------------------


def commit(
    group: ClassicGroup, command: CommitOffsets, now: Now, config: GroupConfig
) -> GroupDecision:
    """Write down offsets for a group that accepts them, except those with too long metadata."""
    if not fits(command.group_id):
        raise InvalidGroupId(f"a group id has at most {MAX_STRING_BYTES} bytes")
    after = check_commit(group, command, now)
    records: list[Record] = []
    outcomes = []
    for each in command.offsets:
        error = None
        if len(each.metadata) > config.offset_metadata_max_bytes or not fits(each.metadata):
            error = OffsetMetadataTooLarge(
                f"{len(each.metadata)} of {config.offset_metadata_max_bytes} for {each.partition}"
            )
        else:
            records.append(_committed(command, each, now))
        outcomes.append(PartitionOutcome(partition=each.partition, error=error))
    if after.members:
        records.append(GroupChanged(group=after))
    return Decision(reply=tuple(outcomes), records=tuple(records))


def _committed(command: CommitOffsets, each: OffsetToCommit, now: Now) -> OffsetCommitted:
    # The format has room for an expiry, or for an epoch and a topic id; clients that choose a
    # retention know of neither.
    is_expiring = command.retention_ms is not None
    return OffsetCommitted(
        group_id=command.group_id,
        partition=each.partition,
        offset=each.offset,
        leader_epoch=None if is_expiring else each.leader_epoch,
        metadata=each.metadata,
        committed_at_ms=now.wall_ms,
        expires_at_ms=(
            None if command.retention_ms is None else now.wall_ms + command.retention_ms
        ),
        topic_id=None if is_expiring else each.topic_id,
    )


def fetch(table: OffsetTable, command: FetchOffsets) -> tuple[FetchedOffset, ...]:
    """The offsets asked for, in that order; a group that nobody knows has committed nothing."""
    offsets = table.of(command.group_id)
    if command.topics is None:
        return tuple(
            _fetched(each, stored.committed.topic_id, stored)
            for each, stored in sorted(offsets.items())
        )
    return tuple(
        _fetched(each, wanted.topic_id, _of_this_topic(wanted, offsets.get(each)))
        for wanted in command.topics
        for each in (TopicPartition(wanted.topic, number) for number in wanted.partitions)
    )


def _of_this_topic(wanted: WantedOffsets, stored: StoredOffset | None) -> StoredOffset | None:
    """Drops what was committed for a deleted topic of the same name."""
    if stored is None or wanted.topic_id is None or stored.committed.topic_id is None:
        return stored
    return stored if stored.committed.topic_id == wanted.topic_id else None


def _fetched(
    partition: TopicPartition, topic_id: UUID | None, stored: StoredOffset | None
) -> FetchedOffset:
    committed = None
    if stored is not None:
        committed = CommittedOffset(
            offset=stored.committed.offset,
            leader_epoch=stored.committed.leader_epoch,
            metadata=stored.committed.metadata,
        )
    # Without transactions every offset is decided.
    return FetchedOffset(
        partition=partition, topic_id=topic_id, committed=committed, is_stable=True
    )


def delete_offsets(
    group: ClassicGroup, table: OffsetTable, command: DeleteOffsets
) -> GroupDecision:
    """Forget offsets that no member can be using."""
    if group.state is GroupState.DEAD:
        raise refusal(Hold.MISSING, group)
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        raise NonEmptyGroup(f"{group.group_id} has members, and nobody knows what they read")
    offsets = table.of(command.group_id)
    records: list[Record] = []
    outcomes = []
    is_in_use = {t: group.is_subscribed_to(t) for t in {p.topic for p in command.partitions}}
    for partition in command.partitions:
        error = None
        if is_in_use[partition.topic]:
            error = GroupSubscribedToTopic(f"{group.group_id} reads {partition.topic}")
        elif partition in offsets:
            records.append(OffsetDeleted(group_id=command.group_id, partition=partition))
        outcomes.append(PartitionOutcome(partition=partition, error=error))
    return Decision(reply=tuple(outcomes), records=tuple(records))


def delete_group(
    group: ClassicGroup, table: OffsetTable
) -> tuple[tuple[Record, ...], BrokerError | None]:
    """Forget a group without members, and all that it has committed."""
    step = NEXT[Input.DELETE][group.state]
    if isinstance(step, Hold):
        return (), refusal(step, group)
    return _all_of(group.group_id, table), None


def _all_of(group_id: str, table: OffsetTable) -> tuple[Record, ...]:
    offsets = (
        OffsetDeleted(group_id=group_id, partition=partition)
        for partition in sorted(table.of(group_id))
    )
    return (*offsets, GroupDeleted(group_id=group_id))


def forget_topic(table: OffsetTable, command: TopicDeleted) -> GroupDecision:
    """A topic is gone, and a namesake must not inherit its offsets."""
    records = tuple(
        OffsetDeleted(group_id=group_id, partition=partition)
        for group_id, offsets in sorted(table.all().items())
        for partition, stored in sorted(offsets.items())
        if partition.topic == command.topic
        and command.topic_id in (None, stored.committed.topic_id or command.topic_id)
    )
    return Decision(reply=OffsetsForgotten(count=len(records)), records=records)


# --- expiry ---------------------------------------------------------------------------------


def expired(
    group: ClassicGroup,
    offsets: Mapping[TopicPartition, StoredOffset],
    now: Now,
    config: GroupConfig,
) -> tuple[Record, ...]:
    """What may be forgotten of one group: old offsets, and the group when nothing is left."""
    due = tuple(
        OffsetDeleted(group_id=group.group_id, partition=partition)
        for partition in sorted(_expired_partitions(group, offsets, now, config))
    )
    is_idle = group.state is GroupState.EMPTY and not group.pending
    if is_idle and len(due) == len(offsets):
        return (*due, GroupDeleted(group_id=group.group_id))
    return due


def _expired_partitions(
    group: ClassicGroup,
    offsets: Mapping[TopicPartition, StoredOffset],
    now: Now,
    config: GroupConfig,
) -> list[TopicPartition]:
    """KIP-211: a group that lives keeps its offsets; one that has died keeps them for a while.

    An offset beside which a transaction has a pending one will be spared here as well.
    """
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
