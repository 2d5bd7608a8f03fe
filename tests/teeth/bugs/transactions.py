"""Bugs in the life of a transaction."""

from typing import Final

from tests.teeth.bug import Bug, Edit

TRANSACTIONS: Final = (
    Bug(
        name="one-marker-missing",
        what="the markers go to all partitions of a transaction but one",
        edits=(
            Edit(
                "runtime/markers.py",
                "failed = self._try(effect, effect.txn.partitions, commits)",
                "failed = self._try(effect, effect.txn.partitions[:-1], commits)",
            ),
        ),
    ),
    Bug(
        name="decision-forgotten",
        what="after a restart a transaction that was prepared is aborted, whatever was decided",
        edits=(
            Edit(
                "core/txn/shard.py",
                "WriteMarkers(txn=txn, committed=txn.state is TxnState.PREPARE_COMMIT)",
                "WriteMarkers(txn=txn, committed=False)",
            ),
        ),
    ),
    Bug(
        name="decision-not-carried-on",
        what="markers that were under way are not written after a restart",
        edits=(
            Edit(
                "runtime/transactions.py",
                "        for effect in unfinished:\n            self._act(effect)\n",
                "        return\n",
            ),
        ),
    ),
    Bug(
        name="timeout-keeps-the-epoch",
        what="a producer goes on in the next transaction when its own was timed out",
        edits=(
            Edit(
                "core/txn/shard.py",
                "        prepared = self._expelled(txn, command.fresh_producer_id, now)\n"
                "        after_ms =",
                "        prepared = replace(\n"
                "            self._expelled(txn, command.fresh_producer_id, now),\n"
                "            producer_epoch=txn.producer_epoch,\n"
                "            client_version=0,\n"
                "        )\n"
                "        after_ms =",
            ),
        ),
    ),
    Bug(
        name="init-leaves-open",
        what="InitProducerId does not abort what the last instance left open",
        edits=(
            Edit(
                "core/txn/shard.py",
                "        if txn.state is TxnState.ONGOING:\n            return self._fence(",
                "        if txn.state is TxnState.EMPTY and is_retry:\n            return self._fence(",
            ),
        ),
    ),
    Bug(
        name="init-keeps-the-epoch",
        what="a new instance gets the epoch of the last one, which is not fenced",
        edits=(
            Edit(
                "core/txn/shard.py",
                "producer_id, epoch = txn.producer_id, txn.producer_epoch + 1\n",
                "producer_id, epoch = txn.producer_id, txn.producer_epoch\n",
            ),
        ),
    ),
    Bug(
        name="end-not-tied-v2",
        what="an EndTxn of the epoch before ends the open transaction (V2)",
        workload="crashes",
        edits=(
            Edit(
                "core/txn/shard.py",
                "    _check_epoch(txn, epoch)\n    return EndV2.COMMIT_AT_E",
                "    return EndV2.COMMIT_AT_E",
            ),
        ),
    ),
    Bug(
        name="end-not-tied-v1",
        what="an EndTxn that was held up in the network ends the next transaction (V1)",
        workload="late",
        seeds=40,
        edits=(
            Edit(
                "runtime/transactions.py",
                "            if connection < known[2]:\n",
                "            if connection < 0:\n",
            ),
        ),
    ),
    Bug(
        name="timeout-never-fires",
        what="a transaction whose producer is gone stays open",
        edits=(
            Edit(
                "core/txn/shard.py",
                "overdue = [self._watched[name] for name in self._overdue(now)]",
                "overdue: list[Watched] = []",
            ),
        ),
    ),
    Bug(
        name="old-coordinators-marker",
        what="a marker of a replaced coordinator is accepted",
        edits=(
            Edit(
                "core/producers.py",
                "if marker.coordinator_epoch < producer.coordinator_epoch:",
                "if marker.coordinator_epoch < -1:",
            ),
        ),
    ),
    Bug(
        name="repeated-marker-ends-the-next",
        what="a marker that comes again ends the producer's next transaction (V2)",
        edits=(
            Edit(
                "core/producers.py",
                "            and marker.producer_epoch != MAX_EPOCH\n",
                "            and marker.producer_epoch == MAX_EPOCH\n",
            ),
        ),
    ),
)
