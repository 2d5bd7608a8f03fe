"""Brokers that kill themselves at a named moment of a transaction.

The moments are found by wrapping a few methods before the broker starts, so that the broker that is
shipped has no trace of them. A point is `before-WHAT` or `after-WHAT`, the n-th time with `:n`:

| WHAT | what is written there |
|---|---|
| `identity` | a transactional id gets its producer id and epoch |
| `added` | partitions are part of the transaction |
| `data` | a transactional batch of a client |
| `offsets` | group offsets inside a transaction |
| `prepare` | the decision |
| `marker` | the end of the transaction in one partition |
| `complete` | the end of the transaction as a whole |
| `producer-ids` | a block of producer ids is taken |

Besides: `committed-prepare` and `committed-complete` (synced, and nobody was told), `decided` (EndTxn
is about to be answered), `loading` (the coordinator reads a partition of its log).

Run as a program it starts brokers on demand, one at a time, each as a fork of this process: it has
everything imported already, so a broker is back within a tenth of a second. Written to each line of
its standard input is `{"words": [...], "crash_at": "after-prepare:2"}`.
"""

import importlib
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import oncelog.api
from oncelog.cli.main import main as run_command
from oncelog.core.batch import HEADER_BYTES, BatchHeader
from oncelog.core.records import decode_records
from oncelog.core.txn.machine import TxnState
from oncelog.core.types import OFFSETS_TOPIC, TRANSACTION_TOPIC
from oncelog.runtime.log_directory import METADATA_PARTITION
from oncelog.runtime.partition import Partition
from oncelog.runtime.transactions import TransactionCoordinator

#: Where a value of the transaction log has its state: behind version, producer, epoch and timeout.
STATE_BYTE: Final = 16
NAMES: Final = {
    TxnState.EMPTY: "identity",
    TxnState.ONGOING: "added",
    TxnState.PREPARE_COMMIT: "prepare",
    TxnState.PREPARE_ABORT: "prepare",
    TxnState.COMPLETE_COMMIT: "complete",
    TxnState.COMPLETE_ABORT: "complete",
}


class CrashPoint:
    """The one moment at which this broker dies."""

    def __init__(self, text: str) -> None:
        self.name, _, count = text.partition(":")
        self._left = int(count or 1)

    def reach(self, name: str) -> None:
        """Die if this is it."""
        if name == self.name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def what_is_written(partition: Partition, batch: memoryview, header: BatchHeader) -> str:
    """The name of an append."""
    topic = partition.topic_partition.topic
    if topic == OFFSETS_TOPIC:
        return "offsets" if header.is_transactional else "group"
    if topic == TRANSACTION_TOPIC:
        last = list(decode_records(header, batch[HEADER_BYTES:]))[-1]
        return "tombstone" if last.value is None else NAMES[TxnState(last.value[STATE_BYTE])]
    if partition.topic_partition == METADATA_PARTITION:
        keys = [record.key or b"" for record in decode_records(header, batch[HEADER_BYTES:])]
        return "producer-ids" if any(b"producer_ids" in key for key in keys) else "metadata"
    return "data" if header.is_transactional else "plain"


def install(point: CrashPoint) -> None:
    """From now on this process dies when it gets there."""
    written: dict[Partition, str] = {}
    append = Partition.append
    append_marker = Partition.append_marker
    set_committed = Partition.set_committed
    open_shard = TransactionCoordinator.open
    end_txn = TransactionCoordinator.end_txn

    def append_or_die(self: Partition, batch: memoryview, header: BatchHeader, now: Any) -> Any:
        what = what_is_written(self, batch, header)
        point.reach(f"before-{what}")
        written[self] = what
        result = append(self, batch, header, now)
        point.reach(f"after-{what}")
        return result

    def append_marker_or_die(self: Partition, *given: Any) -> Any:
        point.reach("before-marker")
        result = append_marker(self, *given)
        point.reach("after-marker")
        return result

    def set_committed_or_die(self: Partition, end: Any) -> None:
        set_committed(self, end)
        if self.topic_partition.topic == TRANSACTION_TOPIC:
            point.reach(f"committed-{written.get(self)}")

    def open_shard_or_die(self: TransactionCoordinator, *given: Any, **named: Any) -> Any:
        opened = open_shard(self, *given, **named)
        point.reach("loading")
        return opened

    async def end_txn_or_die(self: TransactionCoordinator, *given: Any, **named: Any) -> Any:
        identity = await end_txn(self, *given, **named)
        point.reach("decided")
        return identity

    replaced: dict[tuple[type, str], Callable[..., Any]] = {
        (Partition, "append"): append_or_die,
        (Partition, "append_marker"): append_marker_or_die,
        (Partition, "set_committed"): set_committed_or_die,
        (TransactionCoordinator, "open"): open_shard_or_die,
        (TransactionCoordinator, "end_txn"): end_txn_or_die,
    }
    for (owner, name), function in replaced.items():
        setattr(owner, name, function)


def import_everything() -> None:
    """What a broker imports when it is first needed is imported once for all of them."""
    late = ["oncelog.cli.serve", "oncelog.server.broker", "oncelog.server.heap"]
    late += [found.name for found in pkgutil.iter_modules(oncelog.api.__path__, "oncelog.api.")]
    for name in late:
        importlib.import_module(name)


def serve_on_demand() -> None:
    """Read what to start, start it, say how it ended; until the input ends."""
    import_everything()
    for line in sys.stdin:
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            if wanted["crash_at"] is not None:
                install(CrashPoint(wanted["crash_at"]))
            code = 1
            try:
                code = run_command(wanted["words"])
            finally:
                sys.stdout.flush()
                os._exit(code)
        print(f"pid {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    serve_on_demand()
