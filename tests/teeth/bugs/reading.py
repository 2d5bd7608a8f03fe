"""Bugs in what readers are shown."""

from typing import Final

from tests.teeth.bug import Bug, Edit

READING: Final = (
    Bug(
        name="stable-offset-one-too-high",
        what="the last stable offset is one record behind the first open one",
        edits=(
            Edit(
                "core/stability.py",
                "return min(max(first_unstable, log_start_offset), high_watermark)",
                "return min(max(first_unstable + 1, log_start_offset), high_watermark)",
            ),
        ),
    ),
    Bug(
        name="stable-offset-is-high-watermark",
        what="the last stable offset is the high watermark",
        edits=(
            Edit(
                "core/stability.py",
                "return min(max(first_unstable, log_start_offset), high_watermark)",
                "return high_watermark",
            ),
        ),
    ),
    Bug(
        name="stable-offset-of-newest",
        what="the newest open transaction holds the last stable offset, not the oldest",
        edits=(
            Edit(
                "core/stability.py",
                "first_unstable = min(self._open.values(), default=high_watermark)",
                "first_unstable = max(self._open.values(), default=high_watermark)",
            ),
        ),
    ),
    Bug(
        name="fetch-beyond-stable-offset",
        what="Fetch at read_committed reads up to the high watermark",
        edits=(
            Edit(
                "runtime/partition.py",
                "        end = self.readable_end(committed_only=committed_only)\n"
                "        if offset >= end.offset:\n",
                "        end = self.readable_end(committed_only=False)\n"
                "        if offset >= end.offset:\n",
            ),
        ),
    ),
    Bug(
        name="aborted-list-lacks-one",
        what="the list of aborted transactions lacks its last entry",
        edits=(
            Edit(
                "api/fetch.py",
                "for txn in batches.aborted\n",
                "for txn in batches.aborted[:-1]\n",
            ),
        ),
    ),
    Bug(
        name="aborted-range-one-batch-late",
        what="an aborted transaction begins behind its first batch",
        edits=(
            Edit(
                "core/stability.py",
                "AbortedTxn(ended.producer_id, ended.first_offset, ended.marker_offset, stable)",
                "AbortedTxn(ended.producer_id, ended.first_offset + 1, ended.marker_offset, stable)",
            ),
        ),
    ),
    Bug(
        name="aborted-search-ends-early",
        what="the index of aborted transactions is searched only up to the first stable place",
        edits=(
            Edit(
                "core/stability.py",
                "if entry.last_stable_offset >= end:",
                "if entry.last_stable_offset >= start:",
            ),
        ),
    ),
    Bug(
        name="aborted-in-next-segment",
        what="an abort whose marker is in the next segment is not named",
        edits=(
            Edit(
                "storage/partition_log.py",
                "        for segment in self.segments[max(self._segment_index(start), 0) :]:\n"
                "            for entry in",
                "        first = max(self._segment_index(start), 0)\n"
                "        for segment in self.segments[first : first + 1]:\n"
                "            for entry in",
            ),
        ),
    ),
    Bug(
        name="roll-repeats-an-offset",
        what="a new segment begins one offset before the old one's end",
        workload="plain",
        edits=(
            Edit(
                "storage/partition_log.py",
                "return self._create_segment(old.end_offset, config)",
                "return self._create_segment(old.end_offset - 1, config)",
            ),
        ),
    ),
    Bug(
        name="log-start-moves-back",
        what="deleting records up to an offset below the log start brings the start back",
        edits=(
            Edit(
                "storage/partition_log.py",
                "self.log_start_offset = max(self.log_start_offset, offset)",
                "self.log_start_offset = offset",
            ),
            Edit(
                "runtime/partition.py",
                "        return max(target, self.log_start_offset)\n",
                "        return target\n",
            ),
        ),
    ),
)
