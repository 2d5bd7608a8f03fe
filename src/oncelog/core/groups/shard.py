"""All groups of one partition of `__consumer_offsets`: the one place where they change.

`decide` looks and answers, `apply` changes. Records come in two kinds, told apart by `stored`:
stored ones go to the log and are applied again at replay; volatile ones (a member was heard of, a
JoinGroup is parked) only ever live in memory, and are lost with it.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, assert_never

from oncelog.core.decision import Decision
from oncelog.core.groups import classic, offsets, rebalance, records
from oncelog.core.groups.changes import (
    Group,
    GroupChanged,
    GroupDecision,
    Record,
    Swept,
    TransactionEnded,
)
from oncelog.core.groups.commands import (
    Command,
    CommitOffsets,
    CommitTxnOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribedMember,
    DescribeGroup,
    Effect,
    FetchOffsets,
    GroupDescription,
    GroupListing,
    GroupOutcome,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetsExpired,
    SyncGroup,
    TopicDeleted,
)
from oncelog.core.groups.config import GroupConfig
from oncelog.core.groups.group import ClassicGroup, GroupState
from oncelog.core.groups.machine import Hold, refusal
from oncelog.core.groups.offsets import OffsetTable, StoredOffset
from oncelog.core.groups.records import (
    GroupDeleted,
    GroupMetadata,
    OffsetCommitted,
    OffsetDeleted,
    OffsetPending,
    StoredRecord,
)
from oncelog.core.markers import Marker
from oncelog.core.types import Now

#: What one call of `on_deadline` may do at most; the rest is due at once, after other requests.
GROUPS_PER_DEADLINE: Final = 100
RECORDS_PER_SWEEP: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What a shard must find again after a restart, in a fixed order."""

    groups: tuple[GroupMetadata, ...]
    offsets: tuple[StoredOffset, ...]
    pending: tuple[tuple[int, StoredOffset], ...]  # with the ids of the producers


class GroupShard:
    """The groups whose ids hash to one partition of `__consumer_offsets`, and their offsets."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetTable()
        self._sweep_at_ms: int | None = None
        # A group that has deadlines is in `_due` with its first one and in the heap at least
        # with that; older entries of the heap are passed over.
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    # --- decide

    def decide(self, command: Command, now: Now) -> GroupDecision:
        """Answer a command. Changes nothing; raises a BrokerError to refuse."""
        match command:
            case JoinGroup():
                return classic.join(self._group(command.group_id), command, now, self._config)
            case SyncGroup():
                return classic.sync(self._group(command.group_id), command, now)
            case Heartbeat():
                return classic.heartbeat(self._group(command.group_id), command, now)
            case LeaveGroup():
                return classic.leave(self._group(command.group_id), command, now, self._config)
            case CommitOffsets():
                return offsets.commit(self._group(command.group_id), command, now, self._config)
            case CommitTxnOffsets():
                group = self._group(command.group_id)
                return offsets.commit_in_txn(group, command, now, self._config)
            case FetchOffsets():
                return Decision(reply=offsets.fetch(self._offsets, command))
            case DeleteOffsets():
                return offsets.delete_offsets(self._group(command.group_id), self._offsets, command)
            case TopicDeleted():
                return offsets.forget_topic(self._offsets, command)
            case DeleteGroups():
                return self._delete(command)
            case DescribeGroup():
                return Decision(reply=_describe(self._group(command.group_id)))
            case ListGroups():
                return Decision(reply=self._list())
            case _:
                assert_never(command)

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        return ClassicGroup(group_id=group_id, state=GroupState.DEAD) if group is None else group

    def _delete(self, command: DeleteGroups) -> GroupDecision:
        tombstones: list[Record] = []
        outcomes = []
        for group_id in dict.fromkeys(command.group_ids):
            deleted, error = offsets.delete_group(self._group(group_id), self._offsets)
            tombstones += deleted
            outcomes.append(GroupOutcome(group_id=group_id, error=error))
        return Decision(reply=tuple(outcomes), records=tuple(tombstones))

    def _list(self) -> tuple[GroupListing, ...]:
        return tuple(
            GroupListing(
                group_id=group_id,
                protocol_type=group.protocol_type or "",
                state=group.state.value,
                group_type="classic",
            )
            for group_id, group in sorted(self._groups.items())
        )

    def count_by_state(self) -> Counter[str]:
        """How many groups are in which state."""
        return Counter(group.state.value for group in self._groups.values())

    # --- deadlines

    def next_deadline_ms(self) -> int | None:
        """The monotonic instant at which `on_deadline` wants to be called."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        first = self._heap[0][0] if self._heap else None
        instants = [instant for instant in (first, self._sweep_at_ms) if instant is not None]
        return min(instants, default=None)

    def on_deadline(self, now: Now) -> GroupDecision:
        """Do what is due. Like `decide`, it changes nothing."""
        changes: list[Record] = []
        effects: list[Effect] = []
        notes: list[object] = []
        for group_id in sorted(islice(self._due_groups(now), GROUPS_PER_DEADLINE)):
            decision = rebalance.expire(self._groups[group_id], now, self._config).decision(None)
            changes += decision.records
            effects += decision.effects
            notes += decision.notes
        if self._sweep_at_ms is not None and self._sweep_at_ms <= now.monotonic_ms:
            # A group that has just been changed must not be judged by what it was before.
            changed = {r.group.group_id for r in changes if isinstance(r, GroupChanged)}
            swept = self._sweep(now, skipping=changed)
            changes += swept.records
            notes += swept.notes
        return Decision(
            reply=None, records=tuple(changes), effects=tuple(effects), notes=tuple(notes)
        )

    def _due_groups(self, now: Now) -> Iterator[str]:
        # A heap's children are never due before their parent: only its top is looked at.
        seen: set[str] = set()
        indexes = [0]
        while indexes:
            index = indexes.pop()
            if index >= len(self._heap) or self._heap[index][0] > now.monotonic_ms:
                continue
            deadline, group_id = self._heap[index]
            if self._due.get(group_id) == deadline and group_id not in seen:
                seen.add(group_id)
                yield group_id
            indexes += (2 * index + 1, 2 * index + 2)

    def _sweep(self, now: Now, skipping: set[str]) -> GroupDecision:
        tombstones: list[Record] = []
        for group_id in sorted(self._groups.keys() - skipping):
            if len(tombstones) >= RECORDS_PER_SWEEP:
                break
            group = self._groups[group_id]
            tombstones += offsets.expired(group, self._offsets, now, self._config)
        is_over = len(tombstones) < RECORDS_PER_SWEEP
        wait_ms = self._config.offsets_retention_check_interval_ms if is_over else 0
        note = OffsetsExpired(
            offset_count=sum(isinstance(each, OffsetDeleted) for each in tombstones),
            group_count=sum(isinstance(each, GroupDeleted) for each in tombstones),
        )
        return Decision(
            reply=None,
            records=(*tombstones, Swept(next_at_ms=now.monotonic_ms + wait_ms)),
            notes=(note,) if tombstones else (),
        )

    # --- apply

    def apply(self, record: Record, *, offset: int | None) -> None:
        """Change the state; `offset` is the place of a stored record in the log."""
        match record:
            case OffsetCommitted():
                assert offset is not None, f"{record} has no place in the log"
                self._offsets.put(record, offset)
                self._ensure(record.group_id)
            case OffsetPending():
                assert offset is not None, f"{record} has no place in the log"
                self._offsets.put_pending(record, offset)
                self._ensure(record.committed.group_id)
            case TransactionEnded():
                self._offsets.end(record)
            case OffsetDeleted():
                self._offsets.remove(record)
            case GroupMetadata():
                self._put(ClassicGroup.from_metadata(record))
            case GroupDeleted():
                self._groups.pop(record.group_id, None)
                self._due.pop(record.group_id, None)
            case GroupChanged():
                self._put(record.group)
            case Swept():
                self._sweep_at_ms = record.next_at_ms
            case _:
                assert_never(record)

    def _ensure(self, group_id: str) -> None:
        """Whoever has offsets is a group, if only to be listed, deleted and swept."""
        if group_id not in self._groups:
            self._put(ClassicGroup(group_id=group_id))

    def _put(self, group: Group) -> None:
        self._groups[group.group_id] = group
        deadline = group.next_deadline_ms()
        if deadline is None:
            self._due.pop(group.group_id, None)
        elif self._due.get(group.group_id) != deadline:
            self._due[group.group_id] = deadline
            heapq.heappush(self._heap, (deadline, group.group_id))

    # --- replay

    def encode(self, record: StoredRecord) -> tuple[bytes, bytes | None]:
        """The key and the value of a stored record."""
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None, timestamp_ms: int) -> StoredRecord | None:
        """The record behind these bytes; None if it is of a kind we do not know."""
        return records.decode(key, value, timestamp_ms)

    def decode_pending(
        self, key: bytes, value: bytes | None, timestamp_ms: int, producer_id: int
    ) -> StoredRecord | None:
        """As `decode`, for a record of a transaction: a commit waits, all else counts at once."""
        record = records.decode(key, value, timestamp_ms)
        if isinstance(record, OffsetCommitted):
            return OffsetPending(producer_id=producer_id, committed=record)
        return record

    def decode_marker(self, marker: Marker) -> TransactionEnded:
        """The end of a transaction, as a record to apply."""
        return TransactionEnded(producer_id=marker.producer_id, committed=marker.committed)

    def loaded(self, now: Now) -> None:
        """Replay is over: start the clocks of the members it has found."""
        for group in list(self._groups.values()):
            self._put(rebalance.wake(group, now, self._config))
        self._sweep_at_ms = now.monotonic_ms + self._config.offsets_retention_check_interval_ms

    def live_records(self) -> Iterator[StoredRecord]:
        """The records that would give the present state, if the log held nothing else."""
        for _, group in sorted(self._groups.items()):
            if group.written:
                yield group.written
        for group_id in self._offsets.group_ids():
            for _, stored in sorted(self._offsets.of(group_id).items()):
                yield stored.committed

    def moved(self, record: StoredRecord, offset: int) -> None:
        """A live record was written once more, at another place."""
        if isinstance(record, OffsetCommitted):
            self._offsets.put(record, offset)

    def stored_state(self) -> StoredState:
        """What the log says, as this shard understands it: equal before and after a replay."""
        return StoredState(
            groups=tuple(
                group.written for _, group in sorted(self._groups.items()) if group.written
            ),
            offsets=tuple(
                stored
                for group_id in self._offsets.group_ids()
                for _, stored in sorted(self._offsets.of(group_id).items())
            ),
            pending=tuple(self._offsets.all_pending()),
        )


def _describe(group: ClassicGroup) -> GroupDescription:
    if group.state is GroupState.DEAD:
        raise refusal(Hold.MISSING, group)
    is_stable = group.state is GroupState.STABLE
    return GroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
