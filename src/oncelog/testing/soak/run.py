"""A soak from its first record to its audit.

Copiers in processes of their own move what writers write, in transactions of which some are aborted
on purpose; a topic with retention has a group of its own; a reader is slow. The broker and the
copiers are killed on a schedule that the seed decides. At the end everybody finishes, everything is
read, and the recorded history is judged. The load is bounded: what it takes does not grow with the
speed of the machine.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.check import Op, Recorder, Run
from oncelog.client.admin import create_topic
from oncelog.client.cluster import Cluster
from oncelog.testing.broker import Broker
from oncelog.testing.soak.audit import (
    judged,
    read_and_compare,
    wait_until_copied,
)
from oncelog.testing.soak.copiers import Copiers
from oncelog.testing.soak.process import check_measurable
from oncelog.testing.soak.schedule import Kill, kills
from oncelog.testing.soak.summary import MIB, Summary, as_json
from oncelog.testing.soak.watch import Sample, Watch
from oncelog.testing.workload.copier import (
    SOURCE,
    TARGET,
    TARGET_PARTITIONS,
    TRANSACTION_TIMEOUT_MS,
)
from oncelog.testing.workload.dump import Damaged
from oncelog.testing.workload.load import Client, Load, Member, Reader, Writer
from oncelog.testing.workload.markers import logs_in, note_markers
from oncelog.testing.workload.recording import RecordingServer
from oncelog.testing.workload.rest import come_to_rest

#: A topic whose old records go away, with a plain group that reads it.
SHORT: Final = "short"
SHORT_PARTITIONS: Final = 2
SHORT_CONFIGS: Final = {"retention.bytes": str(1 << 20), "segment.bytes": str(128 << 10)}
PARTITIONS: Final = 6
COPIERS: Final = 4
SETTINGS: Final = {
    "log.segment.bytes": str(4 << 20),
    "log.retention.check.interval.ms": "2000",
    "group.initial.rebalance.delay.ms": "300",
    "oncelog.shard.rewrite.bytes": str(256 << 10),
}
#: Each of the writers sends a few records, and then waits for so long.
WRITER_PAUSE_S: Final = 0.03
SHORT_PAUSE_S: Final = 0.05
SLOW_BATCH: Final = 20
SLOW_PAUSE_S: Final = 0.5
WRITE_TIMEOUT_MS: Final = 60_000
TICK_S: Final = 1.0
START_S: Final = 60.0
COPY_S: Final = 120.0
STABLE_S: Final = 2 * TRANSACTION_TIMEOUT_MS / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for."""

    duration_s: float
    directory: Path
    history: Path
    seed: int = 1
    #: None: nobody is killed.
    kill_every_s: float | None = 20.0
    flush: str = "sync"
    json: Path | None = None


class SoakFailed(Exception):
    """The run could not be carried out."""


def soak(plan: Plan, *, show: Callable[[str], None], say: Callable[[str], None]) -> Summary:
    """Run; `show` gets a line that replaces the last one, `say` one that stays."""
    check_measurable()
    plan.directory.mkdir(parents=True, exist_ok=True)
    data_dir = plan.directory / "data"
    if data_dir.exists():
        raise SoakFailed(f"{data_dir} is there already: name a new directory, or remove it.")
    summary = Summary(seed=plan.seed, flush=plan.flush, seconds=plan.duration_s)
    watch = Watch(data_dir)
    broker = Broker({**SETTINGS, "oncelog.flush": plan.flush}, data_dir=data_dir, process=True)
    with Recorder(plan.history, _header(plan)) as recorder:
        with broker:
            watch.broker_started(0.0)
            asyncio.run(_create_topics(broker.bootstrap_servers))
            stage = _Stage(plan, broker, recorder, watch, summary, show, say)
            stage.play()
            stage.audit()
        # Now that nobody writes to the files any more.
        summary.problems += _problems_of_logs(plan, recorder, data_dir)
    say("judging the history")
    report = judged(plan.history)
    summary.verdict, summary.history_events = report.verdict.value, report.counts["events"]
    summary.problems += [
        f"{finding.name}: {finding.count}, as {finding.examples[0].text}"
        for finding in report.findings
        if finding.fatal_count
    ]
    summary.take(watch)
    if plan.json is not None:
        plan.json.write_text(json.dumps(as_json(summary, watch.samples), indent=1) + "\n")
    return summary


def _problems_of_logs(plan: Plan, recorder: Recorder, data_dir: Path) -> list[str]:
    try:
        note_markers(recorder, logs_in(data_dir, ALL_PARTS), run=plan.seed)
    except Damaged as error:
        return [f"the logs are not as a broker may leave them: {error}"]
    return []


def _header(plan: Plan) -> Run:
    return Run(
        seed=plan.seed,
        durability="fsync" if plan.flush == "sync" else "os",
        mode="subscribe",
        txn=True,
        parts=ALL_PARTS,
        faults=() if plan.kill_every_s is None else ("kill-broker", "kill-client"),
    )


def _parts(topic: str, count: int) -> tuple[str, ...]:
    return tuple(f"{topic}:{index}" for index in range(count))


ALL_PARTS: Final = (
    *_parts(SOURCE, PARTITIONS),
    *_parts(TARGET, TARGET_PARTITIONS),
    *_parts(SHORT, SHORT_PARTITIONS),
)


async def _create_topics(bootstrap: str) -> None:
    async with await Cluster.open(bootstrap) as cluster:
        await create_topic(cluster, SOURCE, partitions=PARTITIONS)
        await create_topic(cluster, TARGET, partitions=TARGET_PARTITIONS)
        await create_topic(cluster, SHORT, partitions=SHORT_PARTITIONS, configs=SHORT_CONFIGS)


class _Stage:
    """Everyone who takes part, and the clock."""

    def __init__(
        self,
        plan: Plan,
        broker: Broker,
        recorder: Recorder,
        watch: Watch,
        summary: Summary,
        show: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._broker = broker
        self._recorder = recorder
        self._watch = watch
        self._summary = summary
        self._show = show
        self._say = say
        self._began_s = time.monotonic()
        self._server = RecordingServer(recorder, on_commit=watch.committed)
        self._written = self._load(SOURCE, PARTITIONS)
        self._copied = self._load(TARGET, TARGET_PARTITIONS)
        self._short = self._load(SHORT, SHORT_PARTITIONS)

    def _load(self, topic: str, partitions: int) -> Load:
        return Load(
            self._recorder,
            self._broker.bootstrap_servers,
            run=self._plan.seed,
            partitions=partitions,
            seed=self._plan.seed,
            topic=topic,
        )

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def play(self) -> None:
        """Load and kills, until the time is over and everything is copied."""
        copiers = Copiers(
            COPIERS,
            bootstrap=self._broker.bootstrap_servers,
            recorder_port=self._server.port,
            seed=self._plan.seed,
            log=self._plan.directory / "copiers.log",
        )
        with ExitStack() as stack:
            stack.callback(self._server.close)
            stack.enter_context(copiers)
            for load in (self._written, self._copied, self._short):
                stack.callback(load.end)
            self._begin()
            self._wait_for_copiers(copiers)
            self._soak(copiers)
            self._recorder.note(Op.HEAL)
            self._say("healing: writers stop, copiers finish")
            self._written.end()
            self._copy_the_rest()
            self._server.is_over.set()
            stuck = {name: code for name, code in copiers.wait().items() if code != 0}
            if stuck:
                self._summary.problems.append(f"copiers did not end in order: {stuck}")
        for load in (self._written, self._copied, self._short):
            self._summary.problems += load.failures
        self._summary.committed = sum(self._server.committed.values())
        self._summary.aborted = self._server.aborted_count
        self._summary.unknown = self._server.unknown_count

    def _begin(self) -> None:
        writers: list[Client] = [
            Writer(self._written, n, timeout_ms=WRITE_TIMEOUT_MS, pause_s=WRITER_PAUSE_S)
            for n in range(2)
        ]
        self._written.begin(*writers)
        self._copied.begin(
            Reader(self._copied, 0),
            Reader(self._copied, 1, batch=SLOW_BATCH, pause_s=SLOW_PAUSE_S),
        )
        self._short.begin(
            Writer(self._short, 0, timeout_ms=WRITE_TIMEOUT_MS, pause_s=SHORT_PAUSE_S),
            Member(self._short, 0),
            Member(self._short, 1),
        )

    def _wait_for_copiers(self, copiers: Copiers) -> None:
        deadline = time.monotonic() + START_S
        while len(self._server.working) < len(copiers.names):
            if time.monotonic() > deadline or copiers.ended():
                raise SoakFailed(
                    f"Not all copiers began within {START_S:g} s; "
                    f"see {self._plan.directory / 'copiers.log'}."
                )
            time.sleep(0.05)
        self._began_s = time.monotonic()
        self._watch.broker_started(0.0)

    def _soak(self, copiers: Copiers) -> None:
        coming = self._kills()
        kill = next(coming, None)
        while (now_s := self._now_s) < self._plan.duration_s:
            if kill is not None and kill.at_s <= now_s:
                self._kill(kill, copiers)
                kill = next(coming, None)
                continue
            self._look(now_s)
            if ended := copiers.ended():
                raise SoakFailed(f"Copiers ended by themselves: {ended}.")
            wake_s = min(now_s + TICK_S, self._plan.duration_s, kill.at_s if kill else now_s + 9)
            time.sleep(max(0.0, wake_s - self._now_s))

    def _kills(self) -> Iterator[Kill]:
        every_s = self._plan.kill_every_s
        if every_s is None:
            return iter(())
        return kills(self._plan.seed, duration_s=self._plan.duration_s, every_s=every_s)

    def _kill(self, kill: Kill, copiers: Copiers) -> None:
        if kill.target == "broker":
            with self._fault("kill-broker", "n1"):
                self._broker.kill()
                time.sleep(kill.away_s)
                self._broker.start()
            self._watch.broker_started(self._now_s)
            self._summary.broker_kills += 1
            return
        name = copiers.names[kill.number % len(copiers.names)]
        with self._fault("kill-client", name):
            copiers.restart(name)
        self._summary.client_kills += 1

    @contextmanager
    def _fault(self, what: str, target: str) -> Iterator[None]:
        self._recorder.note(Op.FAULT, what=what, target=target)
        yield
        self._recorder.note(Op.FAULT, what=what, target=target, over=True)

    def _look(self, now_s: float) -> None:
        sample = self._watch.look(self._broker.pid, now_s)
        if sample is not None:
            self._show(self._line(sample))

    def _line(self, sample: Sample) -> str:
        committed = sum(self._server.committed.values())
        killed = self._summary.broker_kills + self._summary.client_kills
        return (
            f"{sample.at_s:.0f} of {self._plan.duration_s:.0f} s · {committed} transactions · "
            f"{killed} kills · broker {sample.rss_bytes / MIB:.0f} MiB, "
            f"{sample.handle_count} handles · disk {sample.disk_bytes / MIB:.0f} MiB · "
            f"commit {sample.commit_p50_ms or '-'}/{sample.commit_p99_ms or '-'} ms"
        )

    def _copy_the_rest(self) -> None:
        try:
            wait_until_copied(self._written.settings(), PARTITIONS, within_s=COPY_S)
        except TimeoutError as error:
            self._summary.problems.append(str(error))

    def audit(self) -> None:
        """Wait for what is open, see whether everything works, then read everything."""
        self._say("reading everything")
        state = come_to_rest(
            self._recorder,
            self._broker.bootstrap_servers,
            ALL_PARTS,
            run=self._plan.seed,
            within_s=STABLE_S,
        )
        if state.unstable:
            self._summary.problems.append(
                f"transactions are still open after {STABLE_S:g} s: {', '.join(state.unstable)}"
            )
        try:
            copy = read_and_compare(
                self._recorder,
                self._written.settings(),
                ALL_PARTS,
                partitions=PARTITIONS,
                seed=self._plan.seed,
            )
        except TimeoutError as error:
            self._summary.problems.append(str(error))
            return
        self._summary.input_records = copy.input_count
        self._summary.copied_records = copy.output_count
        self._summary.problems += [f"{part} was not copied exactly" for part in copy.wrong_parts]
