"""The ledger: one progress record for each transactional id, committed together with the output.

It lies in a compacted topic, and is the only thing that says which batches are done: not a group's
offsets (they expire), not a checkpoint (it can be lost, or put back). Pure functions all: what a
record holds, how the records of a partition are replayed, and which batch may run.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from oncelog.core.batch import TRANSACTIONAL, BatchHeader
from oncelog.core.packing import is_commit
from oncelog.core.records import Record
from oncelog.spark.errors import PipelineError, Refused
from oncelog.spark.offsets import BadOffsets, Position

FORMAT: Final = 1
#: How many earlier batches a record remembers, so that an old checkpoint is recognised.
RECENT_MAX: Final = 100

NOWHERE: Final = Position(offsets={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has been committed under one transactional id, up to and with one batch."""

    #: Whose batches these are: a streaming query's id, or the name of a pipeline.
    query: str
    batch: int
    #: What the batch was made of, in a few letters; empty if it cannot be known.
    fingerprint: str
    #: The fingerprints of the batches before, the latest last.
    recent: tuple[str, ...] = ()
    #: Where the next batch begins, for all partitions of the source, as far as it is known.
    position: Position = NOWHERE
    #: Rows of this batch that became records, and rows that went to the dead letters.
    rows: int = 0
    rejected: int = 0
    #: Rows of all batches.
    total_rows: int = 0
    committed_ms: int = 0

    def encode(self) -> bytes:
        """The value of the progress record."""
        value = {
            "format": FORMAT,
            "query": self.query,
            "batch": self.batch,
            "fingerprint": self.fingerprint,
            "recent": list(self.recent),
            "position": self.position.to_json(),
            "rows": self.rows,
            "rejected": self.rejected,
            "total_rows": self.total_rows,
            "committed_ms": self.committed_ms,
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Progress":
        """Read a progress record; one that cannot be read is an error, never "no progress"."""
        try:
            found = json.loads(value)
            if found["format"] != FORMAT:
                raise UnreadableProgress(
                    f"The progress record is of format {found['format']}, and this version reads "
                    f"format {FORMAT}: use the version of Oncelog that wrote it, or a newer one."
                )
            return cls(
                query=str(found["query"]),
                batch=int(found["batch"]),
                fingerprint=str(found["fingerprint"]),
                recent=tuple(str(each) for each in found["recent"]),
                position=Position.from_json(found["position"]),
                rows=int(found["rows"]),
                rejected=int(found["rejected"]),
                total_rows=int(found["total_rows"]),
                committed_ms=int(found["committed_ms"]),
            )
        except (ValueError, KeyError, TypeError, BadOffsets) as error:
            raise UnreadableProgress(
                f"The progress record cannot be read ({error!r}): something else has written to "
                f"the progress topic."
            ) from error


class UnreadableProgress(PipelineError):
    """The ledger holds something that is not progress."""


def fingerprint(parts: Any) -> str:
    """A few letters that tell one input from another."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- replay -----------------------------------------------------------------------------------


class Replay:
    """The committed value of every key, from the batches of a partition in order, markers included.

    At `read_committed` another sink's open transaction would hide ours, so the markers are followed
    here: a value is pending until its producer's COMMIT.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.committed: dict[bytes, bytes | None] = {}
        self._pending: dict[int, dict[bytes, bytes | None]] = {}

    def feed(self, header: BatchHeader, records: Sequence[Record]) -> None:
        """Take the next batch."""
        if header.is_control:
            values = self._pending.pop(header.producer_id, {})
            if records and is_commit(records[0]):
                self.committed.update(values)
            return
        values = {record.key: record.value for record in records if record.key is not None}
        if header.attributes & TRANSACTIONAL:
            self._pending.setdefault(header.producer_id, {}).update(values)
        else:
            self.committed.update(values)


# --- which batch may run ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchName:
    """A batch that wants to run: whose, which, and made of what."""

    query: str
    number: int
    fingerprint: str


class Verdict(Enum):
    """What to do with a batch."""

    RUN = auto()
    DONE = auto()


def judge(name: str, progress: Progress | None, batch: BatchName, *, adopt: bool) -> Verdict:
    """Whether a batch is next, or done; anything else is refused with the reason.

    `adopt` takes a query over where its batches do not follow: from here on they count.
    """
    if progress is None:
        if batch.number == 0 or adopt:
            return Verdict.RUN
        raise Refused(
            f"Batch {batch.number} of query {batch.query} is to be written as {name!r}, which has no "
            f"progress yet: it was forgotten, or another transactional id or progress topic wrote "
            f"the batches before it. To go on from here, knowing that those were written or are not "
            f"wanted, start once with adopt=True."
        )
    if batch.query != progress.query:
        if adopt:
            return Verdict.RUN
        raise Refused(
            f"{name!r} belongs to query {progress.query} (batch {progress.batch} was its last), and "
            f"this is query {batch.query}: its checkpoint is new, or was deleted, so that it would "
            f"read and write its input once more. Put the old checkpoint back, or use another "
            f"transactional id, or, if the query starts where the old one stopped, adopt=True."
        )
    if batch.number == progress.batch + 1:
        return Verdict.RUN
    if batch.number > progress.batch:
        if adopt:
            return Verdict.RUN
        raise Refused(
            f"Batch {batch.number} of {name!r} does not follow batch {progress.batch}, the last that "
            f"was committed: batches in between were written elsewhere or lost. If that is known and "
            f"wanted, start once with adopt=True."
        )
    known = _fingerprint_of(progress, batch.number)
    if known is None:
        raise Refused(
            f"Batch {batch.number} of {name!r} was committed long ago (the last is batch "
            f"{progress.batch}), too long to tell whether it had the same input: the checkpoint is "
            f"an old copy. Put a newer one back, or start anew with another transactional id."
        )
    if batch.fingerprint and known and batch.fingerprint != known:
        raise Refused(
            f"Batch {batch.number} of {name!r} is already committed, with other input than it has "
            f"now: the checkpoint was put back to an old copy or changed. Skipping it would lose "
            f"records and writing it would double some. Put the newest checkpoint back, or start a "
            f"new query where the last one stopped ({_readable(progress.position)}) with adopt=True."
        )
    return Verdict.DONE


def advance(
    progress: Progress | None,
    batch: BatchName,
    position: Position,
    *,
    rows: int,
    rejected: int,
    now_ms: int,
) -> Progress:
    """The progress once a batch is committed."""
    recent: tuple[str, ...] = ()
    if progress is not None and batch.query == progress.query:
        if batch.number == progress.batch + 1:
            recent = (*progress.recent, progress.fingerprint)[-RECENT_MAX:]
    return Progress(
        query=batch.query,
        batch=batch.number,
        fingerprint=batch.fingerprint,
        recent=recent,
        position=position,
        rows=rows,
        rejected=rejected,
        total_rows=rows + (progress.total_rows if progress else 0),
        committed_ms=now_ms,
    )


def _fingerprint_of(progress: Progress, number: int) -> str | None:
    back = progress.batch - number
    if back == 0:
        return progress.fingerprint
    return progress.recent[-back] if back <= len(progress.recent) else None


def _readable(position: Position) -> str:
    if not position.offsets:
        return "its offsets are not known"
    return ", ".join(f"{place} at {offset}" for place, offset in sorted(position.offsets.items()))
