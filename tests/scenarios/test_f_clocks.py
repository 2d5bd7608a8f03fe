"""Group F: clocks that jump, and records from other centuries."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oncelog
from oncelog.wire.errors import ErrorCode
from tests.client.fake_broker import running
from tests.core.batches import TIME_MS, a_batch
from tests.scenarios.groups import Member
from tests.scenarios.simulated import Machine
from tests.scenarios.wire import OK, connect, hang_up, now_ms
from tests.storage.disks import disk_of
from tests.storage.opened import Opened, open_on, simulated, small_segments

HOUR_MS = 3_600_000
YEAR_2100_MS = 4_102_444_800_000


def test_f88_a_jump_of_the_wall_clock_ends_no_session_and_no_wait() -> None:
    """F88: an hour forward, then two back; spans are counted on the monotonic clock."""

    async def main() -> None:
        machine = Machine()
        wire = await machine.start()
        assert await wire.create_topic() == OK
        member = Member(wire, "g", session_ms=10_000)
        await member.find_coordinator()
        assert await member.join() == OK
        assert (await member.sync())[0] == OK
        producer = await wire.init_producer()
        clock = machine.broker.clock
        for sequence, shift_ms in enumerate((0, HOUR_MS, HOUR_MS, -HOUR_MS, -HOUR_MS, 0)):
            clock.wall_shift_ms = shift_ms
            for _ in range(3):
                await asyncio.sleep(3)
                assert await member.beat() == OK
            batch = wire.batch(sequence=sequence, producer_id=producer)
            assert (await wire.produce(batch)).base_offset == sequence
            assert await member.commit({0: sequence}) == OK
        # And without a heartbeat the session ends when it should, whatever the wall clock says.
        clock.wall_shift_ms = -HOUR_MS
        await asyncio.sleep(9)
        assert await member.beat() == OK
        await asyncio.sleep(10.5)
        assert await member.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.committed([0]) == {0: 5}

    simulated(main)


def test_f88_a_fetch_waits_as_long_as_it_asked_for_while_the_clock_jumps() -> None:
    """F88."""

    async def main() -> float:
        machine = Machine()
        wire = await machine.start()
        assert await wire.create_topic() == OK
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = asyncio.create_task(wire.fetch(0, max_wait_ms=5000))
        await asyncio.sleep(1)
        machine.broker.clock.wall_shift_ms = HOUR_MS
        await waiting
        return loop.time() - began

    assert 4.9 < simulated(main) < 5.1


# --- other centuries ------------------------------------------------------------------------


@running
async def test_f92_a_time_far_ahead_is_refused_or_kept_as_the_topic_says() -> None:
    """F92."""
    async with oncelog.Broker() as broker:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic("strict")
        await wire.create_topic(
            "open", configs={"message.timestamp.after.max.ms": str((1 << 63) - 1)}
        )
        future = a_batch(timestamp_ms=YEAR_2100_MS)

        refused = await wire.produce(future, topic="strict")
        kept = await wire.produce(future, topic="open")
        old = await wire.produce(a_batch(timestamp_ms=0), topic="strict")

        assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
        assert (kept.error_code, old.error_code) == (OK, OK)
        assert await wire.end_offset("strict") == 1
        await hang_up(wire)


@running
async def test_f92_one_odd_time_does_not_hide_the_others_from_a_lookup() -> None:
    """F92: 1970 and 2100 between records of today."""
    async with oncelog.Broker() as broker:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic(
            configs={
                "message.timestamp.after.max.ms": str((1 << 63) - 1),
                "segment.bytes": "200",
                "index.interval.bytes": "1",
            }
        )
        now = now_ms()
        times = [now, 0, now + 1, YEAR_2100_MS, now + 2, 1, now + 3]
        for time_ms in times:
            assert (await wire.produce(a_batch(timestamp_ms=time_ms))).error_code == OK

        found = [(await wire.list_offset(asked)).offset for asked in (0, now, now + 1, now + 2)]
        newest = await wire.list_offset(-3)

        assert found == [0, 0, 2, 3]
        assert (newest.offset, newest.timestamp) == (3, YEAR_2100_MS)
        await hang_up(wire)


@pytest.mark.parametrize("odd_ms", [0, YEAR_2100_MS])
def test_f92_one_odd_time_neither_keeps_nor_removes_the_others(odd_ms: int) -> None:
    """F92: retention looks at segments, oldest first, and at the newest record in each."""
    settings = {
        "log.retention.ms": "60000",
        "log.retention.check.interval.ms": "10000",
        "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
        "log.roll.ms": str(1 << 62),
        "log.segment.bytes": "250",
    }

    async def main() -> list[int]:
        machine = Machine(settings=settings)
        wire = await machine.start()
        assert await wire.create_topic() == OK
        for index in range(9):
            batch = wire.batch() if index != 4 else a_batch(timestamp_ms=odd_ms)
            assert (await wire.produce(batch)).error_code == OK
        await asyncio.sleep(50)
        assert (await wire.list_offset(-2)).offset == 0
        await asyncio.sleep(60)
        return [record.offset for record in await wire.records()]

    # Three batches to a segment: the odd one is in the middle, the last one is active and stays.
    assert simulated(main) == ([6, 7, 8] if odd_ms == 0 else [3, 4, 5, 6, 7, 8])


# --- lookups by time ------------------------------------------------------------------------


def first_at_or_after(times: list[int], asked: int) -> int | None:
    return next((offset for offset, time in enumerate(times) if time >= asked), None)


@given(
    times=st.lists(st.integers(0, 30), min_size=1, max_size=25),
    segment_bytes=st.sampled_from([200, 500, 100_000]),
    index_interval_bytes=st.sampled_from([1, 200, 100_000]),
)
def test_f94_a_lookup_finds_the_first_record_that_is_not_older(
    times: list[int], segment_bytes: int, index_interval_bytes: int
) -> None:
    """F94: times that go back never make a lookup skip a later or equal record."""
    config = small_segments(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)

    async def main() -> None:
        disk = disk_of({})
        opened = await open_on(disk, config)
        for time in times:
            opened.append(time_ms=TIME_MS + time)
        await opened.commit()
        look(opened)
        look(await open_on(disk, config))

    def look(opened: Opened) -> None:
        for asked in range(32):
            found = opened.partition.find_time(TIME_MS + asked)
            assert (found.offset if found else None) == first_at_or_after(times, asked)
        newest = opened.partition.find_max_timestamp()
        assert newest is not None
        assert newest.offset == times.index(max(times))

    simulated(main)


def test_f94_append_times_that_go_back_do_not_confuse_a_lookup() -> None:
    """F94: the broker's clock goes back ten seconds while it stamps records."""

    async def main() -> None:
        machine = Machine(settings={"log.index.interval.bytes": "1"})
        wire = await machine.start()
        configs = {"message.timestamp.type": "LogAppendTime", "segment.bytes": "500"}
        assert await wire.create_topic(configs=configs) == OK
        clock, rng = machine.broker.clock, Random(94)
        stamped: list[int] = []
        for index in range(60):
            if index % 15 == 14:
                clock.wall_shift_ms -= 10_000
            await asyncio.sleep(rng.uniform(0.1, 1.0))
            answer = await wire.produce(wire.batch())
            stamped.append(answer.log_append_time_ms)
        assert sorted(stamped) != stamped
        for asked in sorted({*stamped, *(time + 1 for time in stamped)}):
            found = await wire.list_offset(asked)
            expected = first_at_or_after(stamped, asked)
            assert found.offset == (-1 if expected is None else expected)

    simulated(main)
