"""What a log is after a stop of any kind: cut, torn, flipped, lost or orderly."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from oncelog.core.errors import BrokerError, KafkaStorageError
from oncelog.core.stability import ENTRY
from oncelog.core.topic_config import TopicConfig
from oncelog.core.types import Now
from oncelog.observe import notes
from oncelog.runtime.log_directory import CLEAN_SHUTDOWN
from oncelog.storage.disk import RealDisk
from oncelog.testing.sim.loop import Process, as_process, crash
from tests.core.batches import TIME_MS, a_batch
from tests.storage.disks import CountingDisk, Files, FragileDisk, disk_of, files_of, root_of
from tests.storage.opened import (
    CHECKPOINT,
    Opened,
    State,
    offsets_of,
    open_on,
    simulated,
    small_segments,
    state_of,
    steps_of,
)

LOG = "t-0/00000000000000000000.log"
ONE_SEGMENT = TopicConfig()
#: The size of a batch of one record, as these tests append it.
BATCH_BYTES = len(a_batch(sequence=0))
TRANSACTIONAL = 0x10


def written(
    config: TopicConfig, *, batches: int, synced: int | None = None, clean: bool = False
) -> tuple[Files, State]:
    """The files after so many batches, a checkpoint after `synced` of them, and a kill or a stop."""

    async def main() -> tuple[Files, State]:
        disk = disk_of({})
        opened = await open_on(disk, config, epoch=3)
        for index in range(batches):
            opened.append(sequence=index, time_ms=TIME_MS + 10 * index)
            await opened.commit()
            if index + 1 == synced:
                await opened.logs.checkpoint()
        state = state_of(opened.partition)
        if clean:
            await opened.logs.close()
        return files_of(disk), state

    return simulated(main)


def recovered(files: Files, config: TopicConfig) -> tuple[Opened, Files, State]:
    """Open these files; what the disk holds afterwards and what the partition knows."""

    async def main() -> tuple[Opened, Files, State]:
        disk = disk_of(files)
        opened = await open_on(disk, config, epoch=4)
        return opened, files_of(disk), state_of(opened.partition)

    return simulated(main)


@contextmanager
def real_disk(root: Path, files: Files) -> Iterator[RealDisk]:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for path, data in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)
    disk = RealDisk(root)
    try:
        yield disk
    finally:
        disk.shut_down()


# --- the tail -------------------------------------------------------------------------------


def test_e67_a_log_cut_at_any_byte_of_its_last_batch_ends_before_it(tmp_path: Path) -> None:
    """E67, on the real disk: exactly the whole batches remain, and the next one goes on there."""
    files, state = written(ONE_SEGMENT, batches=4, synced=3)
    whole = files[LOG]

    async def check(size: int) -> None:
        kept = BATCH_BYTES * 3 + size
        with real_disk(tmp_path / "data", files | {LOG: whole[:kept]}) as disk:
            opened = await open_on(disk, ONE_SEGMENT)
            result = opened.append(sequence=3)
            await opened.commit()
            assert state_of(opened.partition).batches[:3] == state.batches[:3]
            assert offsets_of(opened.partition) == [0, 1, 2, 3]
            assert result.base_offset == 3
            asides = [path for path in files_of(disk) if path.endswith(".cut")]
            assert asides == ([f"{LOG[:-4]}.{3 * BATCH_BYTES}.cut"] if size else [])
            assert not size or disk.read_file(asides[0]) == whole[3 * BATCH_BYTES : kept]

    for size in range(BATCH_BYTES):
        asyncio.run(check(size))


@pytest.mark.parametrize("zeros", [1, 11, 61, 100, 5000])
def test_e69_a_run_of_zeros_at_the_end_is_cut_and_kept_aside(zeros: int) -> None:
    """E69."""
    files, state = written(ONE_SEGMENT, batches=3, synced=2)

    opened, after, now = recovered(files | {LOG: files[LOG] + bytes(zeros)}, ONE_SEGMENT)

    assert now == state
    assert after[LOG] == files[LOG]
    assert after[f"{LOG[:-4]}.{3 * BATCH_BYTES}.cut"] == bytes(zeros)
    assert any(isinstance(note, notes.TailCut) for note in opened.notes)


def test_e74_every_bit_flipped_above_the_sync_point_is_noticed() -> None:
    """E74 above the sync point. Bytes 12-15, the leader epoch, are under no checksum."""
    files, state = written(ONE_SEGMENT, batches=4, synced=2)
    start = 2 * BATCH_BYTES

    for position in (p for p in range(BATCH_BYTES) if not 12 <= p < 16):
        for bit in range(8):
            flipped = bytearray(files[LOG])
            flipped[start + position] ^= 1 << bit
            _, after, now = recovered(files | {LOG: bytes(flipped)}, ONE_SEGMENT)
            assert now.batches == state.batches[:2], f"byte {position}, bit {bit}"
            assert after[f"{LOG[:-4]}.{start}.cut"] == flipped[start:]


def test_e68_a_batch_whose_earlier_page_is_missing_is_cut_though_its_end_is_sound() -> None:
    """E68."""
    files, state = written(ONE_SEGMENT, batches=2, synced=2)

    async def main() -> Files:
        disk = disk_of(files)
        opened = await open_on(disk, ONE_SEGMENT)
        opened.append(sequence=2, padding=5000)
        await opened.commit()
        return files_of(disk)

    torn = bytearray(simulated(main)[LOG])
    torn[2 * BATCH_BYTES + 512 : 2 * BATCH_BYTES + 1024] = bytes(512)

    _, after, now = recovered(files | {LOG: bytes(torn)}, ONE_SEGMENT)

    assert now.batches == state.batches
    assert len(after[LOG]) == 2 * BATCH_BYTES


@pytest.mark.parametrize("synced", [None, 1])
def test_a_cut_in_an_early_segment_takes_the_later_ones_along(synced: int | None) -> None:
    """Nothing above a hole is readable: offsets go on from the last good batch."""
    config = small_segments()
    files, state = written(config, batches=9, synced=synced)
    logs = sorted(path for path in files if path.endswith(".log"))
    files[logs[1]] = files[logs[1]][:-1]

    _, after, now = recovered(files, config)

    assert len(logs) == 3
    assert now.batches == state.batches[:5]
    assert [path for path in after if path.endswith(".log")] == logs[:2]
    assert after[f"{logs[2][:-4]}.0.cut"] == files[logs[2]]


# --- below the sync point -------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 5, 6, 7, 8, 10, 11, 16])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_e74_damage_below_the_sync_point_closes_the_partition_and_touches_nothing(
    batch: int, position: int
) -> None:
    """E74, P13: what was synced is never cut and never skipped."""
    files, _ = written(ONE_SEGMENT, batches=4, synced=3)
    flipped = bytearray(files[LOG])
    flipped[batch * BATCH_BYTES + position] ^= 1
    files[LOG] = bytes(flipped)

    opened, after, _ = recovered(files, ONE_SEGMENT)

    assert opened.partition.offline is not None
    assert any(isinstance(note, notes.PartitionOffline) for note in opened.notes)
    assert after == files
    with pytest.raises(KafkaStorageError):
        opened.append(sequence=9)


@pytest.mark.parametrize("cut", [1, BATCH_BYTES, 2 * BATCH_BYTES + 1])
def test_a_log_shorter_than_its_sync_point_stays_closed(cut: int) -> None:
    files, _ = written(ONE_SEGMENT, batches=3, synced=3)
    files[LOG] = files[LOG][:-cut]

    opened, after, _ = recovered(files, ONE_SEGMENT)

    assert opened.partition.offline is not None
    assert after == files


def test_e80_a_lost_segment_below_the_sync_point_closes_the_partition() -> None:
    """E80: never renumbered, never skipped in silence."""
    config = small_segments()
    files, _ = written(config, batches=12, synced=12)
    logs = sorted(path for path in files if path.endswith(".log"))

    for path in logs[1:]:
        left = {name: data for name, data in files.items() if name != path}
        opened, after, _ = recovered(left, config)
        assert opened.partition.offline is not None, path
        assert {name: data for name, data in after.items() if name in left} == after


def test_a_partition_that_lost_all_its_segments_stays_closed() -> None:
    files, _ = written(ONE_SEGMENT, batches=3, synced=3)
    left = {name: data for name, data in files.items() if not name.startswith("t-0/0")}

    opened, _, _ = recovered(left, ONE_SEGMENT)

    assert opened.partition.offline is not None


# --- hints: indexes, snapshots, epochs --------------------------------------------------------


def times_of(opened: Opened) -> list[int | None]:
    """The offset that a lookup finds for each time around the records'."""
    found = [opened.partition.find_time(TIME_MS + 5 * step) for step in range(-1, 26)]
    return [timed.offset if timed else None for timed in found]


def answers_by_time(batches: int) -> list[int | None]:
    """What `times_of` has to say: record number n has the time 10 n."""
    return [
        offset if (offset := -(-5 * step // 10)) < batches else None
        for step in (max(step, 0) for step in range(-1, 26))
    ]


HINTS = (".index", ".timeindex", ".snapshot", ".window", "leader-epoch-checkpoint")
HARMS = ("lost", "empty", "cut", "longer", "zeros", "flipped")
#: After an orderly stop the indexes of full segments are believed, if they are there.
HARMED = [
    (suffix, harm, clean)
    for suffix in HINTS
    for harm in HARMS
    for clean in (False, True)
    if not (clean and harm != "lost" and suffix.endswith("index"))
]


@pytest.mark.parametrize(("suffix", "harm", "clean"), HARMED)
def test_a6_d57_e75_indexes_snapshots_and_epochs_are_rebuilt_from_the_log(
    suffix: str, harm: str, clean: bool
) -> None:
    """A6, D57, check 24, K6: the state and every lookup by offset and time are as before."""
    config = small_segments()
    files, state = written(config, batches=12, synced=8, clean=clean)
    harmed = {name: data for name, data in files.items() if name.endswith(suffix)}
    assert harmed
    for name, data in harmed.items():
        middle = len(data) - 1 if suffix.endswith("index") else len(data) // 2
        flipped = (
            data[:middle] + bytes(b ^ 16 for b in data[middle : middle + 1]) + data[middle + 1 :]
        )
        changed = {
            "lost": None, "empty": b"", "cut": data[:-3], "longer": data + b"\1\2\3",
            "zeros": bytes(len(data)), "flipped": flipped,
        }[harm]  # fmt: skip
        if changed is None:
            del files[name]
        else:
            files[name] = changed

    opened, after, now = recovered(files, config)

    assert now == state
    assert times_of(opened) == answers_by_time(12)
    assert [simulated_read(opened, offset) for offset in range(12)] == list(range(12))
    assert {name for name in after if name.endswith(".log")} == {
        name for name in files if name.endswith(".log")
    }


def simulated_read(opened: Opened, offset: int) -> int:
    """The base offset of the batch that a fetch at `offset` begins with."""
    log = opened.partition.log
    header, _ = next(log.walk(offset, log.end()))
    return header.base_offset


def test_d57_times_that_do_not_grow_are_found_after_lost_index_entries() -> None:
    """D57: the largest time is in the middle, and the time index lost its end in the crash."""
    config = small_segments(segment_bytes=1 << 20)
    times = [0, 10, 900, 20, 30, 40, 50]

    async def write() -> Files:
        disk = disk_of({})
        opened = await open_on(disk, config)
        for index, time in enumerate(times):
            opened.append(sequence=index, time_ms=TIME_MS + time)
        await opened.commit()
        await opened.logs.checkpoint()
        return files_of(disk)

    files = simulated(write)
    index = f"{LOG[:-4]}.timeindex"
    for size in range(0, len(files[index]) + 1, 12):
        opened, _, _ = recovered(files | {index: files[index][:size]}, config)
        found = opened.partition.find_time(TIME_MS + 800)
        newest = opened.partition.find_max_timestamp()
        assert found is not None, f"{size} bytes of the time index left"
        assert newest is not None
        assert (found.offset, newest.offset) == (2, 2)


def test_e80_strays_of_a_crash_are_removed() -> None:
    """E80."""
    files, state = written(ONE_SEGMENT, batches=3, synced=3)
    strays = {
        "t-0/00000000000000000003.snapshot.tmp": b"half",
        "t-0/00000000000000000099.index": bytes(8),
    }

    _, after, now = recovered(files | strays, ONE_SEGMENT)

    assert now == state
    assert not strays.keys() & after.keys()


# --- starts ---------------------------------------------------------------------------------


def test_a_clean_start_touches_only_the_last_segment() -> None:
    """Issue 3, section 3: its time does not grow with the log."""
    config = small_segments()
    files, state = written(config, batches=30, clean=True)
    logs = sorted(path for path in files if path.endswith(".log"))
    assert CLEAN_SHUTDOWN in files
    assert len(logs) == 10

    async def main() -> tuple[set[str], set[str], State]:
        disk = CountingDisk(disk_of(files))
        opened = await open_on(disk, config)
        return set(disk.read_paths), set(disk.changed_paths), state_of(opened.partition)

    read, changed, now = simulated(main)

    assert now == state
    assert {path for path in read if path.endswith(".log")} == {logs[-1]}
    assert changed <= {CLEAN_SHUTDOWN}


def test_the_mark_of_a_clean_stop_counts_once() -> None:
    """D65: a kill after the next start is not taken for an orderly stop."""
    files, _ = written(ONE_SEGMENT, batches=3, clean=True)

    _, after, _ = recovered(files, ONE_SEGMENT)

    assert CLEAN_SHUTDOWN not in after


@pytest.mark.parametrize("clean", [False, True])
def test_a_copy_of_the_directory_gives_the_live_state(clean: bool) -> None:
    """K6, P15: producers with full windows, epochs, offsets, bytes; over many segments."""
    config = small_segments()

    async def main() -> tuple[Files, State]:
        disk = disk_of({})
        opened = await open_on(disk, config, epoch=1)
        for sequence in range(9):
            for producer_id in (5, 6, 7):
                opened.append(sequence=2 * sequence, count=2, producer_id=producer_id)
        opened.append(sequence=0, epoch=1, producer_id=6)
        await opened.commit()
        await opened.delete_records(13)
        state = state_of(opened.partition)
        if clean:
            await opened.logs.close()
        return files_of(disk), state

    files, state = simulated(main)

    _, _, now = recovered(files, config)

    assert now == state
    assert [len(batches) for _, _, batches in now.producers] == [5, 1, 5]


@pytest.mark.parametrize("clean", [False, True])
def test_producers_outlive_the_deletion_of_all_their_records(clean: bool) -> None:
    """Check 21 and P15: after DeleteRecords to the end and a restart a repeat is still known."""
    config = small_segments()

    async def write() -> tuple[Files, State]:
        disk = disk_of({})
        opened = await open_on(disk, config)
        for sequence in range(7):
            opened.append(sequence=sequence)
        await opened.commit()
        await opened.delete_records(None)
        state = state_of(opened.partition)
        if clean:
            await opened.logs.close()
        return files_of(disk), state

    files, state = simulated(write)

    async def retry() -> tuple[int, int]:
        opened = await open_on(disk_of(files), config)
        return opened.append(sequence=6).base_offset, opened.append(sequence=7).base_offset

    assert state.batches == ()
    assert recovered(files, config)[2] == state
    assert simulated(retry) == (6, 7)


def test_e71_a_start_that_cannot_be_stored_does_not_move() -> None:
    """E71: readers never see a log begin where a restart would not let it begin."""

    async def main() -> None:
        disk = disk_of({})
        opened = await open_on(disk)
        for sequence in range(7):
            opened.append(sequence=sequence)
        await opened.commit()
        disk.trouble.is_full = True

        with pytest.raises(OSError, match="full"):
            await opened.delete_records(5)

        assert opened.partition.log_start_offset == 0
        assert offsets_of(opened.partition) == list(range(7))
        disk.trouble.is_full = False
        await opened.delete_records(5)
        assert opened.partition.log_start_offset == 5
        again = await open_on(disk.crash())
        assert offsets_of(again.partition) == [5, 6]

    simulated(main)


# --- crashes --------------------------------------------------------------------------------


async def write_all(opened: Opened, acknowledged: list[int], *, first: int, batches: int) -> None:
    """Append one batch after the other, each once the one before is acknowledged."""
    for sequence in range(first, batches):
        opened.append(sequence=sequence, time_ms=TIME_MS + 10 * sequence)
        await opened.commit()
        acknowledged.append(sequence)
        if sequence % 4 == 3:
            await opened.logs.checkpoint()


@pytest.mark.parametrize("seed", range(6))
def test_d56_d57_e79_no_crash_during_appends_and_rolls_loses_or_doubles_a_batch(seed: int) -> None:
    """D56, E79, K12: for every step, crash right after it, recover, let the producer retry."""
    config = small_segments()

    async def attempt(last_step: int) -> bool:
        acknowledged: list[int] = []
        disk = FragileDisk(Random(seed), last_step=last_step)
        try:
            await write_all(await open_on(disk, config), acknowledged, first=0, batches=9)
        except (OSError, BrokerError):
            assert disk.is_cut
        opened = await open_on(disk.crash(), config)
        assert opened.partition.offline is None, opened.partition.offline
        assert offsets_of(opened.partition)[: len(acknowledged)] == acknowledged
        await write_all(opened, [], first=len(acknowledged), batches=9)
        assert offsets_of(opened.partition) == list(range(9))
        assert times_of(opened) == answers_by_time(9)
        return disk.is_cut

    assert steps_of(attempt) > 60


@pytest.mark.parametrize("seed", range(4))
def test_d59_no_crash_during_retention_leaves_a_gap_above_the_log_start(seed: int) -> None:
    """D59, K12: the log start only moves forward."""
    config = small_segments(retention_ms=1000)
    files, state = written(small_segments(), batches=12, synced=12)

    async def attempt(last_step: int) -> bool:
        disk = FragileDisk(Random(seed), root_of(files), last_step=last_step)
        try:
            opened = await open_on(disk, config)
            await opened.logs.apply_retention(at_later())
        except (OSError, BrokerError):
            assert disk.is_cut
        again = await open_on(disk.crash(), config)
        start = again.partition.log_start_offset
        assert start in (0, 9)
        assert offsets_of(again.partition) == list(range(start, 12))
        assert state_of(again.partition).producers == state.producers
        await again.logs.apply_retention(at_later())
        assert offsets_of(again.partition) == [9, 10, 11]
        return disk.is_cut

    assert steps_of(attempt) > 10


@pytest.mark.parametrize("seed", range(4))
def test_c50_d66_a_crash_during_recovery_changes_nothing(seed: int) -> None:
    """P14, D66 in small, C50: recovery after an interrupted recovery gives the same state."""
    config = small_segments()
    files, _ = written(config, batches=12, synced=4)
    torn = sorted(path for path in files if path.endswith(".log"))[2]
    files[torn] = files[torn][:-5] + bytes(3)
    del files[sorted(path for path in files if path.endswith(".timeindex"))[0]]
    _, _, expected = recovered(files, config)

    async def attempt(last_step: int) -> bool:
        disk = FragileDisk(Random(seed), root_of(files), last_step=last_step)
        try:
            await open_on(disk, config, epoch=4)
        except (OSError, BrokerError):
            assert disk.is_cut
        again = await open_on(disk.crash(), config, epoch=4)
        assert state_of(again.partition) == expected
        assert times_of(again) == answers_by_time(8)
        return disk.is_cut

    assert len(expected.batches) == 8
    assert steps_of(attempt) > 5


def test_what_a_torn_marker_left_in_the_index_of_aborted_transactions_is_dropped() -> None:
    """P5: also where a snapshot leaves nothing to replay."""

    async def main() -> None:
        disk = disk_of({})
        opened = await open_on(disk, ONE_SEGMENT)
        opened.append(producer_id=1, sequence=0, attributes=TRANSACTIONAL)
        await opened.logs.close()
        files = files_of(disk)
        del files[CLEAN_SHUTDOWN]
        # Its entry reached the disk, and the marker at offset 1 did not.
        files[f"{LOG[:-4]}.txnindex"] = ENTRY.pack(0, 1, 0, 1, 0)

        again = await open_on(disk_of(files), ONE_SEGMENT)

        assert again.partition.log.aborted(0, 2) == []
        assert again.partition.last_stable_offset == 0
        assert files_of(again.logs.disk)[f"{LOG[:-4]}.txnindex"] == b""

    simulated(main)


def test_c50_a_crash_during_recovery_forgets_no_aborted_transaction() -> None:
    """C50, P5: a snapshot of the recovery that was cut short vouches for what it had indexed."""

    async def write() -> tuple[Files, State]:
        disk = disk_of({})
        opened = await open_on(disk, ONE_SEGMENT)
        for producer_id in range(4):
            opened.append(producer_id=producer_id, sequence=0, attributes=TRANSACTIONAL)
            opened.abort(producer_id)
        await opened.commit()
        await opened.logs.checkpoint()
        return files_of(disk), state_of(opened.partition)

    files, expected = simulated(write)

    async def attempt(seed: int, last_step: int) -> bool:
        disk = FragileDisk(Random(seed), root_of(files), last_step=last_step)
        try:
            await open_on(disk, ONE_SEGMENT)
        except (OSError, BrokerError):
            assert disk.is_cut
        again = await open_on(disk.crash(), ONE_SEGMENT)
        assert state_of(again.partition) == expected
        return disk.is_cut

    assert len(expected.aborted) == 4
    for seed in range(300):  # Rarely all of a snapshot is kept and none of the index.
        assert steps_of(partial(attempt, seed)) > 5


@pytest.mark.parametrize("seed", range(8))
def test_what_readers_saw_after_a_kill_survives_a_power_cut(seed: int) -> None:
    """P2: a kill leaves unsynced bytes in the page cache; they are synced before they are served."""
    config = small_segments()

    async def main() -> None:
        disk = disk_of({}, seed=seed)
        process = Process("killed")
        with as_process(process):
            killed = await open_on(disk, config)
            await write_all(killed, [], first=0, batches=4)
            for sequence in range(4, 12):
                killed.append(sequence=sequence)
        crash(process)
        # The process is gone and the machine is not: the disk still shows what was not synced.
        opened = await open_on(disk, config)
        seen = state_of(opened.partition)
        shown = opened.partition.high_watermark
        await opened.logs.checkpoint()

        again = await open_on(disk.crash(), config)

        assert again.partition.offline is None, again.partition.offline
        assert state_of(again.partition) == seen
        assert again.partition.high_watermark == shown == 12

    simulated(main)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_acknowledged_after_a_kill_at_any_step_survives_a_power_cut(seed: int) -> None:
    """P1, C50: a kill leaves names and small files in the page cache that nobody has synced."""
    config = small_segments()

    async def attempt(last_step: int) -> bool:
        disk = FragileDisk(Random(seed), last_step=last_step, keeps_all=True)
        acknowledged: list[int] = []
        try:
            first = await open_on(disk, config)
            for sequence in range(5):
                await write_all(first, acknowledged, first=sequence, batches=sequence + 1)
                # What was synced is known to be: nothing else makes the next start sync anything.
                await first.logs.checkpoint()
        except (OSError, BrokerError):
            assert disk.is_cut
        killed = disk.survivor
        opened = await open_on(killed, config)
        # One batch only: a new segment would sync the names for its own sake.
        batches = len(acknowledged) + 1
        await write_all(opened, [], first=batches - 1, batches=batches)
        await opened.logs.checkpoint()

        again = await open_on(killed.crash(), config)

        assert again.partition.offline is None, again.partition.offline
        assert offsets_of(again.partition) == list(range(batches))
        return disk.is_cut

    assert steps_of(attempt) > 30


def test_a_crash_of_the_os_flush_mode_loses_only_the_unsynced_tail() -> None:
    """`flush=os`: what is left is a prefix, and the log goes on from there."""
    config = small_segments()

    async def main(seed: int) -> None:
        disk = disk_of({}, seed=seed)
        opened = await open_on(disk, config, flush="os")
        for sequence in range(5):
            opened.append(sequence=sequence)
        await opened.logs.checkpoint()
        for sequence in range(5, 12):
            opened.append(sequence=sequence)

        again = await open_on(disk.crash(), config, flush="os")

        left = offsets_of(again.partition)
        assert again.partition.offline is None, again.partition.offline
        assert left == list(range(len(left)))
        assert len(left) >= 5
        assert again.append(sequence=len(left)).base_offset == len(left)

    for seed in range(40):
        simulated(partial(main, seed))


def at_later() -> Now:
    return Now(TIME_MS + 100_000, 100_000)


def test_e75_a_checkpoint_that_cannot_be_read_only_costs_time() -> None:
    """E75: without it all of the log is checked."""
    config = small_segments()
    files, state = written(config, batches=12, synced=12)

    for damaged in (b"", b"0\n1\n", b"garbage", files[CHECKPOINT][:-2], bytes(30)):
        _, _, now = recovered(files | {CHECKPOINT: damaged}, config)
        assert now == state
