"""Bugs in who may write, and what a repeat is."""

from typing import Final

from tests.teeth.bug import Bug, Edit

PRODUCERS: Final = (
    Bug(
        name="window-of-four",
        what="the fifth newest batch of a producer is not recognised as a repeat",
        workload="plain",
        seeds=50,
        edits=(Edit("core/producers.py", "WINDOW: Final = 5", "WINDOW: Final = 4"),),
    ),
    Bug(
        name="window-of-one",
        what="only the newest batch of a producer is recognised as a repeat",
        workload="plain",
        edits=(
            Edit(
                "core/producers.py",
                "window = (*producer.batches[-(WINDOW - 1) :], batch)",
                "window = (batch,)",
            ),
        ),
    ),
    Bug(
        name="repeat-answered-wrongly",
        what="a repeat is answered with the offset of its last record",
        workload="plain",
        edits=(
            Edit(
                "runtime/partition.py",
                "AppendResult(repeated.base_offset, repeated.last_offset, append_time)",
                "AppendResult(repeated.last_offset, repeated.last_offset, append_time)",
            ),
        ),
    ),
    Bug(
        name="repeat-appended",
        what="a batch that was appended before is appended again",
        workload="plain",
        edits=(
            Edit(
                "core/producers.py",
                "if header.base_sequence != expected:",
                "if header.base_sequence > expected:",
            ),
            Edit(
                "runtime/partition.py",
                "            if repeated is not None:\n",
                "            if repeated is not None and False:\n",
            ),
        ),
    ),
    Bug(
        name="epoch-not-checked",
        what="neither partition nor coordinator looks at the epoch before the transaction's end",
        edits=(
            Edit(
                "core/producers.py",
                "if producer is not None and producer_epoch < producer.producer_epoch:",
                "if producer is not None and producer_epoch < 0:",
            ),
            Edit(
                "core/txn/shard.py",
                "        txn = self._owned(transactional_id, producer_id)\n"
                "        _check_epoch(txn, producer_epoch)\n",
                "        txn = self._owned(transactional_id, producer_id)\n",
            ),
            Edit(
                "core/txn/shard.py",
                "        _check_epoch(txn, command.producer_epoch)\n"
                "        step = NEXT[txn.state][Input.ADD]\n",
                "        step = NEXT[txn.state][Input.ADD]\n",
            ),
        ),
    ),
    Bug(
        name="producer-id-twice",
        what="after a restart the same producer ids are handed out again",
        workload="plain",
        edits=(
            Edit(
                "core/metadata/shard.py",
                "ProducerIds(next_id=first + PRODUCER_ID_BLOCK)",
                "ProducerIds(next_id=first)",
            ),
        ),
    ),
    Bug(
        name="sequence-gap-accepted",
        what="a batch is accepted although one before it is missing",
        workload="plain",
        edits=(
            Edit(
                "core/producers.py",
                "if header.base_sequence != expected:",
                "if header.base_sequence < expected:",
            ),
        ),
    ),
)
