"""What the log says became of each transaction: its markers, with the values that they end.

Whoever was told of a commit or of an abort is told by a client. Here the log itself is asked, so that
the checker can hold one against the other (decision-flip).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncelog.check import Op, Recorder, value_of
from oncelog.testing.workload.dump import Batch, Segment, batches, segments_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The end of one transaction in one partition."""

    offset: int
    is_commit: bool
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    #: What this run wrote in the transaction, as far as the log still holds it.
    values: tuple[int, ...]


def markers_of(log: Iterable[Batch], *, run: int) -> Iterator[Marker]:
    """The markers of a log in order; a marker ends all that its producer wrote since the last one."""
    written: dict[int, list[int]] = {}
    for batch in log:
        end = batch.end
        if end is not None:
            yield Marker(
                offset=batch.base_offset,
                is_commit=end.is_commit,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                coordinator_epoch=end.coordinator_epoch,
                values=tuple(written.pop(batch.producer_id, ())),
            )
        elif batch.is_transactional:
            found = (value_of(record.value or b"", run=run) for record in batch.records())
            kept = written.setdefault(batch.producer_id, [])
            kept += [value for value in found if value is not None]


def note_markers(recorder: Recorder, logs: Mapping[str, Iterable[Segment]], *, run: int) -> int:
    """Write down every marker of these logs, by partition (`topic:0`); answers how many there are.

    A log that no broker may leave so is `Damaged`.
    """
    count = 0
    for part, segments in logs.items():
        for marker in markers_of(batches(segments), run=run):
            recorder.note(
                Op.MARKER,
                end="commit" if marker.is_commit else "abort",
                at={part: marker.offset},
                values=marker.values,
                id=[marker.producer_id, marker.producer_epoch],
                coordinator_epoch=marker.coordinator_epoch,
            )
            count += 1
    return count


def logs_in(data_dir: Path, parts: Iterable[str]) -> dict[str, Iterator[Segment]]:
    """The logs of these partitions in a broker's data directory."""
    return {part: segments_in(data_dir / part.replace(":", "-")) for part in parts}
