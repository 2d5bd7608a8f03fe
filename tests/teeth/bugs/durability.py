"""Bugs in when something counts as durable."""

from typing import Final

from tests.teeth.bug import Bug, Edit

DURABILITY: Final = (
    Bug(
        name="ack-before-sync",
        what="Produce is answered before its batch is synced",
        workload="plain",
        edits=(
            Edit(
                "api/produce.py",
                "committed = partition.committed(result.last_offset + 1)",
                "committed = None",
            ),
        ),
    ),
    Bug(
        name="ack-waits-for-wrong-offset",
        what="Produce waits until its first record is the next to be synced, not its last one synced",
        workload="plain",
        edits=(
            Edit(
                "api/produce.py",
                "partition.committed(result.last_offset + 1)",
                "partition.committed(result.base_offset)",
            ),
        ),
    ),
    Bug(
        name="repeat-acked-at-once",
        what="a repeated batch is acknowledged although the first one is not synced yet",
        workload="slow",
        edits=(
            Edit(
                "runtime/partition.py",
                "AppendResult(repeated.base_offset, repeated.last_offset, append_time)",
                "AppendResult(repeated.base_offset, -1, append_time)",
            ),
        ),
    ),
    Bug(
        name="sync-covers-later-writes",
        what="a sync commits what was written while it ran",
        workload="plain",
        edits=(
            Edit(
                "runtime/flush.py",
                "log.set_committed(unsynced.end)",
                "log.set_committed(log.written_end())",
            ),
        ),
    ),
    Bug(
        name="visible-before-sync",
        what="readers get records that a power cut can take back",
        workload="plain",
        edits=(
            Edit(
                "runtime/flush.py",
                "self._dirty[log] = None\n        if self._task is None:",
                "self._dirty[log] = None\n        log.set_committed(log.written_end())\n"
                "        if self._task is None:",
            ),
        ),
    ),
    Bug(
        name="sync-error-ignored",
        what="a failed sync counts as one that succeeded",
        workload="flood",
        seeds=40,
        edits=(
            Edit(
                "runtime/flush.py",
                '            log.take_offline(f"a sync failed: {error}")\n        return\n',
                "            pass\n",
            ),
        ),
    ),
    Bug(
        name="directory-not-synced",
        what="a file's bytes are synced and its name is not",
        edits=(
            Edit(
                "runtime/flush.py",
                "await disk.sync(files, directories)",
                "await disk.sync(files)",
            ),
        ),
    ),
    Bug(
        name="new-directory-not-synced",
        what="the name of a new partition's directory is not synced with its first batch",
        workload="plain",
        edits=(
            Edit(
                "storage/partition_log.py",
                'self._unsynced_directories["."] = None',
                "pass",
            ),
        ),
    ),
    Bug(
        name="prepare-not-awaited",
        what="EndTxn is answered before PREPARE is durable",
        workload="crashes",
        edits=(
            Edit(
                "runtime/transactions.py",
                "return await host.submit(command(given))",
                "return host.submit_now(command(given))[0]",
            ),
        ),
    ),
    Bug(
        name="marker-before-prepare",
        what="markers are written before PREPARE is durable",
        workload="crashes",
        edits=(
            Edit(
                "runtime/host.py",
                "        future = self._partition.committed(end_offset)\n        if future is None:",
                "        future = None\n        if future is None:",
            ),
        ),
    ),
    Bug(
        name="complete-before-markers",
        what="COMPLETE is written before the markers are durable",
        edits=(
            Edit(
                "runtime/markers.py",
                "        if failed or commits:\n",
                "        if failed:\n",
            ),
        ),
    ),
    Bug(
        name="offset-commit-not-awaited",
        what="OffsetCommit is answered before it is durable",
        workload="plain",
        edits=(
            Edit(
                "runtime/groups.py",
                "return await host.submit(command)",
                "return host.submit_now(command)[0]",
            ),
        ),
    ),
    Bug(
        name="participants-not-synced",
        what="PREPARE_COMMIT is written before the batches of acks 0 and 1 are durable",
        workload="weak",
        seeds=25,
        edits=(
            Edit(
                "runtime/transactions.py",
                "            await self._sync_participants(transactional_id)\n",
                "            pass\n",
            ),
        ),
    ),
)
