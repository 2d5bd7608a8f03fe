"""Copies from one topic to another: reads in a group, writes and commits its offsets in transactions.

It goes on through everything: a transaction that failed is aborted and begun again from the committed
offsets; a producer whose state is not known is replaced by one of the same transactional id. The key
of a copy says which input it is of, and its value is its own, so that it can be told which
transaction it came from.

Members leave the group's generation only between two transactions (they rejoin while they read), and
whoever does not know how a transaction ended opens its id anew before it reads on. So also those
clients are safe that say nothing of the group in their transactions, or do not ask for stable
offsets (aiokafka).
"""

import logging
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from oncelog.check import Payload, encode_payload
from oncelog.check.payload import decode_payload
from oncelog.testing.workload.recording import RemoteRecorder, writes

SOURCE: Final = "in"
TARGET: Final = "out"
#: Fewer than inputs, so that transactions of different copiers meet in one partition.
TARGET_PARTITIONS: Final = 4
GROUP: Final = "copiers"
BATCH: Final = 8
WAIT_S: Final = 30.0
TRANSACTION_TIMEOUT_MS: Final = 10_000
#: Nobody loses its place in the group only because the machine is slow.
SESSION_TIMEOUT_MS: Final = 30_000


class Input(NamedTuple):
    """A record that is to be copied."""

    partition: int
    offset: int
    value: bytes


class Client(Protocol):
    """What the copier needs of a library; any call may raise."""

    def open(self) -> None:
        """Get an identity for the transactional id; whatever was open under it has ended."""

    def read(self) -> Sequence[Input]:
        """Some records, or none."""

    def begin(self) -> None:
        """Open a transaction."""

    def send(self, records: Sequence[tuple[int, bytes, bytes]]) -> Sequence[int | None]:
        """Write (partition, key, value), and wait; answers their offsets."""

    def send_offsets(self, ends: Mapping[int, int]) -> None:
        """The input is consumed up to here."""

    def commit(self) -> None:
        """End the transaction; returns when that is confirmed."""

    def abort(self) -> None:
        """End the transaction; returns when that is confirmed."""

    def rewind(self) -> None:
        """Go back to the committed offsets."""

    def done(self) -> None:
        """Nothing is under way: partitions may be given up."""

    def close(self) -> None:
        """Leave in order."""


# --- the copier -----------------------------------------------------------------------------


class Copier:
    """Copies until it is told that the run is over."""

    def __init__(self, client: Client, tid: str, recorder: RemoteRecorder, seed: int) -> None:
        self._client = client
        self._tid = tid
        self._recorder = recorder
        self._run = seed
        self._rng = Random(f"{seed} {tid}")
        self._process = recorder.ask("process")
        self._count = 0

    def work(self) -> None:
        """Copy until the recorder says that it is enough."""
        self._open()
        while not self._recorder.is_over:
            records = self._read()
            if records:
                self._copy(records)
                self._client.done()
            # The answer also says whether it is over.
            self._recorder.ask("working" if records else "waiting", tid=self._tid)
        self._client.close()

    def _read(self) -> Sequence[Input]:
        try:
            return self._client.read()
        except Exception as error:
            # Some clients tell whoever reads that the broker is away, and try again when asked.
            logging.info("%s cannot read: %r", self._tid, error)
            time.sleep(0.05)
            return ()

    def _open(self) -> None:
        """A producer with an identity, sooner or later; then back to what is committed."""
        while True:
            call = self._recorder.ask("call", p=self._process, op="open", tid=self._tid)
            outcome = "unknown"
            try:
                self._client.open()
                outcome = "ok"
                self._client.rewind()
            except Exception as error:
                logging.info("%s cannot be opened: %r", self._tid, error)
                time.sleep(0.05)
                self._recorder.ask(outcome, call=call)
                self._process = self._recorder.ask("process")
                if self._recorder.is_over:
                    raise
            else:
                self._recorder.ask(outcome, call=call)
                return

    def _copy(self, records: Sequence[Input]) -> None:
        values = self._recorder.new_values(len(records))
        places = [record.partition % TARGET_PARTITIONS for record in records]
        parts = [f"{TARGET}:{place}" for place in places]
        asked = [["w", part, value] for part, value in zip(parts, values, strict=True)]
        call = self._recorder.ask("call", p=self._process, op="txn", tid=self._tid, steps=asked)
        self._count += 1
        offsets: Sequence[int | None] = [None] * len(records)
        fields: dict[str, Any] = {"call": call}
        is_commit = self._rng.random() > 0.15
        try:
            self._client.begin()
            offsets = self._client.send(
                [
                    (places[index], key_of(record), self._payload(index, values[index]))
                    for index, record in enumerate(records)
                ]
            )
            self._client.send_offsets({record.partition: record.offset + 1 for record in records})
            ending: dict[str, Any] = {
                "end": "commit" if is_commit else "abort",
                "tc": time.monotonic_ns(),
            }
            if is_commit:
                ending["group"] = [GROUP, None, ranges(records)]
            # Said first: should this process be killed now, its commit may have happened.
            self._recorder.ask("ending", call=call, **ending)
            fields |= ending
            if is_commit:
                self._client.commit()
            else:
                self._client.abort()
        except Exception as error:
            fields["err"] = repr(error)
        fields["steps"] = writes(zip(parts, values, offsets, strict=True))
        if "err" not in fields:
            self._recorder.ask("ok" if is_commit else "fail", **fields)
            if not is_commit:
                self._go_back()
            return
        logging.info("%s: transaction %d: %s", self._tid, self._count, fields["err"])
        if fields.get("end") == "commit":
            self._recorder.ask("unknown", **fields)
            self._process = self._recorder.ask("process")
            self._open()
            return
        self._recorder.ask("fail", **fields)
        self._give_up()

    def _give_up(self) -> None:
        """Nobody asked for a commit: abort, or let the next instance do so."""
        try:
            self._client.abort()
        except Exception as error:
            logging.info("%s cannot abort: %r", self._tid, error)
            self._process = self._recorder.ask("process")
            self._open()
            return
        self._go_back()

    def _go_back(self) -> None:
        try:
            self._client.rewind()
        except Exception as error:
            logging.info("%s cannot go back: %r", self._tid, error)
            self._process = self._recorder.ask("process")
            self._open()

    def _payload(self, index: int, value: int) -> bytes:
        return encode_payload(
            Payload(
                run=self._run,
                process=self._process,
                txn_number=self._count,
                index=index,
                value=value,
            )
        )


def key_of(record: Input) -> bytes:
    """What names the input in its copy: its partition and its value."""
    return b"%d %d" % (record.partition, decode_payload(record.value).value)


def origin_of(key: bytes) -> tuple[int, int]:
    """The same back from the copy's key."""
    partition, value = map(int, key.split())
    return partition, value


def ranges(records: Sequence[Input]) -> dict[str, list[int]]:
    """From the first to the last of each partition, end exclusive."""
    found: dict[str, list[int]] = {}
    for record in records:
        part = f"{SOURCE}:{record.partition}"
        found.setdefault(part, [record.offset, 0])[1] = record.offset + 1
    return found
