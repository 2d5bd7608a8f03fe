"""One simulated run: producers and a group at work while the broker crashes, then a verdict.

The seed decides everything: sizes, delays, which faults occur and when. Running it twice gives the
same history, byte for byte.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from oncelog.check.history import Op, Read, Run, open_history
from oncelog.check.recorder import Recorder
from oncelog.check.verdict import Report, Verdict, judge
from oncelog.runtime.config import BrokerConfig
from oncelog.testing.sim.clients import Member, Producer, Reader
from oncelog.testing.sim.loop import SimLoop, run
from oncelog.testing.sim.txn_clients import Copier, TxnProducer
from oncelog.testing.sim.world import SimBroker, SimConnection, until
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC = "a"
#: Where copiers write to.
OUTPUT = "b"
PARTITIONS = 2
#: A run that takes longer than this, in its own time, is stuck.
VIRTUAL_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much happens in a run."""

    producers: int = 2
    members: int = 2
    batches: int = 12
    crashes: int = 3
    #: Transactional producers; some of them share their transactional id and fence each other.
    txn_producers: int = 0
    transactions: int = 8
    #: Members of a second group that copy what they read, in transactions.
    copiers: int = 0


#: Transactions of all kinds beside a plain producer and a plain group.
TRANSACTIONAL: Final = Shape(producers=1, members=1, batches=4, txn_producers=3, copiers=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run."""

    seed: int
    digest: str
    report: Report
    acknowledged: int
    delivered: int
    crashes: int
    virtual_s: float
    committed: int
    aborted: int
    unknown: int
    failures: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """No anomaly, and nothing raised where nobody expected it."""
        return self.report.verdict is Verdict.VALID and not self.failures


def simulate(seed: int, history: Path, shape: Shape | None = None) -> Outcome:
    """Run one seed; the history goes to the given file."""
    scenario = _Scenario(seed, history, shape or Shape())
    return run(scenario.play)


class _Scenario:
    def __init__(self, seed: int, history: Path, shape: Shape) -> None:
        self._seed = seed
        self._history = history
        self._shape = shape
        self._rng = Random(seed)
        self._stop = asyncio.Event()
        self._writers: list[TxnProducer] = []

    async def play(self, loop: SimLoop) -> Outcome:
        broker = SimBroker(loop, self._draw(), self._config())
        broker.disk.sync_s = self._rng.choice((0.001, 0.02, 0.2))
        header = Run(
            seed=self._seed,
            mode="subscribe",
            txn=self._shape.txn_producers > 0,
            parts=tuple(f"{topic}:{i}" for topic in (TOPIC, OUTPUT) for i in range(PARTITIONS)),
        )
        with Recorder(self._history, header, clock=lambda: int(loop.time() * 1e9)) as recorder:
            async with asyncio.timeout(VIRTUAL_LIMIT_S):
                producers, members = await self._work(broker, recorder)
                ends = await self._read_everything(broker, recorder)
        await broker.stop()
        digest = hashlib.sha256(self._history.read_bytes())
        digest.update(broker.disk.digest().encode())
        digest.update(repr(sorted(ends.items())).encode())
        return Outcome(
            seed=self._seed,
            digest=digest.hexdigest(),
            report=judge(open_history(self._history), with_floors=False),
            acknowledged=sum(producer.acknowledged_count for producer in producers),
            delivered=sum(member.delivered_count for member in members),
            crashes=self._shape.crashes,
            virtual_s=loop.time(),
            committed=sum(writer.committed_count for writer in self._writers),
            aborted=sum(writer.aborted_count for writer in self._writers),
            unknown=sum(writer.unknown_count for writer in self._writers),
            failures=tuple(loop.failures),
        )

    def _config(self) -> BrokerConfig:
        rng = self._rng
        return BrokerConfig().with_values(
            {
                "log.segment.bytes": str(rng.choice((1024, 4096, 1 << 20))),
                "log.index.interval.bytes": str(rng.choice((0, 256, 4096))),
                "num.partitions": str(PARTITIONS),
                "offsets.topic.num.partitions": "3",
                "transaction.state.log.num.partitions": "3",
                "group.initial.rebalance.delay.ms": str(rng.choice((0, 300))),
                "log.flush.offset.checkpoint.interval.ms": str(rng.choice((100, 5000))),
                "log.retention.ms": "-1",
                "log.retention.check.interval.ms": str(rng.choice((300, 60_000))),
                "oncelog.shard.rewrite.bytes": str(rng.choice((2048, 1 << 20))),
            },
            origin="simulation",
        )

    def _draw(self) -> Random:
        return Random(self._rng.getrandbits(64))

    async def _work(
        self, broker: SimBroker, recorder: Recorder
    ) -> tuple[list[Producer], list[Member]]:
        await broker.start()
        await self._create_topic(broker)
        producers = [
            Producer(broker, f"producer-{index}", self._draw(), recorder, self._seed)
            for index in range(self._shape.producers)
        ]
        parts = [(TOPIC, index) for index in range(PARTITIONS)]
        members = [
            Member(
                broker,
                f"member-{index}",
                self._draw(),
                recorder,
                group="g",
                parts=parts,
                run=self._seed,
            )
            for index in range(self._shape.members)
        ]
        writers = [
            self._txn_producer(broker, recorder, i) for i in range(self._shape.txn_producers)
        ]
        copiers = [self._copier(broker, recorder, i, parts) for i in range(self._shape.copiers)]
        self._writers = writers
        async with asyncio.TaskGroup() as tasks:
            for member in [*members, *copiers]:
                tasks.create_task(member.work(self._stop))
            faults = tasks.create_task(self._inject(broker, recorder))
            sends = [tasks.create_task(self._produce(producer)) for producer in producers]
            sends += [tasks.create_task(self._transact(writer)) for writer in writers]
            await asyncio.wait([faults, *sends])
            total = sum(producer.acknowledged_count for producer in producers)
            # At-least-once: the group has seen everything once it has seen that many records.
            if members:
                await until(lambda: sum(member.delivered_count for member in members) >= total)
            self._stop.set()
        return producers, members

    async def _create_topic(self, broker: SimBroker) -> None:
        topics = [MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name=OUTPUT)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        reply = await SimConnection(broker, "setup").request(request, 9)
        assert all(t.error_code == 0 for t in reply.topics), f"topics were not made: {reply}"

    async def _produce(self, producer: Producer) -> None:
        rng = self._draw()
        await producer.open()
        for number in range(self._shape.batches):
            await producer.send(TOPIC, rng.randrange(PARTITIONS), rng.randint(1, 20), number)
            await asyncio.sleep(rng.choice((0, 0, 0.01, 0.5)))

    def _txn_producer(self, broker: SimBroker, recorder: Recorder, index: int) -> TxnProducer:
        rng = self._draw()
        return TxnProducer(
            broker,
            f"writer-{index}",
            rng,
            recorder,
            transactional_id=f"t{index // 2 if rng.random() < 0.5 else index}",
            is_v2=rng.random() < 0.5,
            run=self._seed,
            timeout_ms=rng.choice((1_500, 10_000, 60_000)),
        )

    def _copier(
        self, broker: SimBroker, recorder: Recorder, index: int, parts: list[tuple[str, int]]
    ) -> Copier:
        rng = self._draw()
        producer = TxnProducer(
            broker,
            f"copier-{index}",
            rng,
            recorder,
            transactional_id=f"copier-{index}",
            is_v2=rng.random() < 0.5,
            run=self._seed,
            timeout_ms=rng.choice((1_500, 10_000)),
        )
        return Copier(
            broker,
            f"copier-{index}",
            rng,
            recorder,
            group="copiers",
            parts=parts,
            run=self._seed,
            target=OUTPUT,
            producer=producer,
        )

    async def _transact(self, writer: TxnProducer) -> None:
        rng = self._draw()
        parts = [(TOPIC, index) for index in range(PARTITIONS)]
        for _ in range(self._shape.transactions):
            chosen = rng.sample(parts, rng.randint(1, len(parts)))
            await writer.transact(chosen, commit=rng.random() < 0.7)
            await asyncio.sleep(rng.choice((0, 0, 0.05, 0.5)))

    async def _inject(self, broker: SimBroker, recorder: Recorder) -> None:
        rng = self._draw()
        for _ in range(self._shape.crashes):
            await asyncio.sleep(rng.uniform(0.05, 3))
            if rng.random() < 0.5:
                broker.cut_some()
                await asyncio.sleep(rng.uniform(0.0, 0.2))
            recorder.note(Op.FAULT, what="crash", target="broker")
            broker.crash()
            if rng.random() < 0.3:
                # A crash during recovery must change nothing.
                start = asyncio.get_running_loop().create_task(broker.start())
                await asyncio.sleep(rng.uniform(0, 0.05))
                start.cancel()
                await asyncio.wait([start])
                broker.crash()
            await asyncio.sleep(rng.uniform(0.01, 1))
            await broker.start()
            recorder.note(Op.FAULT, what="crash", target="broker", over=True)
        recorder.note(Op.HEAL)

    async def _read_everything(self, broker: SimBroker, recorder: Recorder) -> dict[str, int]:
        reader = Reader(broker, "final", self._draw())
        process = recorder.new_process()
        read, ends = {}, {}
        call = recorder.call(process, Op.FINAL)
        for topic in (TOPIC, OUTPUT):
            for index in range(PARTITIONS):
                part = f"{topic}:{index}"
                records, ends[part] = await reader.read(topic, index, self._seed)
                read[part] = tuple(records)
        steps = [Read({part: records for part, records in read.items() if records})]
        recorder.ok(call, steps, ends={part: [end, end] for part, end in ends.items()})
        return ends
