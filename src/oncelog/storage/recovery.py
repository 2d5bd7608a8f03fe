"""Opening a log after a stop, an orderly one or not.

Above the recovery point (everything below it was synced) the log is read batch by batch and cut
where the first bad one begins; what is cut is kept in a file beside it. A bad batch below the
recovery point is damage: nothing is cut, nothing is skipped, the partition stays closed. After an
orderly stop only the last segment is touched. Recovery does not depend on how often it was
interrupted: it writes nothing that the next attempt would read differently. What it leaves is
synced before anyone reads it, for a killed broker's last writes may be in the page cache alone.
"""

from dataclasses import dataclass, field
from typing import Final

from oncelog.core.batch import BatchHeader, checksum
from oncelog.core.leader_epochs import BadCheckpoint, LeaderEpochs, decode_epochs
from oncelog.core.markers import decode_marker
from oncelog.core.producers import BadSnapshot, ProducerTable, decode_snapshot
from oncelog.core.stability import aborted_entry
from oncelog.storage.disk import Disk, File
from oncelog.storage.partition_log import LEADER_EPOCHS, DamagedLogError, PartitionLog
from oncelog.storage.segment import SUFFIXES, Segment, segment_name

_LOG: Final = ".log"


@dataclass(slots=True)
class Recovered:
    """A log that is ready to serve, and what it took."""

    log: PartitionLog
    producers: ProducerTable
    #: What was cut off, as (file it was kept in, bytes).
    cut: list[tuple[str, int]] = field(default_factory=list)
    #: Snapshots and indexes that could not be trusted.
    rebuilt: list[str] = field(default_factory=list)
    #: What has to be on the disk before a new snapshot is, and before the log is served.
    unsynced: list[File] = field(default_factory=list)
    #: Whether names were taken away, which must not come back.
    removed: bool = False


async def recover(
    disk: Disk,
    directory: str,
    *,
    metadata: str,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    index_interval_bytes: int,
    now_ms: int,
) -> Recovered:
    """Open the log in `directory`."""
    names = disk.list(directory)
    bases = _sweep(disk, directory, names)
    log = PartitionLog(disk, directory, metadata=metadata, log_start_offset=log_start_offset)
    recovered = Recovered(log, ProducerTable())
    if not bases:
        if recovery_point > log_start_offset:
            raise DamagedLogError(
                f"{directory} was synced up to offset {recovery_point} and has no segment now"
            )
        return recovered
    log.segments = [
        Segment(disk, directory, base, index_interval_bytes=index_interval_bytes) for base in bases
    ]
    log.advance_start(max(bases[0], log_start_offset))
    await _open_segments(disk, recovered, recovery_point, clean=clean)
    _load_epochs(disk, recovered, recovery_point)
    limit = log.log_end_offset if clean else min(log.log_end_offset, recovery_point)
    snapshot_offset = _load_producers(disk, recovered, limit, now_ms)
    # A killed process may also have left names that nobody has synced, with nothing behind them yet.
    is_new = not clean and recovery_point <= log.segments[-1].base_offset
    if recovered.unsynced or recovered.removed or is_new:
        await disk.sync([*recovered.unsynced, *_small_files(disk, directory)], [directory, "."])
    if snapshot_offset < log.log_end_offset and recovered.producers:
        # Retention may take the batches that they were read from. Only now: a snapshot vouches for
        # the index of aborted transactions, which must be on the disk before it.
        log.write_snapshot(recovered.producers)
        unsynced = log.take_unsynced()
        await disk.sync(unsynced.files, unsynced.directories)
    return recovered


def _sweep(disk: Disk, directory: str, names: list[str]) -> list[int]:
    """Remove what a crash left half done; returns the base offsets of the segments."""
    bases = []
    for name in names:
        stem, dot, suffix = name.partition(".")
        if suffix == "log" and stem.isdigit() and len(stem) == 20:
            bases.append(int(stem))
        elif name.endswith(".tmp"):
            disk.remove(f"{directory}/{name}")
        elif dot and suffix in ("index", "timeindex", "txnindex") and f"{stem}.log" not in names:
            disk.remove(f"{directory}/{name}")
    return sorted(bases)


def _small_files(disk: Disk, directory: str) -> list[File]:
    """Snapshots, epochs and the topic's id: whoever syncs their names must sync what they hold."""
    names = disk.list(directory)
    suffixes = (*SUFFIXES, ".cut")
    return [disk.open(f"{directory}/{name}") for name in names if not name.endswith(suffixes)]


async def _open_segments(
    disk: Disk, recovered: Recovered, recovery_point: int, *, clean: bool
) -> None:
    """Load the segments in order, and cut at the first bad batch above the recovery point."""
    segments = recovered.log.segments
    rebuilt: list[Segment] = []
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else None
        is_full = next_base is not None and next_base <= recovery_point
        indexed = _load_indexes(segment, verify=not (clean and is_full))
        if next_base is not None and is_full and indexed:
            _load_full(segment, next_base)
            if clean or _is_sound(segment, next_base):
                continue
            indexed = False
        if not indexed:
            recovered.rebuilt.append(f"{segment.file.path}: index")
        position = _scan(segment, recovery_point, from_index=clean and indexed)
        is_whole = position == segment.size_bytes and next_base in (None, segment.end_offset)
        if segment.end_offset < recovery_point and not (is_whole and next_base is not None):
            raise DamagedLogError(
                f"{segment.file.path} has no good batch at byte {position} (offset "
                f"{segment.end_offset}), though everything below {recovery_point} was synced"
            )
        if segment.end_offset > recovery_point:
            recovered.unsynced.append(segment.file)
        if is_whole:
            if next_base is not None:
                rebuilt.append(segment)
            continue
        await _set_aside(disk, recovered, segment, position)
        for later in segments[index + 1 :]:
            await _set_aside(disk, recovered, later, 0)
            _remove_segment(disk, recovered.log, later)
            recovered.removed = True
        del segments[index + 1 :]
        break
    for segment in rebuilt:
        recovered.unsynced += segment.seal()


def _load_indexes(segment: Segment, *, verify: bool) -> bool:
    """Take over the index files, if their newest entries point at the batch that they name."""
    if not (segment.offset_index.load() and segment.time_index.load()):
        return False
    return not verify or (_offsets_agree(segment) and _times_agree(segment))


def _offsets_agree(segment: Segment) -> bool:
    entry = segment.offset_index.last()
    if entry is None:
        return True
    for _, header in segment.walk(entry[1]):
        return header.last_offset == segment.base_offset + entry[0]
    return False


def _times_agree(segment: Segment) -> bool:
    entry = segment.time_index.last()
    if entry is None:
        return True
    found = segment.find(segment.base_offset + entry[1])
    return found is not None and (
        (found[1].max_timestamp, found[1].last_offset - segment.base_offset) == entry
    )


def _load_full(segment: Segment, next_base: int) -> None:
    """A full segment: its times come from its index, its end from its successor."""
    last = segment.time_index.last()
    if last is not None:
        segment.max_timestamp = last[0]
        segment.max_timestamp_offset = segment.base_offset + last[1]
    segment.end_offset = next_base


def _is_sound(segment: Segment, next_base: int) -> bool:
    """Whether a full segment reaches its successor, and its indexes know of its newest batches."""
    entry = segment.offset_index.last()
    end = segment.base_offset
    is_indexed = True
    for _, header in segment.walk(entry[1] if entry else 0):
        end = header.next_offset
        is_indexed = is_indexed and header.max_timestamp <= segment.max_timestamp
    return is_indexed and end == next_base


def _scan(segment: Segment, recovery_point: int, *, from_index: bool) -> int:
    """Read the headers; returns where the good part ends.

    After an orderly stop the last index entry is a place to begin. After any other the indexes are
    made anew: what they lost of their unsynced end nobody can tell.
    """
    position = _trim_indexes(segment, recovery_point) if from_index else _forget_indexes(segment)
    for _, header in segment.walk():
        segment.first_timestamp = header.max_timestamp if header.max_timestamp >= 0 else None
        break
    segment.end_offset = expected = segment.base_offset
    for start, header in segment.walk(position):
        if header.base_offset < expected:
            break  # An offset that goes back: these bytes are from another time.
        # The last synced batch is checked too: with a wrong length the next one would look torn.
        if header.next_offset >= recovery_point and not from_index:
            # The checksum does not cover the offset, but what was appended last left no gaps.
            if header.base_offset > max(expected, recovery_point - 1):
                break
            if not _holds(segment.file, start, header):
                break
        segment.note(header, start)
        expected = header.next_offset
        position = start + header.size_bytes
    return position


def _forget_indexes(segment: Segment) -> int:
    segment.offset_index.forget()
    segment.time_index.forget()
    segment.max_timestamp = segment.max_timestamp_offset = -1
    return 0


def _trim_indexes(segment: Segment, recovery_point: int) -> int:
    """Drop index entries above the recovery point; returns the position of the last one left."""
    count = len(segment.offset_index)
    while count and segment.base_offset + segment.offset_index[count - 1][0] >= recovery_point:
        count -= 1
    segment.offset_index.truncate(count)
    entry = segment.offset_index.last()
    time_count = len(segment.time_index)
    while time_count and (entry is None or segment.time_index[time_count - 1][1] > entry[0]):
        time_count -= 1
    segment.time_index.truncate(time_count)
    last_time = segment.time_index.last()
    if last_time is not None:
        segment.max_timestamp = last_time[0]
        segment.max_timestamp_offset = segment.base_offset + last_time[1]
    return entry[1] if entry else 0


def _holds(file: File, position: int, header: BatchHeader) -> bool:
    return checksum(file.read(position, header.size_bytes)) == header.crc


async def _set_aside(disk: Disk, recovered: Recovered, segment: Segment, position: int) -> None:
    """Keep what is cut: an operator may want to look at it."""
    size = segment.size_bytes - position
    if size > 0:
        path = f"{segment.file.path.removesuffix(_LOG)}.{position}.cut"
        keep = disk.open(path, create=True)
        for start in range(position, segment.size_bytes, 1 << 20):
            keep.append([segment.file.read(start, min(1 << 20, segment.size_bytes - start))])
        directory = path.rpartition("/")[0]
        await disk.sync([keep], [directory])
        keep.close()
        recovered.cut.append((path, size))
    segment.file.truncate(position)
    await disk.sync([segment.file])


def _remove_segment(disk: Disk, log: PartitionLog, segment: Segment) -> None:
    segment.close()
    stem = f"{log.directory}/{segment_name(segment.base_offset)}"
    for suffix in SUFFIXES:
        disk.remove(stem + suffix)


def _load_epochs(disk: Disk, recovered: Recovered, recovery_point: int) -> None:
    log = recovered.log
    data = disk.read_file(f"{log.directory}/{LEADER_EPOCHS}")
    try:
        log.leader_epochs = decode_epochs(data) if data is not None else LeaderEpochs()
    except BadCheckpoint:
        recovered.rebuilt.append(f"{log.directory}/{LEADER_EPOCHS}")
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    # The file may be older than the newest batches, which know their epoch themselves.
    is_known = bool(log.leader_epochs.entries)
    for segment in log.segments:
        if is_known and segment.end_offset <= recovery_point:
            continue
        for _, header in segment.walk():
            log.leader_epochs.assign(header.leader_epoch, header.base_offset)
    log.leader_epochs.truncate_from_start(log.log_start_offset)


def _load_producers(disk: Disk, recovered: Recovered, limit: int, now_ms: int) -> int:
    """The newest good snapshot, and what was appended after it; returns the snapshot's offset.

    A snapshot vouches for the index of aborted transactions below it, and so has to lie below
    `limit`, up to which that index was synced.
    """
    log = recovered.log
    names = [n for n in disk.list(log.directory) if n.endswith(".snapshot")]
    # The log start may lie above all of it (DeleteRecords): its producers may repeat all the same.
    offset = log.segments[0].base_offset
    for name in sorted(names, reverse=True):
        stem = name.removesuffix(".snapshot")
        usable = stem.isdigit() and offset <= int(stem) <= limit
        table = _read_snapshot(disk, f"{log.directory}/{stem}") if usable else None
        if table is not None:
            recovered.producers, offset = table, int(stem)
            break
        if usable:
            recovered.rebuilt.append(f"{log.directory}/{name}")
        disk.remove(f"{log.directory}/{name}")
        disk.remove(f"{log.directory}/{stem}.window")
        recovered.removed = True
    for segment in log.segments:
        if segment.end_offset >= offset:
            # Also where nothing is left to replay: what a torn marker has left in the index would
            # stand before all that comes after it.
            changed = segment.txn_index.truncate_from(offset)
            if changed is not None:
                recovered.unsynced.append(changed)
        if segment.end_offset > offset:
            _replay_producers(recovered, segment, offset, now_ms)
    recovered.producers.stability.settle(log.log_end_offset)
    return offset


def _replay_producers(recovered: Recovered, segment: Segment, offset: int, now_ms: int) -> None:
    """Batches that no snapshot covers; aborted transactions among them are indexed anew."""
    producers = recovered.producers
    for position, header in segment.walk(segment.index_position(offset)):
        if header.base_offset < offset or not header.has_producer:
            continue
        # When it was appended nobody knows any more: now is the safe answer.
        if not header.is_control:
            producers.apply(header, timestamp_ms=header.max_timestamp, active_at_ms=now_ms)
            continue
        marker = decode_marker(header, segment.file.read(position, header.size_bytes))
        if marker is None:
            continue
        ended = producers.apply_marker(marker, header.base_offset, active_at_ms=now_ms)
        if ended is not None and not ended.committed:
            entry = aborted_entry(ended, producers.stability.oldest_open_offset())
            recovered.unsynced.append(segment.txn_index.append(entry))


def _read_snapshot(disk: Disk, stem: str) -> ProducerTable | None:
    snapshot = disk.read_file(f"{stem}.snapshot")
    window = disk.read_file(f"{stem}.window")
    if snapshot is None or window is None:
        return None
    try:
        return decode_snapshot(snapshot, window)
    except BadSnapshot:
        return None
