"""Group A: an idempotent producer's records appear once, whatever is retried, lost or repeated."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

import oncelog
from oncelog.client.errors import ClientError
from oncelog.core.batch import TRANSACTIONAL
from oncelog.testing import Proxy, lose_reply, repeat
from oncelog.wire.errors import ErrorCode
from tests.client.fake_broker import running
from tests.scenarios.wire import OK, TOPIC, Wire, all_of, connect, hang_up
from tests.storage.disks import disk_of
from tests.storage.opened import open_on, simulated

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@asynccontextmanager
async def a_broker(**configs: str) -> AsyncIterator[tuple[oncelog.Broker, Wire]]:
    """A broker with one topic, and a connection to it."""
    async with oncelog.Broker() as broker:
        wire = await connect(broker.bootstrap_servers)
        assert await wire.create_topic(configs=configs) == OK
        yield broker, wire
        await hang_up(wire)


# --- retries --------------------------------------------------------------------------------


@running
async def test_a1_a_batch_whose_reply_was_lost_keeps_its_offset() -> None:
    """A1, check 6."""
    async with a_broker() as (broker, wire):
        producer = await wire.init_producer()
        batch = wire.batch(sequence=0, producer_id=producer, count=3)
        with Proxy(broker.bootstrap_servers) as proxy:
            proxy.fault(lose_reply("Produce"))
            unlucky = await connect(proxy.address)
            waiting = asyncio.create_task(unlucky.produce(batch))
            await wire.until_end(3)
            proxy.cut()
            with pytest.raises(ClientError):
                await waiting
            await hang_up(unlucky)

        again = await wire.produce(batch)

        assert (again.error_code, again.base_offset) == (OK, 0)
        assert [record.offset for record in await wire.records()] == [0, 1, 2]


@running
async def test_a2_three_of_five_batches_in_flight_are_sent_again_in_any_order() -> None:
    """A2, check 7."""
    async with a_broker() as (_, wire):
        producer = await wire.init_producer()
        batches = [wire.batch(sequence=n, producer_id=producer) for n in range(5)]
        first = await all_of(*(wire.produce(batch) for batch in batches))

        order = [2, 4, 3, 3, 2]
        again = await all_of(*(wire.produce(batches[index]) for index in order))

        assert [answer.base_offset for answer in first] == [0, 1, 2, 3, 4]
        assert [(a.error_code, a.base_offset) for a in again] == [(OK, index) for index in order]
        assert await wire.end_offset() == 5


@running
async def test_a3_a_repeat_older_than_the_window_is_refused() -> None:
    """A3, check 8; check 22: the refusal names the log start."""
    async with a_broker() as (_, wire):
        producer = await wire.init_producer()
        for sequence in range(20):
            await wire.produce(wire.batch(sequence=sequence, producer_id=producer))
        assert await wire.delete_records(10) == OK

        old = await wire.produce(wire.batch(sequence=3, producer_id=producer))

        assert (old.error_code, old.base_offset) == (OUT_OF_ORDER, -1)
        assert old.log_start_offset == 10
        assert await wire.end_offset() == 20


@running
async def test_a4_a_gap_is_refused_until_it_is_filled() -> None:
    """A4, check 10."""
    async with a_broker() as (_, wire):
        producer = await wire.init_producer()
        batches = [wire.batch(sequence=n, producer_id=producer, value=b"%d" % n) for n in range(3)]

        answers = [await wire.produce(batches[index]) for index in (0, 2, 1, 2)]

        assert [a.error_code for a in answers] == [OK, OUT_OF_ORDER, OK, OK]
        assert await wire.values() == [b"0", b"1", b"2"]


@running
async def test_a8_a_raised_epoch_begins_at_zero() -> None:
    """A8, checks 13, 14, 22."""
    async with a_broker() as (_, wire):
        producer = await wire.init_producer()
        for sequence in range(5):
            await wire.produce(wire.batch(sequence=sequence, producer_id=producer))

        late = await wire.produce(wire.batch(sequence=5, epoch=1, producer_id=producer))
        first = await wire.produce(wire.batch(sequence=0, epoch=1, producer_id=producer))
        old = await wire.produce(wire.batch(sequence=5, epoch=0, producer_id=producer))

        assert late.error_code == OUT_OF_ORDER
        assert (first.error_code, first.base_offset) == (OK, 5)
        assert (old.error_code, old.log_start_offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, 0)
        assert await wire.end_offset() == 6


@running
async def test_a10_a_producer_goes_on_after_all_its_records_were_deleted() -> None:
    """A10, checks 15, 21."""
    async with a_broker() as (_, wire):
        producer = await wire.init_producer()
        assert (await wire.produce(wire.batch(sequence=7, producer_id=producer))).error_code == OK
        assert await wire.delete_records(-1) == OK

        following = await wire.produce(wire.batch(sequence=8, producer_id=producer))
        repeated = await wire.produce(wire.batch(sequence=7, producer_id=producer))

        assert (following.error_code, following.base_offset) == (OK, 1)
        assert (repeated.error_code, repeated.base_offset) == (OK, 0)
        assert [record.offset for record in await wire.records()] == [1]


@running
async def test_a12_one_batch_on_two_connections_at_once_is_appended_once() -> None:
    """A12."""
    async with a_broker() as (broker, wire):
        other = await connect(broker.bootstrap_servers)
        producer = await wire.init_producer()
        for sequence in range(20):
            batch = wire.batch(sequence=sequence, producer_id=producer)

            answers = await all_of(wire.produce(batch), other.produce(batch))

            assert [(a.error_code, a.base_offset) for a in answers] == [(OK, sequence)] * 2
        assert await wire.end_offset() == 20
        await hang_up(other)


@running
async def test_a13_a_request_with_one_bad_partition_can_be_sent_again_whole() -> None:
    """A13."""
    async with oncelog.Broker() as broker:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic(partitions=3, configs={"max.message.bytes": "500"})
        producer = await wire.init_producer()
        batches: dict[int, bytes | None] = {
            0: wire.batch(sequence=0, producer_id=producer),
            1: wire.batch(sequence=0, producer_id=producer, padding=1000),
            2: wire.batch(sequence=0, producer_id=producer, count=2),
        }

        tries = [await wire.produce_all(batches) for _ in range(2)]

        for answers in tries:
            assert [a.error_code for a in answers] == [OK, ErrorCode.MESSAGE_TOO_LARGE, OK]
            assert [a.base_offset for a in answers] == [0, -1, 0]
        assert [await wire.end_offset(partition=index) for index in range(3)] == [1, 0, 2]
        await hang_up(wire)


@running
async def test_a14_a_batch_that_overtakes_another_is_sent_back() -> None:
    """A14."""
    async with a_broker() as (broker, wire):
        other = await connect(broker.bootstrap_servers)
        producer = await wire.init_producer()
        batches = [wire.batch(sequence=n, producer_id=producer, value=b"%d" % n) for n in range(3)]
        # Where nothing is known of a producer any number may be its first: its state may have expired.
        await wire.produce(batches[0])

        overtaking = await other.produce(batches[2])
        first = await wire.produce(batches[1])
        again = await other.produce(batches[2])

        assert [a.error_code for a in (overtaking, first, again)] == [OUT_OF_ORDER, OK, OK]
        assert await wire.values() == [b"0", b"1", b"2"]
        await hang_up(other)


@running
async def test_hundreds_of_short_lived_producers_all_repeat_their_last_batch() -> None:
    """A16: none is forgotten while it may still retry."""
    async with a_broker() as (_, wire):
        producers = [await wire.init_producer() for _ in range(300)]
        batches = [wire.batch(sequence=0, producer_id=producer) for producer in producers]
        first = await all_of(*(wire.produce(batch) for batch in batches))

        again = await all_of(*(wire.produce(batch) for batch in reversed(batches)))

        assert len(set(producers)) == 300
        assert [a.base_offset for a in first] == list(range(300))
        assert [a.base_offset for a in again] == list(reversed(range(300)))
        assert await wire.end_offset() == 300


@running
async def test_a17_only_plain_producers_are_ever_doubled() -> None:
    """A17, A14: every request reaches the broker twice."""
    async with a_broker() as (broker, wire):
        producer = await wire.init_producer()
        with Proxy(broker.bootstrap_servers) as proxy:
            proxy.fault(repeat("Produce", times=None))
            doubled = await connect(proxy.address)
            for n in range(20):
                batch = wire.batch(sequence=n, producer_id=producer, value=b"once %d" % n)
                assert (await doubled.produce(batch)).error_code == OK
                assert (await doubled.produce(wire.batch(value=b"plain %d" % n))).error_code == OK
            await hang_up(doubled)

        values = await wire.values()

        assert [v for v in values if v and v.startswith(b"once")] == [
            b"once %d" % n for n in range(20)
        ]
        assert {v for v in values if v and v.startswith(b"plain")} == {
            b"plain %d" % n for n in range(20)
        }


# --- refusals -------------------------------------------------------------------------------


@running
async def test_a_transactional_batch_needs_a_transactional_id() -> None:
    """Check 18: the whole request fails."""
    async with oncelog.Broker() as broker:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic(partitions=2)
        producer = await wire.init_producer()
        batches: dict[int, bytes | None] = {
            0: wire.batch(sequence=0, producer_id=producer),
            1: wire.batch(sequence=0, producer_id=producer, attributes=TRANSACTIONAL),
        }

        answers = await wire.produce_all(batches)

        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert [answer.error_code for answer in answers] == [refused, refused]
        assert [await wire.end_offset(partition=index) for index in (0, 1)] == [0, 0]
        await hang_up(wire)


def test_a_repeat_waits_until_its_original_is_committed() -> None:
    """Check 19: a crash could still take the original back."""

    async def main() -> None:
        opened = await open_on(disk_of({}))
        opened.append(sequence=0)

        repeat = opened.append(sequence=0)
        waiting = opened.partition.committed(repeat.last_offset + 1)

        assert repeat.base_offset == 0
        assert waiting is not None
        assert not waiting.done()
        await opened.commit()
        assert waiting.done()
        assert opened.partition.committed(repeat.last_offset + 1) is None

    simulated(main)


# --- restarts -------------------------------------------------------------------------------


def nothing(path: Path) -> None:
    """Leave the snapshot as it is."""


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [nothing, remove, cut, flip])
@pytest.mark.parametrize("flush", ["sync", "os"])
def test_a5_a6_retries_are_recognised_after_a_kill(
    flush: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    """A5, A6, checks 20, 24: eight producers, killed between append and reply."""
    rng = Random(flush)
    settings = {"oncelog.flush": flush, "log.segment.bytes": "1500"}
    broker = oncelog.Broker(settings, data_dir=tmp_path, process=True)

    async def before_the_kill() -> list[list[bytes]]:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic()
        sent = []
        for _ in range(8):
            producer = await wire.init_producer()
            count = rng.randint(1, 7)
            sent.append([wire.batch(sequence=n, producer_id=producer) for n in range(count)])
        with Proxy(broker.bootstrap_servers) as proxy:
            line = await connect(proxy.address)
            proxy.fault(lose_reply("Produce"))
            tasks = [
                asyncio.create_task(line.produce(batch)) for batches in sent for batch in batches
            ]
            await wire.until_end(len(tasks))
            broker.kill()
        await asyncio.gather(*tasks, return_exceptions=True)
        await hang_up(wire, line)
        return sent

    async def after_it(sent: list[list[bytes]]) -> None:
        wire = await connect(broker.bootstrap_servers)
        total = sum(map(len, sent))
        assert await wire.end_offset() == total
        for batches in sent:
            again = [await wire.produce(batch) for batch in batches[-5:]]
            assert [answer.error_code for answer in again] == [OK] * len(again)
        assert await wire.end_offset() == total
        assert await wire.init_producer() >= 8
        await hang_up(wire)

    broker.start()
    try:
        sent = asyncio.run(before_the_kill())
        snapshots = sorted((tmp_path / f"{TOPIC}-0").glob("*.snapshot"))
        assert snapshots
        harm(snapshots[-1])
        broker.start()
        asyncio.run(after_it(sent))
    finally:
        broker.close()


def test_c47_producer_ids_never_repeat(tmp_path: Path) -> None:
    """Checks 26, 27, C47: however the broker ended, and however many were taken."""
    broker = oncelog.Broker(data_dir=tmp_path, process=True)
    seen: list[int] = []

    async def take(count: int) -> None:
        wire = await connect(broker.bootstrap_servers)
        seen.extend([await wire.init_producer() for _ in range(count)])
        await hang_up(wire)

    for round_number in range(4):
        broker.start()
        asyncio.run(take(1100 if round_number == 1 else 3))
        if round_number % 2:
            broker.stop()
        else:
            broker.kill()

    assert len(set(seen)) == len(seen) == 1109
    assert sorted(seen) == seen
