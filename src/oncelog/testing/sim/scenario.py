"""One simulated run: clients at work while things go wrong, then healing, then a verdict.

The plan decides everything: sizes, delays, which faults occur and when. Running it twice gives the
same history, byte for byte. First comes safety, under any faults; then liveness: everything is put
right, and within a time everybody must come to rest and new transactions must commit.
"""

import asyncio
import hashlib
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
from oncelog.testing.sim.client import Client, Part, Stage, part_name
from oncelog.testing.sim.copier import Copier
from oncelog.testing.sim.damage import damage
from oncelog.testing.sim.faults import Injector
from oncelog.testing.sim.housekeeping import Builder, Janitor
from oncelog.testing.sim.keeper import Keeper
from oncelog.testing.sim.loop import SimLoop, run
from oncelog.testing.sim.member import Member
from oncelog.testing.sim.plan import ClientPlan, Plan, Role
from oncelog.testing.sim.producer import IN_FLIGHT, Producer
from oncelog.testing.sim.reading import COMMITTED, UNCOMMITTED, Ends, Reader, Watcher
from oncelog.testing.sim.replay import differences, state_of
from oncelog.testing.sim.steps import Step, Steps
from oncelog.testing.sim.swarm import PARTITIONS, PLAIN, TRANSACTIONAL, Shape, draw_plan
from oncelog.testing.sim.transactional import TxnProducer
from oncelog.testing.sim.world import Disconnected, SimBroker, until

__all__ = ["PLAIN", "TRANSACTIONAL", "Outcome", "Shape", "play", "simulate"]

#: Everybody writes to it.
INPUT: Final = "a"
#: Where copiers write to.
OUTPUT: Final = "b"
#: Written to, and records are deleted from it.
LOSSY: Final = "c"
TOPICS: Final = (INPUT, OUTPUT, LOSSY)
PLAIN_GROUP: Final = "g"
COPYING_GROUP: Final = "copiers"
#: A run that takes longer than this, in its own time, is stuck.
VIRTUAL_LIMIT_S: Final = 200.0
#: So long after healing, and after the longest transaction's timeout, everything is at rest.
REST_S: Final = 30.0

T = TypeVar("T")


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
        self._parts = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        self._injected = 0

    def _draw(self, name: str) -> Random:
        """A source of chance that does not depend on who else draws."""
        return Random(f"{self._plan.seed} {name}")

    def _all(self, kind: type[T]) -> list[T]:
        return [client for client in self._clients.values() if isinstance(client, kind)]

    async def play(self, loop: SimLoop) -> Outcome:
        loop.on_turn = self._steps.counter(Step.TURN)
        broker = SimBroker(loop, self._draw("broker"), self._config)
        broker.disk.sync_s = self._plan.sync_s
        broker.disk.on_step = self._steps.counter(Step.DISK)
        broker.weather.on_step = self._steps.counter(Step.NET)
        header = Run(
            seed=self._plan.seed,
            mode="subscribe",
            txn=any(client.role in (Role.WRITER, Role.COPIER) for client in self._plan.clients),
            parts=tuple(map(part_name, self._parts)),
        )
        with Recorder(self._history, header, clock=lambda: int(loop.time() * 1e9)) as recorder:
            stage = Stage(broker=broker, recorder=recorder, run=self._plan.seed)
            try:
                async with asyncio.timeout(VIRTUAL_LIMIT_S):
                    await self._run(loop, stage)
            except TimeoutError:
                self._failures.append(f"stuck: not at rest after {VIRTUAL_LIMIT_S} virtual seconds")
            except Exception as error:  # Whatever a client or the broker raised fails the run.
                self._failures += _sentences(error)
        return self._outcome(loop, broker)

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
        self._clients = {plan.name: self._client(stage, plan) for plan in self._plan.clients}
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
        self._failures += note_logs(stage, self._parts)
        await self._restart_on_a_copy(loop, broker)
        await broker.stop()
        # After an orderly stop: before, a wrong bit in the tail looks like a write that was torn.
        rng = self._draw("damage")
        for _ in range(self._plan.flips):
            self._failures += await damage(
                loop, self._config, broker.disk, content, run=self._plan.seed, rng=rng
            )

    # --- clients ------------------------------------------------------------------------------------

    def _client(self, stage: Stage, plan: ClientPlan) -> Client:
        rng, name, patience_s = self._draw(plan.name), plan.name, plan.patience_s
        inputs = [part for part in self._parts if part[0] == INPUT]
        match plan.role:
            case Role.PRODUCER:
                return Producer(stage, name, rng, patience_s=patience_s)
            case Role.MEMBER:
                return Member(
                    stage, name, rng, group=PLAIN_GROUP, parts=inputs, patience_s=patience_s
                )
            case Role.WRITER:
                return self._txn_producer(stage, plan, rng)
            case Role.COPIER:
                return Copier(
                    stage,
                    name,
                    rng,
                    group=COPYING_GROUP,
                    parts=inputs,
                    patience_s=patience_s,
                    targets=[part for part in self._parts if part[0] == OUTPUT],
                    producer=self._txn_producer(stage, plan, rng),
                )
            case Role.WATCHER:
                return Watcher(stage, name, rng, parts=self._parts, patience_s=patience_s)
            case Role.JANITOR:
                return Janitor(stage, name, rng, patience_s=patience_s)
            case Role.BUILDER:
                return Builder(stage, name, rng, patience_s=patience_s)

    def _txn_producer(self, stage: Stage, plan: ClientPlan, rng: Random) -> TxnProducer:
        return TxnProducer(
            stage,
            plan.name,
            rng,
            transactional_id=plan.transactional_id,
            is_v2=plan.is_v2,
            timeout_ms=plan.timeout_ms,
            patience_s=plan.patience_s,
        )

    async def _make_topics(self, stage: Stage) -> None:
        builder = Builder(stage, "setup", self._draw("setup"))
        for topic in TOPICS:
            configs = {}
            if topic == LOSSY and self._plan.expires:
                configs = {"retention.bytes": "3000", "segment.bytes": "1024"}
            await builder.create(topic, PARTITIONS, configs)

    async def _work(self, plan: ClientPlan) -> None:
        client, rng = self._clients[plan.name], self._draw(f"{plan.name} work")
        for number in range(plan.operations):
            match client:
                case Producer():
                    await client.open()
                    sizes = [rng.randint(1, 8) for _ in range(rng.randint(1, IN_FLIGHT))]
                    await client.send(self._written_to(rng), sizes, number)
                    await asyncio.sleep(rng.choice((0, 0, 0.01, 0.5)))
                case TxnProducer():
                    writes = [
                        (self._written_to(rng), rng.randint(1, 3)) for _ in range(rng.randint(1, 4))
                    ]
                    await client.transact(writes, commit=rng.random() < 0.7)
                    await asyncio.sleep(rng.choice((0, 0, 0.05, 0.5)))
                case Janitor():
                    await asyncio.sleep(rng.uniform(0.5, 5))
                    try:
                        await client.delete((LOSSY, rng.randrange(PARTITIONS)))
                    except Disconnected:
                        pass  # Whether it was deleted nobody knows, and nobody minds.
                case Builder():
                    await client.rebuild("s", number)
                case _:
                    return

    def _written_to(self, rng: Random) -> Part:
        return (rng.choice((INPUT, INPUT, INPUT, LOSSY)), rng.randrange(PARTITIONS))

    # --- healing ------------------------------------------------------------------------------------

    async def _heal(self, stage: Stage, keeper: Keeper, injector: Injector) -> None:
        self._injected = injector.injected_count
        self._steps.clear()
        injector.heal()
        await keeper.settle()
        broker = stage.broker
        if any(partition.offline is not None for partition in broker.core.logs):
            keeper.end(broker.crash, down_s=0.1)
            await keeper.settle()
        stage.recorder.note(Op.HEAL)

    async def _come_to_rest(self, stage: Stage) -> None:
        """New transactions commit, old ones end, and the groups read to the end."""
        longest_s = max((c.timeout_ms for c in self._plan.clients), default=0) / 1000
        within_s = REST_S + longest_s
        async with asyncio.timeout(within_s):
            await self._probe(stage)
        reader = Reader(stage, "rest", self._draw("rest"))
        ends: dict[Part, Ends] = {}

        async def is_stable() -> bool:
            ends.update({part: await reader.ends(part) for part in self._parts})
            return all(end.last_stable_offset == end.high_watermark for end in ends.values())

        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not await is_stable() and loop.time() < deadline:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)
        for copies in (False, True):
            group = [m for m in self._all(Member) if isinstance(m, Copier) == copies]
            await self._catch_up(group, ends)
        await Auditor(stage, "state", self._draw("state")).note_state(within_s=within_s)

    async def _probe(self, stage: Stage) -> None:
        for is_v2 in (False, True):
            plan = ClientPlan(
                name=f"probe-{is_v2}", role=Role.WRITER, transactional_id=f"probe-{is_v2}",
                is_v2=is_v2,
            )  # fmt: skip
            probe = self._txn_producer(stage, plan, self._draw(plan.name))
            writes = [(part, 1) for part in self._parts]
            while not await probe.transact(writes, commit=True, is_probe=True):
                await probe.pause()

    async def _catch_up(self, members: list[Member], ends: dict[Part, Ends]) -> None:
        """Somebody in the group gets to the end of each partition."""
        if not members:
            return
        for part, end in ends.items():
            if part[0] == INPUT:
                await until(
                    lambda part=part, end=end: (
                        max(m.positions.get(part, 0) for m in members)  # type: ignore[misc]
                        >= end.last_stable_offset
                    ),
                    within_s=REST_S * 3,  # One batch for each poll, and copiers that linger.
                )

    # --- the verdict --------------------------------------------------------------------------------

    async def _read_everything(self, stage: Stage) -> dict[Part, list[Record]]:
        recorder = stage.recorder
        reader = Reader(stage, "final", self._draw("final"))
        for group in (PLAIN_GROUP, COPYING_GROUP):
            auditor = Member(
                stage, "auditor", self._draw("auditor"), group=group, parts=[], patience_s=5.0
            )
            await auditor.audit([part for part in self._parts if part[0] == INPUT])
        call = recorder.call(recorder.new_process(), Op.FINAL)
        content: dict[Part, list[Record]] = {}
        ends: dict[Part, Ends] = {}
        for part in self._parts:
            content[part], ends[part] = await reader.read(part, isolation=COMMITTED)
            everything, _ = await reader.read(part, isolation=UNCOMMITTED)
            for watcher in self._all(Watcher):
                start = ends[part].log_start_offset
                self._failures += watcher.missing_from(part, everything, start)
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
        live = await self._state(broker, groups)
        twin = SimBroker(loop, self._draw("twin"), self._config)
        twin.disk = broker.disk.copy()
        twin.clock = broker.clock
        await twin.start()
        self._failures += differences(live, await self._state(twin, groups))
        twin.kill()

    async def _state(self, broker: SimBroker, groups: tuple[str, ...]) -> dict[str, str]:
        try:
            return await state_of(broker.core, topics=TOPICS, groups=groups)
        except BrokerError:
            return await state_of(broker.core, topics=TOPICS, groups=())  # No group ever came.


def _sentences(error: BaseException) -> list[str]:
    """What is behind an exception, or a group of them."""
    if isinstance(error, BaseExceptionGroup):
        return [sentence for inner in error.exceptions for sentence in _sentences(inner)]
    return [f"{type(error).__name__}: {error}"]
