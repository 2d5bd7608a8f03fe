"""Bugs in what a start makes of the files."""

from typing import Final

from tests.teeth.bug import Bug, Edit

RECOVERY: Final = (
    Bug(
        name="torn-batch-accepted",
        what="recovery does not look at the checksum of the newest batches",
        workload="plain",
        edits=(
            Edit(
                "storage/recovery.py",
                "            if not _holds(segment.file, start, header):\n                break\n",
                "",
            ),
        ),
    ),
    Bug(
        name="torn-tail-left",
        what="recovery leaves the torn end of a log where it is, one batch too few is cut",
        workload="plain",
        edits=(
            Edit(
                "storage/recovery.py",
                "    segment.file.truncate(position)\n",
                "",
            ),
        ),
    ),
    Bug(
        name="one-batch-too-many-cut",
        what="recovery cuts the last good batch too",
        workload="plain",
        edits=(
            Edit(
                "storage/recovery.py",
                "            if not _holds(segment.file, start, header):\n",
                "            is_last = start + header.size_bytes == segment.size_bytes\n"
                "            if is_last or not _holds(segment.file, start, header):\n",
            ),
        ),
    ),
    Bug(
        name="producers-not-rebuilt",
        what="batches behind the newest snapshot are forgotten by a restart",
        workload="plain",
        edits=(
            Edit(
                "storage/recovery.py",
                "        if segment.end_offset > offset:\n"
                "            _replay_producers(recovered, segment, offset, now_ms)\n",
                "        del segment\n",
            ),
        ),
    ),
    Bug(
        name="open-lost-by-snapshot",
        what="a producer snapshot does not bring back which transactions are open",
        edits=(
            Edit(
                "core/producers.py",
                "            if fields[7] >= 0:\n",
                "            if fields[7] < -1:\n",
            ),
        ),
    ),
    Bug(
        name="aborted-index-not-rebuilt",
        what="recovery does not index the aborted transactions that it comes across",
        edits=(
            Edit(
                "storage/recovery.py",
                "            recovered.unsynced.append(segment.txn_index.append(entry))\n",
                "            del entry\n",
            ),
        ),
    ),
    Bug(
        name="aborted-index-not-synced",
        what="the index of aborted transactions is not synced with the marker",
        edits=(
            Edit(
                "storage/partition_log.py",
                "self._unsynced_files[self.segments[-1].txn_index.append(entry)] = None\n",
                "self.segments[-1].txn_index.append(entry)\n",
            ),
        ),
    ),
    Bug(
        name="snapshot-too-new",
        what="a producer snapshot is believed that lies above what was synced",
        workload="aborts",
        seeds=40,
        edits=(
            Edit(
                "storage/recovery.py",
                "usable = stem.isdigit() and offset <= int(stem) <= limit",
                "usable = stem.isdigit() and offset <= int(stem)",
            ),
        ),
    ),
    Bug(
        name="recovery-point-too-new",
        what="the recovery point is the end of the log, synced or not",
        workload="flood",
        seeds=50,
        edits=(
            Edit(
                "runtime/partition.py",
                "self.recovery_point = max(self.recovery_point, end.offset)",
                "self.recovery_point = self.log.log_end_offset",
            ),
        ),
    ),
    Bug(
        name="unowned-left-open",
        what="what a power cut left open without a coordinator's entry stays open",
        workload="aborts",
        edits=(
            Edit(
                "runtime/unowned.py",
                "            if owner is None or not _explains(",
                "            if owner is not None and not _explains(",
            ),
        ),
    ),
)
