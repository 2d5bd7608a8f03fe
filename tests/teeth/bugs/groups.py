"""Bugs in groups and their offsets."""

from typing import Final

from tests.teeth.bug import Bug, Edit

GROUPS: Final = (
    Bug(
        name="offsets-applied-at-once",
        what="a transaction's offsets count before its marker",
        edits=(
            Edit(
                "core/groups/shard.py",
                "self._offsets.put_pending(record, offset)",
                "self._offsets.put(record.committed, offset)",
            ),
        ),
    ),
    Bug(
        name="aborted-offsets-applied",
        what="the offsets of an aborted transaction count",
        edits=(
            Edit(
                "core/groups/offsets.py",
                "if ended.committed and is_later:",
                "if is_later:",
            ),
        ),
    ),
    Bug(
        name="unstable-offsets-shown",
        what="committed offsets are shown while a transaction over them is open",
        edits=(
            Edit(
                "api/offset_fetch.py",
                "if require_stable and not offset.is_stable:",
                "if require_stable and offset.is_stable is None:",
            ),
        ),
    ),
    Bug(
        name="offsets-lost-by-rewrite",
        what="offsets are left out when the log of a group's shard is written anew",
        edits=(
            Edit(
                "core/groups/shard.py",
                "                yield stored.committed\n",
                "                yield from ()\n",
            ),
        ),
    ),
    Bug(
        name="offsets-lost-by-restart",
        what="committed offsets are not read from the log at start",
        workload="plain",
        edits=(
            Edit(
                "core/groups/shard.py",
                "        return records.decode(key, value, timestamp_ms)\n",
                "        found = records.decode(key, value, timestamp_ms)\n"
                "        return None if isinstance(found, OffsetCommitted) else found\n",
            ),
        ),
    ),
    Bug(
        name="pending-offsets-count-after-restart",
        what="offsets of an open transaction count once they are read from the log",
        edits=(
            Edit(
                "core/groups/shard.py",
                "return OffsetPending(producer_id=producer_id, committed=record)",
                "return record",
            ),
        ),
    ),
    Bug(
        name="rewrite-drops-pending",
        what="a shard's log is written anew while a transaction has offsets pending in it",
        edits=(
            Edit(
                "runtime/host.py",
                "if self._partition.offline is not None or "
                "self._partition.producers.stability.is_open:",
                "if self._partition.offline is not None:",
            ),
        ),
    ),
    Bug(
        name="txn-generation-not-checked",
        what="TxnOffsetCommit is accepted from a member of an earlier generation",
        workload="copies",
        edits=(
            Edit(
                "core/groups/classic.py",
                "    if not is_simple and group.state is not S.DEAD:\n        _current_member(",
                "    if group.state is S.DEAD and not is_simple:\n        _current_member(",
            ),
        ),
    ),
    Bug(
        name="generation-not-raised",
        what="a rebalance goes on with the generation that it ended",
        workload="copies",
        seeds=45,
        edits=(
            Edit(
                "core/groups/rebalance.py",
                "        generation_id=group.generation_id + 1,\n"
                "        protocol_name=group.elected_protocol(),\n",
                "        generation_id=max(group.generation_id, 1),\n"
                "        protocol_name=group.elected_protocol(),\n",
            ),
        ),
    ),
)
