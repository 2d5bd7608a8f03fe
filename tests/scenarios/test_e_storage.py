"""Group E: disks that fill up, fail, are slow, or were tampered with; a whole broker on real files.

What recovery does with torn and damaged logs, byte by byte, is in tests/storage/test_recovery.py.
"""

import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import oncelog
from oncelog.server.broker import StartError
from oncelog.server.handles import share_out
from oncelog.testing import disk_full, failing_sync, kill, restart, slow_disk
from oncelog.testing.workload.dump import walk
from oncelog.wire.errors import ErrorCode
from tests.core.batches import a_batch
from tests.scenarios.groups import Member
from tests.scenarios.wire import OK, TOPIC, Wire, connect, hang_up
from tests.testing.plain import until

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
#: Few internal partitions start faster; what they do is the same.
SMALL = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
#: A user who owns nothing.
NOBODY = 65534
T = TypeVar("T")


def talk(broker: oncelog.Broker, work: Callable[[Wire], Awaitable[T]]) -> T:
    """Do something with a fresh connection."""

    async def main() -> T:
        wire = await connect(broker.bootstrap_servers)
        try:
            return await work(wire)
        finally:
            await hang_up(wire)

    return asyncio.run(main())


def make_topics(broker: oncelog.Broker, *names: str, **configs: str) -> None:
    async def work(wire: Wire) -> None:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        for name in names:
            assert await wire.create_topic(name, configs=dotted) == OK

    talk(broker, work)


def send(broker: oncelog.Broker, value: bytes, *, topic: str = TOPIC, padding: int = 0) -> int:
    """The error code of one batch."""

    async def work(wire: Wire) -> int:
        answer = await wire.produce(wire.batch(value=value, padding=padding), topic=topic)
        return int(answer.error_code)

    return talk(broker, work)


def values(broker: oncelog.Broker, topic: str = TOPIC) -> list[bytes | None]:
    return talk(broker, lambda wire: wire.values(topic))


# --- syncs and writes that fail -------------------------------------------------------------


def test_e70_after_a_failed_sync_nothing_is_acknowledged_until_a_restart(tmp_path: Path) -> None:
    """K11, P13: it does not sync again and carry on, and other logs are served."""
    with oncelog.Broker(SMALL, data_dir=tmp_path, faults=True) as broker:
        make_topics(broker, TOPIC, "other")
        assert send(broker, b"1") == OK
        failed = broker.fault(failing_sync(f"{TOPIC}-0/*"))

        assert send(broker, b"2") == STORAGE_ERROR
        assert (failed.hits, failed.remaining) == (1, 0)
        assert send(broker, b"3") == STORAGE_ERROR
        assert talk(broker, lambda wire: wire.fetch(0)).error_code == STORAGE_ERROR
        assert send(broker, b"fine", topic="other") == OK

        broker.fault(kill())
        assert send(broker, b"4") == OK
        found = values(broker)
    # What was written and not synced is a matter of luck, and nobody was told of it.
    assert (found[0], found[-1]) == (b"1", b"4")
    assert set(found) <= {b"1", b"2", b"4"}
    assert walk(tmp_path / f"{TOPIC}-0") == len(found)


def test_e71_a_full_disk_refuses_and_service_resumes_when_there_is_room(tmp_path: Path) -> None:
    """K1, K2, K5: no half batch stays."""
    with oncelog.Broker(SMALL, data_dir=tmp_path, faults=True) as broker:
        make_topics(broker, TOPIC, "other", segment_bytes="1000")
        acknowledged = [value for value in (b"1", b"2") if send(broker, value) == OK]
        with broker.fault(disk_full(f"{TOPIC}-0/*")) as full:
            for padding in (0, 500, 2000):  # the last two would begin a segment
                assert send(broker, b"no", padding=padding) == STORAGE_ERROR
            assert send(broker, b"fine", topic="other") == OK
            assert walk(tmp_path / f"{TOPIC}-0") == 2
        assert full.hits >= 3
        assert send(broker, b"3") == OK
        assert values(broker) == [*acknowledged, b"3"]
        broker.fault(kill())
        assert values(broker) == [b"1", b"2", b"3"]
    assert walk(tmp_path / f"{TOPIC}-0") == 3


def test_e73_a_broker_that_dies_on_a_full_disk_starts_or_says_why(tmp_path: Path) -> None:
    """K11, K6: whichever it is, nothing is lost."""
    with oncelog.Broker(SMALL, data_dir=tmp_path, faults=True) as broker:
        make_topics(broker, TOPIC)
        assert send(broker, b"1") == OK
        full = broker.fault(disk_full())
        broker.kill()
        why = refusal_of(broker)
        assert why is None or "the disk is full" in why
        if why is None:
            assert values(broker) == [b"1"]
            assert send(broker, b"no") == STORAGE_ERROR
        full.end()
        if why is not None:
            broker.start()
        assert send(broker, b"2") == OK
        assert values(broker) == [b"1", b"2"]


def refusal_of(broker: oncelog.Broker) -> str | None:
    """Start it; the sentence that it says if it cannot."""
    try:
        broker.start()
    except StartError as error:
        return str(error)
    return None


def test_e77_a_slow_sync_delays_the_acknowledgement_and_nothing_is_claimed_before() -> None:
    """K1, at a fifth of its size: time-outs, no false success, and no second copy of a repeat."""

    async def work(broker: oncelog.Broker) -> None:
        wire = await connect(broker.bootstrap_servers)
        assert await wire.create_topic() == OK
        assert (await wire.produce(wire.batch())).error_code == OK
        producer = await wire.init_producer()
        with broker.fault(slow_disk(seconds=1.0, paths=f"{TOPIC}-0/*")) as slow:
            batches = [
                wire.batch(sequence=n, producer_id=producer, padding=10_000) for n in range(5)
            ]
            waiting = [asyncio.ensure_future(wire.produce(batch)) for batch in batches]
            other = await connect(broker.bootstrap_servers)
            await asyncio.to_thread(slow.wait)
            done, _ = await asyncio.wait(waiting, timeout=0.3)
            assert not done, "acknowledged before the disk had it"
            assert (await other.fetch(0)).high_watermark == 1
            # A client that gave up and asks again gets the same answer, not a second copy.
            assert (await asyncio.wait_for(other.produce(batches[0]), 20)).base_offset == 1
        answers = await asyncio.gather(*waiting)
        assert [answer.base_offset for answer in answers] == list(range(1, 6))
        await hang_up(wire, other)

    with oncelog.Broker(SMALL, faults=True) as broker:
        asyncio.run(work(broker))


def test_e86_a_write_that_takes_fewer_bytes_leaves_no_part_of_its_batch(tmp_path: Path) -> None:
    """K2: the operating system takes the first bytes of a batch and no more (a limit on file sizes)."""
    with oncelog.Broker(SMALL, data_dir=tmp_path, process=True) as broker:
        make_topics(broker, TOPIC)
        assert send(broker, b"1", padding=20_000) == OK
        log = next((tmp_path / f"{TOPIC}-0").glob("*.log"))
        size = log.stat().st_size
        no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))

        assert send(broker, b"2", padding=1000) == STORAGE_ERROR
        assert log.stat().st_size == size

        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, no_limit)
        broker.fault(restart())
        assert send(broker, b"3") == OK
        assert [value[:1] for value in values(broker) if value] == [b"1", b"3"]
    assert walk(tmp_path / f"{TOPIC}-0") == 2


# --- files that were tampered with ----------------------------------------------------------


def state_of(broker: oncelog.Broker) -> tuple[list[bytes | None], dict[int, int]]:
    """What clients rely on: records, and the offsets of a group."""

    async def work(wire: Wire) -> tuple[list[bytes | None], dict[int, int]]:
        member = Member(wire, "g")
        await member.find_coordinator()
        return await wire.values(), dict(await member.committed([0]))

    return talk(broker, work)


def write_some(broker: oncelog.Broker) -> None:
    async def work(wire: Wire) -> None:
        assert await wire.create_topic(configs={"segment.bytes": "300"}) == OK
        producer = await wire.init_producer()
        for n in range(8):
            batch = wire.batch(sequence=n, producer_id=producer, value=b"%d" % n)
            assert (await wire.produce(batch)).error_code == OK
        member = Member(wire, "g")
        await member.find_coordinator()
        assert await member.join() == OK
        assert (await member.sync())[0] == OK
        assert await member.commit({0: 5}) == OK

    talk(broker, work)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_e75_a_bit_that_flips_in_any_other_file_is_survived_or_refused(
    how: str, tmp_path: Path
) -> None:
    """K6, K11: indexes, snapshots, checkpoints and metadata, one at a time."""
    origin = tmp_path / "origin"
    with oncelog.Broker(SMALL, data_dir=origin, faults=True) as broker:
        write_some(broker)
        expected = state_of(broker)
        broker.fault(restart())  # so that there are checkpoints and snapshots
        if how == "killed":
            broker.kill()
    others = [
        path.relative_to(origin)
        for path in sorted(origin.rglob("*"))
        if path.is_file() and path.stat().st_size and path.suffix != ".log"
    ]
    assert len(others) >= 8
    copy, refused = tmp_path / "copy", []
    for name in others:
        shutil.copytree(origin, copy)
        flipped = bytearray((copy / name).read_bytes())
        flipped[len(flipped) // 2] ^= 1
        (copy / name).write_bytes(flipped)
        found = state_on(copy)
        shutil.rmtree(copy)
        if found is None:
            refused.append(name.name)
        else:
            assert found == expected, f"after a bit had flipped in {name}"
    # What tells whose directory this is, and whose partition, cannot be made up again.
    assert set(refused) <= {"meta.properties", "partition.metadata"}


def state_on(data_dir: Path) -> tuple[list[bytes | None], dict[int, int]] | None:
    """What a broker finds there; None if it does not start, or refuses to answer."""
    try:
        with oncelog.Broker(SMALL, data_dir=data_dir) as broker:
            return state_of(broker)
    except (StartError, AssertionError):  # the helpers assert that there is no error code
        return None


def test_e80_strays_are_ignored_and_nothing_is_renumbered(tmp_path: Path) -> None:
    """K11, K2: empty files, temporary ones, and names that are none of ours."""
    with oncelog.Broker(SMALL, data_dir=tmp_path, faults=True) as broker:
        write_some(broker)
        expected = state_of(broker)
        broker.kill()
        partition = tmp_path / f"{TOPIC}-0"
        (partition / "notes.txt").write_text("hello")
        (partition / "00000000000000000003.log.bak").write_bytes(b"x" * 100)
        (partition / "00000000000000000003.snapshot.tmp").write_bytes(b"half")
        (partition / "12.log.swp").touch()
        (tmp_path / "lost+found").mkdir()
        (tmp_path / "a-file").write_text("")
        (tmp_path / "unknown-7").mkdir()
        broker.start()
        assert state_of(broker) == expected
        assert send(broker, b"next") == OK
        assert values(broker) == [*expected[0], b"next"]


def test_e84_retention_goes_by_the_times_of_records_and_not_of_files(tmp_path: Path) -> None:
    """K2: file times of 1970 and of 2100, in both directions."""
    settings = {
        **SMALL,
        "log.retention.ms": "3600000",
        "log.retention.check.interval.ms": "100",
        "log.segment.bytes": "200",
    }
    with oncelog.Broker(settings, data_dir=tmp_path, faults=True) as broker:
        make_topics(broker, "old", "new")
        broker.stop()
        for year_s in (0, 4_102_444_800):
            broker.start()
            for n in range(4):
                assert send(broker, b"%d" % n, topic="new", padding=200) == OK
            broker.stop()
            for path in tmp_path.rglob("*"):
                os.utime(path, (year_s, year_s))
            broker.start()
            aged = [
                a_batch(timestamp_ms=int(time.time() * 1000) - 7_200_000, padding=200)
                for _ in range(4)
            ]

            async def write_old(wire: Wire, batches: list[bytes] = aged) -> int:
                for batch in batches:
                    assert (await wire.produce(batch, topic="old")).error_code == OK
                return await wire.end_offset("old")

            end = talk(broker, write_old)
            # All but the active segment of what is old goes: retention has run.
            until(lambda end=end: start_of(broker, "old") == end - 1)  # type: ignore[misc] # a default
            broker.stop()
        broker.start()
        assert start_of(broker, "new") == 0
        assert len(values(broker, "new")) == 8


def start_of(broker: oncelog.Broker, topic: str) -> int:
    return talk(broker, lambda wire: wire.list_offset(-2, topic)).offset


# --- the data directory ---------------------------------------------------------------------


def test_e81_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """K11: it is read-only, and for whoever may write everywhere it is somebody else's."""
    with oncelog.Broker(SMALL):
        pass  # Whatever is imported late is imported: somebody else may not be let near it.
    data = tmp_path / "data"
    data.mkdir()
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    data.chmod(0o555)
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        with (
            pytest.raises(StartError, match="cannot use the data directory"),
            oncelog.Broker(SMALL, data_dir=data),
        ):
            pass
    finally:
        os.seteuid(user)
    assert list(data.iterdir()) == []


def test_e82_a_second_broker_on_a_directory_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    """K11: in this process and in another."""
    with oncelog.Broker(SMALL, data_dir=tmp_path) as first:
        make_topics(first, TOPIC)
        assert send(first, b"1") == OK
        for process in (False, True):
            with (
                pytest.raises(StartError, match="cannot use the data directory"),
                oncelog.Broker(SMALL, data_dir=tmp_path, process=process),
            ):
                pass
        assert send(first, b"2") == OK
        assert values(first) == [b"1", b"2"]


#: A limit that leaves room for 153 connections.
FEW_HANDLES = 600
WITH_FEW_HANDLES = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = ["oncelog", *sys.argv[2:]]
runpy.run_module("oncelog", run_name="__main__")
"""


@contextlib.contextmanager
def a_broker_with_few_handles(data_dir: Path) -> Iterator[str]:
    command = [sys.executable, "-c", WITH_FEW_HANDLES, str(FEW_HANDLES), "serve"]
    command += ["--data", str(data_dir), "--listen", "127.0.0.1:0"]
    for name, value in SMALL.items():
        command += ["--set", f"{name}={value}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().rpartition(" ")[2].strip()
        finally:
            process.terminate()


def test_e85_a_crowd_of_connections_takes_no_handle_that_a_log_needs(tmp_path: Path) -> None:
    """K8: further clients are turned away, what is there goes on, segments included."""

    async def work(address: str) -> None:
        wire = await connect(address)
        assert await wire.create_topic("small", configs={"segment.bytes": "200"}) == OK
        host, _, port = address.rpartition(":")
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(2 * FEW_HANDLES)]
        for reader, _ in crowd[share_out(FEW_HANDLES).connections :]:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(1), 10) == b""

        codes = [(await wire.produce(wire.batch(), topic="small")).error_code for _ in range(50)]
        assert codes == [OK] * 50

        for _, writer in crowd:
            writer.close()
        for _, writer in crowd:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        again = await connect(address)
        assert await again.end_offset("small") == 50
        await hang_up(again, wire)

    with a_broker_with_few_handles(tmp_path) as address:
        asyncio.run(work(address))
    assert len(list((tmp_path / "small-0").glob("*.log"))) > 10
