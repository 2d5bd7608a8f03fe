"""Group D: the broker dies at each step of what it does to topics, and half way through its stop.

Rows 51 (load and many kills) and 56, 57, 59 (segments, indexes, retention) are in `tests/crash` and
`tests/storage`.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

import oncelog
from oncelog.core.errors import BrokerError
from oncelog.testing.sim.world import Disconnected
from oncelog.wire.errors import ErrorCode
from tests.scenarios.groups import Member
from tests.scenarios.simulated import CHECKPOINT_S, Machine
from tests.scenarios.wire import OK, Wire, connect, hang_up
from tests.storage.disks import Files, FragileDisk, root_of
from tests.storage.opened import simulated, steps_of

#: What a client sees of a broker whose disk has just gone.
LOST = (Disconnected, OSError, BrokerError, IndexError)


def fragile(files: Files, seed: int, last_step: int) -> FragileDisk:
    return FragileDisk(Random(seed), root_of(files), last_step=last_step)


def an_old_topic() -> Files:
    """Topic t with two partitions, producers, a log start, a committed offset; then a kill."""

    async def main() -> Files:
        machine = Machine()
        wire = await machine.start()
        assert await wire.create_topic(partitions=2) == OK
        producer = await wire.init_producer()
        for sequence in range(30):
            batch = wire.batch(sequence=sequence, producer_id=producer, value=b"old %d" % sequence)
            assert (await wire.produce(batch)).error_code == OK
        assert await wire.delete_records(4) == OK
        member = Member(wire, "g")
        await member.find_coordinator()
        assert await member.commit({0: 20}) == OK
        await asyncio.sleep(CHECKPOINT_S)
        return machine.files()

    return simulated(main)


# --- topics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_d60_a_topic_is_created_whole_or_not_at_all(seed: int) -> None:
    """D60, K12: whatever was confirmed stands, and doing it again works."""

    async def attempt(last_step: int) -> bool:
        machine = Machine(fragile({}, seed, last_step), seed=seed)
        answer = None
        try:
            wire = await machine.start()
            answer = await wire.create_topic(partitions=3)
        except LOST:
            pass
        disk = machine.broker.disk
        wire = await machine.restart()
        count = await wire.partition_count()
        assert count == 3 if answer == OK else count in (None, 3)
        again = await wire.create_topic(partitions=3)
        assert again == (ErrorCode.TOPIC_ALREADY_EXISTS if count else OK)
        for partition in range(3):
            assert (await wire.produce(wire.batch(), partition=partition)).base_offset == 0
        assert isinstance(disk, FragileDisk)
        return disk.is_cut

    assert steps_of(attempt) > 5


@pytest.mark.parametrize("seed", range(3))
def test_d61_nothing_of_a_deleted_topic_appears_in_a_new_one_of_its_name(seed: int) -> None:
    """D61, K12: no record, no offset, no log start, no producer, wherever the power went."""
    files = an_old_topic()

    async def attempt(last_step: int) -> bool:
        disk = fragile(files, seed, last_step)
        machine = Machine(disk, seed=seed)
        done: dict[str, int] = {}
        try:
            wire = await machine.start()
            done["delete"] = await wire.delete_topic()
            done["create"] = await wire.create_topic(partitions=1)
            batch = wire.batch(sequence=3, producer_id=0, value=b"new")
            done["produce"] = (await wire.produce(batch)).error_code
        except LOST:
            pass
        is_cut = disk.is_cut
        wire = await machine.restart()
        await look_at_what_is_left(wire, done)
        return is_cut

    assert steps_of(attempt) > 10


async def look_at_what_is_left(wire: Wire, done: dict[str, int]) -> None:
    """The old topic whole, no topic, or a new one with nothing of the old."""
    member = Member(wire, "g")
    await member.find_coordinator()
    match await wire.partition_count():
        case 2:
            assert done.get("delete") != OK
            assert await wire.values() == [b"old %d" % n for n in range(4, 30)]
            assert await member.committed([0]) == {0: 20}
        case None:
            assert done.get("create") != OK
            assert await wire.create_topic() == OK
            await look_at_a_new_topic(wire, member, [])
        case 1:
            values = await wire.values()
            assert values == [b"new"] if done.get("produce") == OK else values in ([], [b"new"])
            await look_at_a_new_topic(wire, member, values)
        case other:
            raise AssertionError(f"{other} partitions")


async def look_at_a_new_topic(wire: Wire, member: Member, values: list[bytes | None]) -> None:
    assert (await wire.list_offset(-2)).offset == 0
    assert await wire.end_offset() == len(values)
    assert await member.committed([0]) == {0: -1}
    # The old topic's producer 0 was at sequence 29; here any first sequence is as good as another.
    sequence = 4 if values else 17
    answer = await wire.produce(wire.batch(sequence=sequence, producer_id=0, value=b"more"))
    assert (answer.error_code, answer.base_offset) == (OK, len(values))
    assert await wire.values() == [*values, b"more"]


@pytest.mark.parametrize("seed", range(3))
def test_d62_a_topic_grows_to_the_new_count_or_stays_at_the_old(seed: int) -> None:
    """D62, K12."""
    files = an_old_topic()

    async def attempt(last_step: int) -> bool:
        disk = fragile(files, seed, last_step)
        machine = Machine(disk, seed=seed)
        answer = None
        try:
            answer = await (await machine.start()).add_partitions("t", 5)
        except LOST:
            pass
        is_cut = disk.is_cut
        wire = await machine.restart()
        count = await wire.partition_count()
        assert count == 5 if answer == OK else count in (2, 5)
        assert await wire.values() == [b"old %d" % n for n in range(4, 30)]
        if count == 2:
            assert await wire.add_partitions("t", 5) == OK
        assert (await wire.produce(wire.batch(), partition=4)).base_offset == 0
        return is_cut

    assert steps_of(attempt) > 3


# --- stops ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_d65_a_stop_that_is_cut_short_is_a_kill(seed: int) -> None:
    """D65, K12: power goes at each step of the orderly stop; then as after a kill."""
    files = an_old_topic()

    async def attempt(last_step: int) -> bool:
        machine = Machine(fragile(files, seed, 1 << 30), seed=seed)
        wire = await machine.start()
        for n in range(30, 35):
            batch = wire.batch(sequence=n, producer_id=0, value=b"old %d" % n)
            assert (await wire.produce(batch)).error_code == OK
        disk = machine.broker.disk
        assert isinstance(disk, FragileDisk)
        disk.cut_after(last_step)
        try:
            await machine.broker.stop()
        except LOST:
            pass
        is_cut = disk.is_cut
        wire = await machine.restart()
        assert await wire.values() == [b"old %d" % n for n in range(4, 35)]
        repeats = [await wire.produce(wire.batch(sequence=n, producer_id=0)) for n in range(30, 35)]
        assert [answer.base_offset for answer in repeats] == list(range(30, 35))
        return is_cut

    assert steps_of(attempt) > 5


def test_d65_a_process_that_is_killed_while_it_stops_loses_nothing(tmp_path: Path) -> None:
    """D65, with a real process: SIGTERM, then SIGKILL a moment later."""
    rng = Random(65)
    broker = oncelog.Broker(data_dir=tmp_path, process=True)
    sent: list[bytes] = []

    async def write() -> None:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic()
        for _ in range(20):
            sent.append(b"%d" % len(sent))
            assert (await wire.produce(wire.batch(value=sent[-1]))).error_code == OK
        assert await wire.values() == sent
        await hang_up(wire)

    for _ in range(6):
        broker.start()
        asyncio.run(write())
        os.kill(broker.pid, signal.SIGTERM)
        time.sleep(
            rng.uniform(0, 0.05)
        )  # the moment of the second signal is what the test is about
        broker.kill()


@pytest.mark.slow
def test_d66_recovery_may_be_killed_again_and_again(tmp_path: Path) -> None:
    """D66, P14: ten kills at random moments of a recovery; it does not take longer for them."""
    rng = Random(66)
    data, spare = tmp_path / "data", tmp_path / "spare"
    settings = {"log.segment.bytes": "4000000", "oncelog.flush": "os"}
    broker = oncelog.Broker(settings, data_dir=data, process=True)

    async def write() -> None:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic()
        producer = await wire.init_producer()
        for n in range(60):
            batch = wire.batch(sequence=n, producer_id=producer, padding=500_000)
            assert (await wire.produce(batch)).error_code == OK
        await hang_up(wire)

    async def offsets() -> list[int]:
        wire = await connect(broker.bootstrap_servers)
        found = [record.offset for record in await wire.records()]
        await hang_up(wire)
        return found

    broker.start()
    asyncio.run(write())
    broker.kill()
    shutil.copytree(data, spare)
    began = time.monotonic()
    broker.start()
    once_s = time.monotonic() - began
    assert asyncio.run(offsets()) == list(range(60))
    broker.kill()
    shutil.rmtree(data)
    shutil.copytree(spare, data)

    for _ in range(10):
        start_and_kill(data, settings, after_s=rng.uniform(0.05, once_s))

    began = time.monotonic()
    broker.start()
    again_s = time.monotonic() - began
    assert asyncio.run(offsets()) == list(range(60))
    assert again_s < 3 * once_s + 1
    broker.close()


def start_and_kill(data: Path, settings: dict[str, str], *, after_s: float) -> None:
    command = [sys.executable, "-m", "oncelog", "serve", "--data", str(data)]
    command += ["--listen", "127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)  # the moment of the kill is what the test is about
    process.kill()
    process.wait(10)
