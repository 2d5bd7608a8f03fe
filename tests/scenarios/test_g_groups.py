"""Group G: consumers and groups, as far as they need no transactions."""

import asyncio
import time
from contextlib import closing
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import oncelog
from oncelog.core.errors import BrokerError
from oncelog.testing.sim.world import Disconnected
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.client.fake_broker import running
from tests.scenarios.groups import Member
from tests.scenarios.simulated import Machine
from tests.scenarios.wire import OK, TOPIC, connect, hang_up
from tests.storage.disks import FragileDisk
from tests.storage.opened import simulated, steps_of

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


async def a_machine() -> tuple[Machine, Member]:
    """A broker with the topic, and one member that has not joined yet."""
    machine = Machine()
    wire = await machine.start()
    assert await wire.create_topic() == OK
    member = Member(wire, "g")
    await member.find_coordinator()
    return machine, member


async def join_all(*members: Member) -> None:
    """Let members join one and the same generation."""
    for member in members:
        await member.introduce()
    assert set(await asyncio.gather(*(member.join() for member in members))) == {OK}
    assert len({member.generation for member in members}) == 1


async def settle(*members: Member) -> None:
    """Let members join and learn their shares."""
    await join_all(*members)
    answers = await asyncio.gather(*(member.sync() for member in members))
    assert {code for code, _ in answers} == {OK}


# --- members that vanish --------------------------------------------------------------------


def test_g95_the_next_owner_starts_where_the_last_commit_was() -> None:
    """G95: killed between poll and commit; repeats are possible, loss is not."""

    async def main() -> None:
        machine, killed = await a_machine()
        await settle(killed)
        for index in range(10):
            await killed.wire.produce(killed.wire.batch(value=b"%d" % index))
        assert await killed.commit({0: 6}) == OK

        heir = Member(machine.connect(), "g")
        await settle(heir)  # once the session of the killed one is over

        assert heir.is_leader
        assert heir.members == [heir.member_id]
        assert await heir.committed([0]) == {0: 6}

    simulated(main)


def test_g109_a_leader_that_dies_before_its_plan_keeps_nobody_waiting() -> None:
    """G109."""

    async def main() -> float:
        machine, one = await a_machine()
        other = Member(machine.connect(), "g")
        await settle(one)
        await join_all(one, other)
        leader, follower = (one, other) if one.is_leader else (other, one)
        assert leader.is_leader
        began = asyncio.get_running_loop().time()

        code, _ = await follower.sync()  # and the leader is never heard of again

        took_s = asyncio.get_running_loop().time() - began
        assert code == REBALANCING
        await settle(follower)
        assert follower.is_leader
        assert follower.members == [follower.member_id]
        return took_s

    assert simulated(main) < 15


def test_g106_m185_a_member_that_was_too_slow_can_no_longer_commit() -> None:
    """G106, M185: it was removed, or its generation is over."""

    async def main() -> None:
        machine, slow = await a_machine()
        await settle(slow)
        assert await slow.commit({0: 3}) == OK

        await asyncio.sleep(11)
        assert await slow.commit({0: 4}) == UNKNOWN

        slow.member_id = ""
        await settle(slow)
        heir = Member(machine.connect(), "g")
        before = slow.generation
        await join_all(slow, heir)
        slow.generation = before
        assert await slow.commit({0: 5}) == ErrorCode.ILLEGAL_GENERATION
        assert await slow.beat() == ErrorCode.ILLEGAL_GENERATION
        assert await heir.committed([0]) == {0: 3}

    simulated(main)


def test_g110_two_hundred_members_settle_into_one_generation() -> None:
    """G110: all join within a second, fifty leave, fifty die."""

    async def main() -> float:
        machine, first = await a_machine()
        rng = Random(110)
        members = [first, *(Member(machine.connect(), "g", session_ms=6000) for _ in range(199))]
        loop = asyncio.get_running_loop()

        async def live(member: Member, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            code = REBALANCING
            while True:
                if code == OK:
                    await asyncio.sleep(0.5)
                    code = ErrorCode(await member.beat())
                    continue
                if code == UNKNOWN:
                    member.member_id = ""
                code = ErrorCode(await member.join())
                if code == OK:
                    code = ErrorCode((await member.sync())[0])

        tasks = [asyncio.create_task(live(member, rng.random())) for member in members]
        await asyncio.sleep(3)
        for task in tasks[:100]:
            task.cancel()
        await asyncio.gather(*tasks[:100], return_exceptions=True)
        for member in members[:50]:
            await member.leave()
        began = loop.time()
        left = members[100:]
        while {await member.beat() for member in left} != {OK}:
            assert loop.time() - began < 10
            await asyncio.sleep(0.2)
        took_s = loop.time() - began
        await asyncio.sleep(10)
        generation = {member.generation for member in left}
        assert len(generation) == 1
        (leader,) = [member for member in left if member.is_leader]
        assert sorted(leader.members) == sorted(member.member_id for member in left)
        for task in tasks:
            task.cancel()
        return took_s

    assert simulated(main) < 10


# --- static members -------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_b31_g100_a_static_member_that_comes_back_in_time_disturbs_nobody(who: str) -> None:
    """G100, B31: same generation, same share; its former self is fenced."""

    async def main() -> None:
        machine, one = await a_machine()
        one.instance = "i-1"
        other = Member(machine.connect(), "g", instance="i-2")
        await settle(one)
        joining = asyncio.create_task(other.join())
        await asyncio.sleep(1)
        assert await one.beat() == REBALANCING
        assert await one.join() == await joining == OK
        await asyncio.gather(one.sync(), other.sync())
        pair = (one, other) if one.is_leader == (who == "leader") else (other, one)
        former, witness = pair
        generation = former.generation
        _, share = await former.sync()
        assert share

        await asyncio.sleep(5)
        assert await witness.beat() == OK
        reborn = Member(machine.connect(), "g", instance=former.instance)
        assert await reborn.join() == OK
        code, again = await reborn.sync({})

        assert (code, again) == (OK, share)
        assert reborn.generation == generation
        assert reborn.member_id != former.member_id
        assert await witness.beat() == OK
        assert await former.beat() == ErrorCode.FENCED_INSTANCE_ID
        assert await former.commit({0: 9}) == ErrorCode.FENCED_INSTANCE_ID
        assert await reborn.commit({0: 1}) == OK

    simulated(main)


# --- the coordinator dies -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_g101_confirmed_commits_and_generations_outlive_the_coordinator(seed: int) -> None:
    """G101, K12: after each step of join, sync and commit."""

    async def attempt(last_step: int) -> bool:
        disk = FragileDisk(Random(seed), last_step=last_step)
        machine = Machine(disk, seed=seed)
        confirmed, synced, joined = -1, 0, 0
        try:
            wire = await machine.start()
            assert await wire.create_topic() == OK
            member = Member(wire, "g")
            await member.find_coordinator()
            for offset in range(3):
                if await member.join() != OK:
                    break
                joined = member.generation
                if (await member.sync())[0] != OK:
                    break
                synced = member.generation
                if await member.commit({0: offset}) != OK:
                    break
                confirmed = offset
        except (Disconnected, OSError, BrokerError, AssertionError):
            assert disk.is_cut
        is_cut = disk.is_cut
        wire = await machine.restart()
        assert await wire.create_topic() in (OK, ErrorCode.TOPIC_ALREADY_EXISTS)
        heir = Member(wire, "g")
        await heir.find_coordinator()
        found = (await heir.committed([0]))[0]
        # The commit under way when the power went may have been stored, and no later one.
        assert confirmed <= found <= confirmed + 1
        assert await heir.join() == OK
        assert heir.generation > synced
        assert heir.generation >= joined
        assert (await heir.sync())[0] == OK
        return is_cut

    assert steps_of(attempt) > 10


def test_g102_the_last_commit_that_was_applied_wins_and_survives() -> None:
    """G102: the reply is lost, the commit repeated, and an older one comes late."""

    async def main() -> None:
        machine, member = await a_machine()
        await settle(member)
        lost = machine.connect()
        losing = asyncio.create_task(member.commit({0: 5}, wire=lost))
        await asyncio.sleep(0.1)
        lost.line.close()  # type: ignore[attr-defined] # a simulated connection
        await asyncio.gather(losing, return_exceptions=True)

        assert await member.commit({0: 5}) == OK
        assert await member.commit({0: 3}, wire=machine.connect()) == OK

        assert await member.committed([0]) == {0: 3}
        again = Member(await machine.restart(), "g")
        await again.find_coordinator()
        assert await again.committed([0]) == {0: 3}

    simulated(main)


# --- offsets --------------------------------------------------------------------------------


@running
async def test_g111_an_unknown_group_has_no_offsets_and_that_is_no_error() -> None:
    """G111, in every form of the request."""
    async with oncelog.Broker() as broker:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic(partitions=2)
        nobody = Member(wire, "nobody")
        await nobody.find_coordinator()

        assert await nobody.committed([0, 1]) == {0: -1, 1: -1}
        for version in range(1, 8):
            topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])
            reply = await wire.ask(OffsetFetchRequest(group_id="nobody", topics=[topic]), version)
            found = reply.topics[0].partitions
            assert [part.committed_offset for part in found] == [-1, -1]
            assert {reply.error_code, *(part.error_code for part in found)} == {OK}
        await hang_up(wire)


@running
async def test_g108_a_position_outside_the_log_is_out_of_range() -> None:
    """G108."""
    async with oncelog.Broker() as broker:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic()
        for _ in range(5):
            await wire.produce(wire.batch())
        await wire.delete_records(2)

        codes = [(await wire.fetch(offset)).error_code for offset in (-5, 0, 1, 2, 5, 6, 1 << 62)]

        bad = ErrorCode.OFFSET_OUT_OF_RANGE
        assert codes == [bad, bad, bad, OK, OK, bad, bad]
        await hang_up(wire)


@pytest.mark.parametrize("offset", [1, 500])
def test_g108_a_consumer_without_a_reset_policy_stops_with_an_error(offset: int) -> None:
    """G108, with a real client."""

    async def prepare(bootstrap: str) -> None:
        wire = await connect(bootstrap)
        await wire.create_topic()
        for _ in range(5):
            await wire.produce(wire.batch())
        await wire.delete_records(3)
        await hang_up(wire)

    with oncelog.Broker() as broker:
        asyncio.run(prepare(broker.bootstrap_servers))
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "error",
            "log_level": 0,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0, offset)])
            (message,) = consumer.consume(1, timeout=15)

            error = message.error()
            assert error is not None
            assert error.code() == KafkaError._AUTO_OFFSET_RESET


# --- cooperative rebalancing ----------------------------------------------------------------


class Worker:
    """A cooperative consumer that knows which partitions it owns."""

    def __init__(self, bootstrap: str, owners: dict[int, "Worker"]) -> None:
        self._owners = owners
        self._next: dict[int, int] = {}
        self.read_count = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "cooperative",
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._gain, on_revoke=self._lose)

    def _gain(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            owner = self._owners.get(one.partition)
            assert owner is None, f"partition {one.partition} has two owners"
            self._owners[one.partition] = self
            self._next.pop(one.partition, None)

    def _lose(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            assert self._owners.pop(one.partition) is self

    def work(self) -> None:
        """Read a little; in a partition that stays, nothing is skipped and nothing repeated."""
        for message in self._consumer.consume(50, timeout=0.02):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            assert self._owners[partition] is self
            assert offset == self._next.get(partition, offset)
            self._next[partition] = offset + 1
            self.read_count += 1

    def leave(self) -> None:
        self._consumer.close()


@pytest.mark.slow
def test_g99_no_partition_ever_has_two_owners() -> None:
    """G99: twelve partitions, cooperative, somebody joins or leaves all the time."""

    async def create(bootstrap: str) -> None:
        wire = await connect(bootstrap)
        await wire.create_topic(partitions=12)
        await hang_up(wire)

    rng = Random(99)
    with oncelog.Broker() as broker:
        asyncio.run(create(broker.bootstrap_servers))
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        owners: dict[int, Worker] = {}
        workers = [Worker(broker.bootstrap_servers, owners)]
        changes, deadline = 0, time.monotonic() + 10
        next_change = time.monotonic() + 1
        while time.monotonic() < deadline:
            producer.produce(TOPIC, b"v", partition=rng.randrange(12))
            producer.poll(0)
            for worker in list(workers):
                worker.work()
            if time.monotonic() > next_change:
                next_change = time.monotonic() + 0.7
                changes += 1
                if len(workers) > 1 and rng.random() < 0.4:
                    workers.pop(rng.randrange(len(workers))).leave()
                else:
                    workers.append(Worker(broker.bootstrap_servers, owners))
        while len(owners) < 12:
            assert time.monotonic() < deadline + 15, owners.keys()
            for worker in workers:
                worker.work()
        for worker in workers:
            worker.leave()
        producer.flush(10)

    assert changes > 5
    assert not owners
