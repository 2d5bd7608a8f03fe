"""One simulated run: clients at work while things go wrong, then healing, then a verdict.

The plan decides everything: sizes, delays, which faults occur and when. Running it twice gives the
same history, byte for byte. First comes safety, under any faults; then liveness: everything is put
right, and within a time everybody must come to rest and new transactions must commit.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from oncelog.check.history import Op, Read, Record, Run, Unreadable, open_history
from oncelog.check.recorder import Recorder
from oncelog.check.verdict import Report, Verdict, judge
from oncelog.core.errors import BrokerError
from oncelog.runtime.config import BrokerConfig
from oncelog.testing.sim.audit import Auditor, note_logs
from oncelog.testing.sim.cast import (
    COPYING_GROUP,
    INPUTS,
    LOSSY,
    PARTS,
    PLAIN_GROUP,
    TOPICS,
    make_client,
    make_writer,
    work,
)
from oncelog.testing.sim.client import Client, Part, Stage, part_name
from oncelog.testing.sim.copier import Copier
from oncelog.testing.sim.damage import damage
from oncelog.testing.sim.faults import Injector
from oncelog.testing.sim.housekeeping import Builder
from oncelog.testing.sim.keeper import Keeper
from oncelog.testing.sim.loop import SimLoop, run
from oncelog.testing.sim.member import Member
from oncelog.testing.sim.plan import ClientPlan, Plan, Role
from oncelog.testing.sim.producer import Producer
from oncelog.testing.sim.reading import COMMITTED, UNCOMMITTED, Ends, Reader, Watcher
from oncelog.testing.sim.replay import differences, state_of
from oncelog.testing.sim.steps import Step, Steps
from oncelog.testing.sim.swarm import PARTITIONS, PLAIN, TRANSACTIONAL, Shape, draw_plan
from oncelog.testing.sim.transactional import TxnProducer
from oncelog.testing.sim.world import SimBroker, until

__all__ = ["PLAIN", "TRANSACTIONAL", "Outcome", "Shape", "play", "simulate"]

#: A run that takes longer than this, in its own time, is stuck.
VIRTUAL_LIMIT_S: Final = 200.0
#: Nobody has so much to do at one moment: then something goes round in a circle.
MOST_TURNS: Final = 10_000
#: So long after healing, and after the longest transaction's timeout, everything is at rest.
REST_S: Final = 30.0
#: So long after its timeout a transaction that nobody ends is over in all partitions.
STABLE_S: Final = 10.0

T = TypeVar("T")


class NotAtRest(Exception):
    """Everything was put right, and something is still not as it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run."""

    seed: int
    digest: str
    report: Report | None
    acknowledged: int
    delivered: int
    #: How often the broker was started again.
    crashes: int
    faults: int
    virtual_s: float
    committed: int
    aborted: int
    unknown: int
    failures: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """No anomaly, and nothing raised where nobody expected it."""
        is_valid = self.report is not None and self.report.verdict is Verdict.VALID
        return is_valid and not self.failures

    @property
    def transactions(self) -> int:
        """How many transactions came to an end, of whatever kind."""
        return self.committed + self.aborted + self.unknown


def simulate(seed: int, history: Path, shape: Shape | None = None) -> Outcome:
    """Run one seed; the history goes to the given file. Without a shape the seed draws one."""
    return play(draw_plan(seed, shape), history)


def play(plan: Plan, history: Path) -> Outcome:
    """Run a plan; the history goes to the given file."""
    rng = Random(f"{plan.seed} order") if plan.shuffles else None
    return run(_Scenario(plan, history).play, rng=rng)


class _Scenario:
    def __init__(self, plan: Plan, history: Path) -> None:
        self._plan = plan
        self._history = history
        self._stop = asyncio.Event()
        self._clients: dict[str, Client] = {}
        self._failures: list[str] = []
        self._steps = Steps()
        self._config = BrokerConfig().with_values(dict(plan.settings), origin="simulation")
        self._injected = 0

    def _draw(self, name: str) -> Random:
        """A source of chance that does not depend on who else draws."""
        return Random(f"{self._plan.seed} {name}")

    def _all(self, kind: type[T]) -> list[T]:
        return [client for client in self._clients.values() if isinstance(client, kind)]

    async def play(self, loop: SimLoop) -> Outcome:
        loop.on_turn = self._turn_counter(loop)
        broker = SimBroker(loop, self._draw("broker"), self._config)
        broker.disk.sync_s = self._plan.sync_s
        broker.disk.on_step = self._steps.counter(Step.DISK)
        broker.weather.on_step = self._steps.counter(Step.NET)
        header = Run(
            seed=self._plan.seed,
            mode="subscribe",
            txn=any(client.role in (Role.WRITER, Role.COPIER) for client in self._plan.clients),
            parts=tuple(map(part_name, PARTS)),
        )
        with Recorder(self._history, header, clock=lambda: int(loop.time() * 1e9)) as recorder:
            stage = Stage(broker=broker, recorder=recorder, run=self._plan.seed)
            try:
                async with asyncio.timeout(VIRTUAL_LIMIT_S):
                    await self._run(loop, stage)
            except TimeoutError:
                self._failures.append(f"stuck: not at rest after {VIRTUAL_LIMIT_S} virtual seconds")
            except asyncio.CancelledError:
                self._failures.append(f"spins: {MOST_TURNS} turns of the loop take no time")
            except Exception as error:  # Whatever a client or the broker raised fails the run.
                self._failures += _sentences(error)
        return self._outcome(loop, broker)

    def _turn_counter(self, loop: SimLoop) -> Callable[[], None]:
        """Counts turns, and ends a run in which time does not pass any more."""
        count, run_task = self._steps.counter(Step.TURN), asyncio.current_task()
        assert run_task is not None, "a run is a task"
        last_s, turns = -1.0, 0

        def turn() -> None:
            nonlocal last_s, turns
            count()
            turns += 1
            if loop.time() > last_s:
                last_s, turns = loop.time(), 0
            elif turns == MOST_TURNS:
                run_task.cancel()

        return turn

    def _outcome(self, loop: SimLoop, broker: SimBroker) -> Outcome:
        digest = hashlib.sha256(self._history.read_bytes())
        digest.update(broker.disk.digest().encode())
        report: Report | None = None
        try:
            report = judge(open_history(self._history), with_floors=False)
        except Unreadable as error:
            self._failures.append(str(error))
        writers = [*self._all(TxnProducer), *(c.producer for c in self._all(Copier))]
        watched = [failure for watcher in self._all(Watcher) for failure in watcher.failures]
        return Outcome(
            seed=self._plan.seed,
            digest=digest.hexdigest(),
            report=report,
            acknowledged=sum(sum(p.acknowledged.values()) for p in self._all(Producer)),
            delivered=sum(member.delivered_count for member in self._all(Member)),
            crashes=broker.start_count - 1,
            faults=self._injected,
            virtual_s=loop.time(),
            committed=sum(writer.committed_count for writer in writers),
            aborted=sum(writer.aborted_count for writer in writers),
            unknown=sum(writer.unknown_count for writer in writers),
            failures=(*loop.failures, *self._failures, *watched),
        )

    async def _run(self, loop: SimLoop, stage: Stage) -> None:
        broker = stage.broker
        keeper = Keeper(broker, self._steps)
        self._clients = {
            plan.name: make_client(stage, plan, self._draw) for plan in self._plan.clients
        }
        injector = Injector(
            broker, keeper, self._steps, stage.recorder, self._clients, self._draw("faults")
        )
        keeper.start()
        async with asyncio.TaskGroup() as tasks:
            faults = tasks.create_task(injector.run(self._plan.faults))
            await self._make_topics(stage)
            for member in self._all(Member):
                tasks.create_task(member.work(self._stop))
            for watcher in self._all(Watcher):
                tasks.create_task(watcher.work(self._stop))
            work = [tasks.create_task(self._work(plan)) for plan in self._plan.clients]
            await asyncio.wait([faults, *work])
            await self._heal(stage, keeper, injector)
            await self._come_to_rest(stage)
            self._stop.set()
        content = await self._read_everything(stage)
        self._failures += note_logs(stage, PARTS)
        await self._restart_on_a_copy(loop, broker)
        await broker.stop()
        # After an orderly stop: before, a wrong bit in the tail looks like a write that was torn.
        rng = self._draw("damage")
        for _ in range(self._plan.flips):
            self._failures += await damage(
                loop, self._config, broker.disk, content, run=self._plan.seed, rng=rng
            )

    async def _make_topics(self, stage: Stage) -> None:
        builder = Builder(stage, "setup", self._draw("setup"))
        for topic in TOPICS:
            configs = {}
            if topic == LOSSY and self._plan.expires:
                configs = {"retention.bytes": "3000", "segment.bytes": "1024"}
            await builder.create(topic, PARTITIONS, configs)

    async def _work(self, plan: ClientPlan) -> None:
        await work(self._clients[plan.name], plan, self._draw(f"{plan.name} work"))

    # --- healing ------------------------------------------------------------------------------------

    async def _heal(self, stage: Stage, keeper: Keeper, injector: Injector) -> None:
        self._injected = injector.injected_count
        self._steps.clear()
        injector.heal()
        await keeper.settle()
        broker = stage.broker
        if _offline(broker):
            keeper.end(broker.crash, down_s=0.1)
            await keeper.settle()
            if why := _offline(broker):
                raise NotAtRest(f"the disk is sound, and a restart finds it damaged: {why}")
        stage.recorder.note(Op.HEAL)

    async def _come_to_rest(self, stage: Stage) -> None:
        """New transactions commit, old ones end, and the groups read to the end."""
        longest_s = max((c.timeout_ms for c in self._plan.clients), default=0) / 1000
        for member in self._all(Member):
            member.is_hurried = True
        async with asyncio.timeout(REST_S + longest_s):
            await self._probe(stage)
        ends = await self._become_stable(stage, within_s=STABLE_S + longest_s)
        for copies in (False, True):
            group = [m for m in self._all(Member) if isinstance(m, Copier) == copies]
            await self._catch_up(group, ends)
        auditor = Auditor(stage, "state", self._draw("state"))
        await auditor.note_state(within_s=REST_S + longest_s)

    async def _become_stable(self, stage: Stage, *, within_s: float) -> dict[Part, Ends]:
        """Whoever has gone for good left a transaction open: it ends by itself."""
        reader = Reader(stage, "rest", self._draw("rest"))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            ends = await reader.ends(PARTS)
            unstable = [p for p, end in ends.items() if end.last_stable_offset < end.high_watermark]
            if not unstable:
                return ends
            if loop.time() > deadline:
                part = unstable[0]
                raise NotAtRest(
                    f"{part_name(part)} ends at {ends[part].high_watermark} and is stable up to "
                    f"{ends[part].last_stable_offset}, {within_s:g} s after healing"
                )
            await asyncio.sleep(0.5)

    async def _probe(self, stage: Stage) -> None:
        for is_v2 in (False, True):
            plan = ClientPlan(
                name=f"probe-{is_v2}", role=Role.WRITER, transactional_id=f"probe-{is_v2}",
                is_v2=is_v2,
            )  # fmt: skip
            probe = make_writer(stage, plan, self._draw(plan.name))
            writes = [(part, 1) for part in PARTS]
            while not await probe.transact(writes, commit=True, is_probe=True):
                await probe.pause()

    async def _catch_up(self, members: list[Member], ends: dict[Part, Ends]) -> None:
        """Somebody in the group gets to the end of each partition, and is always on the way there."""
        for part in INPUTS if members else ():

            def position(part: Part = part) -> int:
                return max(member.positions.get(part, 0) for member in members)

            while (before := position()) < ends[part].last_stable_offset:
                await until(lambda: position() > before, within_s=REST_S)

    # --- the verdict --------------------------------------------------------------------------------

    async def _read_everything(self, stage: Stage) -> dict[Part, list[Record]]:
        recorder = stage.recorder
        reader = Reader(stage, "final", self._draw("final"))
        for group in (PLAIN_GROUP, COPYING_GROUP):
            auditor = Member(
                stage, "auditor", self._draw("auditor"), group=group, parts=[], patience_s=5.0
            )
            await auditor.audit([*INPUTS])
        call = recorder.call(recorder.new_process(), Op.FINAL)
        content, ends = await reader.read(PARTS, isolation=COMMITTED)
        everything, _ = await reader.read(PARTS, isolation=UNCOMMITTED)
        for watcher in self._all(Watcher):
            for part, end in ends.items():
                start = end.log_start_offset
                self._failures += watcher.missing_from(part, everything[part], start)
        recorder.ok(
            call,
            [Read({part_name(p): tuple(records) for p, records in content.items() if records})],
            ends={
                part_name(part): [end.last_stable_offset, end.high_watermark]
                for part, end in ends.items()
            },
            starts={
                part_name(part): end.log_start_offset
                for part, end in ends.items()
                if end.log_start_offset
            },
        )
        return content

    async def _restart_on_a_copy(self, loop: SimLoop, broker: SimBroker) -> None:
        """What a start reads from the disk is what the running broker knows."""
        groups = (PLAIN_GROUP, COPYING_GROUP)
        twin = SimBroker(loop, self._draw("twin"), self._config)
        # A log start is stored before it counts: let those that are on their way arrive.
        async with broker.core.logs.checkpointing:
            twin.disk = broker.disk.copy()
            live = await self._state(broker, groups)
        twin.clock = broker.clock
        await twin.start()
        self._failures += differences(live, await self._state(twin, groups))
        twin.kill()

    async def _state(self, broker: SimBroker, groups: tuple[str, ...]) -> dict[str, str]:
        try:
            return await state_of(broker.core, topics=TOPICS, groups=groups)
        except BrokerError:
            return await state_of(broker.core, topics=TOPICS, groups=())  # No group ever came.


def _offline(broker: SimBroker) -> str | None:
    """Why a partition does not serve, if one does not."""
    return next((why for partition in broker.core.logs if (why := partition.offline)), None)


def _sentences(error: BaseException) -> list[str]:
    """What is behind an exception, or a group of them."""
    if isinstance(error, BaseExceptionGroup):
        return [sentence for inner in error.exceptions for sentence in _sentences(inner)]
    return [f"{type(error).__name__}: {error}"]
