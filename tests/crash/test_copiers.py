"""D55, G96: ten transactional copiers of different clients, while the broker is killed again and again.

The broker is killed at random moments, and after some of these kills it also dies at a named crash
point (`launcher.py`), once at each. ONCELOG_TEST_KILLS says how many random kills there are in each
flush mode (at least one before each point), ONCELOG_TEST_SEED when. A failure names the history,
which is kept. The Java client takes part if its JARs are here (`make peers`): it alone speaks the
second generation of transactions.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from oncelog.check import (
    Op,
    Payload,
    Read,
    Record,
    Recorder,
    Run,
    Verdict,
    Write,
    as_text,
    encode_payload,
    judge,
    open_history,
    value_of,
)
from oncelog.testing.workload.copier import (
    GROUP,
    SOURCE,
    TARGET,
    TARGET_PARTITIONS,
    TRANSACTION_TIMEOUT_MS,
)
from oncelog.testing.workload.recording import RecordingServer
from tests.client import aftermath
from tests.crash.brokers import ROOT, Launcher, SocketLine
from tests.peers.java import KAFKA, command, is_complete
from tests.txn.producer import Producer as Transactional
from tests.txn.world import create_topic

SEED: Final = int(os.environ.get("ONCELOG_TEST_SEED", "55"))
PARTITIONS: Final = 12
#: kafka-python is asked for with ONCELOG_TEST_KAFKA_PYTHON=1: version 3.0 loses a request when its
#: coordinator refuses a connection at the wrong moment, and then waits for ever.
THIRD: Final = "kafka-python" if os.environ.get("ONCELOG_TEST_KAFKA_PYTHON") else "confluent"
CLIENTS: Final = (
    "confluent", "aiokafka", THIRD, "impatient", "confluent",
    "aiokafka", THIRD, "impatient", "aiokafka", "java" if is_complete() else "confluent",
)  # fmt: skip
#: A run in which less was committed has not shown much.
MIN_CONFIRMED: Final = 100
#: Where the broker kills itself, each once; how often it gets there first is drawn.
POINTS: Final = (
    "before-added", "after-added", "before-data", "after-data", "before-offsets", "after-offsets",
    "before-prepare", "after-prepare", "committed-prepare", "decided",
    "before-marker", "after-marker", "before-complete", "after-complete", "before-identity",
    "loading",
)  # fmt: skip
KILLS: Final = max(int(os.environ.get("ONCELOG_TEST_KILLS", "15")), len(POINTS))
#: The first time is waited for: it does not come with every transaction.
RARE: Final = ("loading", "before-identity")
PATIENT: Final = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
}
JAVA_COPIER: Final = Path(__file__).parent / "JavaCopier.java"
START_S: Final = 40.0
DRAIN_S: Final = 60.0


class Feeder(threading.Thread):
    """Writes the input, a little at a time, and never loses or doubles any of it."""

    def __init__(self, recorder: Recorder, bootstrap: str) -> None:
        super().__init__(name="feeder")
        self._recorder = recorder
        self._producer = Producer(
            {**PATIENT, "bootstrap.servers": bootstrap, "enable.idempotence": True}
        )
        self.is_over = threading.Event()
        #: What was confirmed, by partition and in order.
        self.values: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}

    def run(self) -> None:
        process = self._recorder.new_process()
        number = 0
        while not self.is_over.wait(0.015):
            self._send(process, number % PARTITIONS, number)
            number += 1

    def _send(self, process: int, partition: int, number: int) -> None:
        values = [self._recorder.new_value() for _ in range(6)]
        part = f"{SOURCE}:{partition}"
        call = self._recorder.call(process, Op.SEND, [Write(part, value) for value in values])
        offsets: list[int | None] = []

        def told(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for index, value in enumerate(values):
            payload = Payload(
                run=SEED, process=process, txn_number=number, index=index, value=value
            )
            self._producer.produce(
                SOURCE, encode_payload(payload), partition=partition, on_delivery=told
            )
        assert self._producer.flush(60) == 0
        steps = [Write(part, *pair) for pair in zip(values, offsets, strict=True)]
        self._recorder.ok(call, steps)
        self.values[partition] += values


class Reader(threading.Thread):
    """Reads all copies at read_committed while all this goes on."""

    def __init__(self, recorder: Recorder, bootstrap: str) -> None:
        super().__init__(name="reader")
        self._recorder = recorder
        self._address = bootstrap
        self.is_over = threading.Event()
        #: The input values that were found copied, by partition and in order.
        self.values: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}

    @property
    def count(self) -> int:
        return sum(map(len, self.values.values()))

    def run(self) -> None:
        process = self._recorder.new_process()
        with closing(a_reader(self._address)) as consumer:
            parts = dict.fromkeys(parts_of(TARGET, TARGET_PARTITIONS), 0)
            call = self._recorder.call(process, Op.ASSIGN, at=parts)
            consumer.assign([TopicPartition(TARGET, n, 0) for n in range(TARGET_PARTITIONS)])
            self._recorder.ok(call)
            while not self.is_over.is_set():
                call = self._recorder.call(process, Op.POLL)
                messages = consumer.consume(500, timeout=0.2)
                self._recorder.ok(call, [read_of(messages)])
                note_copies(messages, self.values)


def a_reader(bootstrap: str) -> Consumer:
    return Consumer(
        {
            **PATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
    )


def parts_of(topic: str, count: int) -> tuple[str, ...]:
    return tuple(f"{topic}:{index}" for index in range(count))


ALL_PARTS: Final = (*parts_of(SOURCE, PARTITIONS), *parts_of(TARGET, TARGET_PARTITIONS))


def read_of(messages: Sequence[Message]) -> Read:
    found: dict[str, list[Record]] = {}
    for message in messages:
        if message.error() is None:
            value = value_of(message.value() or b"", run=SEED)
            offset = message.offset()
            assert offset is not None
            part = f"{message.topic()}:{message.partition()}"
            found.setdefault(part, []).append(Record(offset, value))
    return Read({part: tuple(records) for part, records in found.items()})


def note_copies(messages: Sequence[Message], values: dict[int, list[int]]) -> None:
    """Add what was copied to the lists of the inputs that it came from."""
    for message in messages:
        if message.error() is None and message.topic() == TARGET:
            key = message.key()
            assert key is not None
            partition, value = key.split()
            values[int(partition)].append(int(value))


# --- the run --------------------------------------------------------------------------------


class World:
    """The broker and everyone who works with it."""

    def __init__(self, launcher: Launcher, directory: Path, flush: str) -> None:
        self._launcher = launcher
        self._data = directory / "data"
        self._settings = {
            "oncelog.flush": flush,
            "group.initial.rebalance.delay.ms": "300",
            "log.segment.bytes": "100000",
        }
        self._port = 0
        self._log = directory / "copiers.log"
        self.copiers: dict[str, subprocess.Popen[bytes]] = {}
        self.start()
        self._port = launcher.port
        line = SocketLine(self._port)
        create_topic(line, SOURCE, PARTITIONS)
        create_topic(line, TARGET, TARGET_PARTITIONS)
        line.close()

    @property
    def bootstrap_servers(self) -> str:
        return self._launcher.bootstrap_servers

    def start(self, crash_at: str | None = None) -> bool:
        return self._launcher.start(self._data, self._settings, crash_at=crash_at, port=self._port)

    def kill(self) -> None:
        self._launcher.kill()

    def has_crashed(self, *, within_s: float) -> bool:
        return self._launcher.is_gone(within_s=within_s)

    def open_an_id(self) -> None:
        """Copiers open theirs only when they must; the broker is to die of this one."""
        line = SocketLine(self._port)
        with closing(line), pytest.raises(ConnectionError):
            Transactional(line, "nobody").ready()

    def start_copiers(self, port: int) -> None:
        with self._log.open("ab") as log:
            for number, client in enumerate(CLIENTS):
                name = f"copier-{number}-{client}"
                words = [name, self.bootstrap_servers, str(port), str(SEED)]
                line = [sys.executable, "-m", "tests.crash.copier", client, *words]
                if client == "java":
                    line = command(KAFKA, str(JAVA_COPIER), [*words, str(TARGET_PARTITIONS)])
                self.copiers[name] = subprocess.Popen(line, cwd=ROOT, stderr=log)

    def check_copiers(self) -> None:
        gone = {name: each.poll() for name, each in self.copiers.items()}
        ended = {name: code for name, code in gone.items() if code is not None}
        assert not ended, f"copiers ended: {ended}, see {self._log}"

    def end_copiers(self) -> None:
        """Each leaves by itself; who does not is a failure, and is not left behind."""
        deadline = time.monotonic() + 30
        codes: dict[str, int | None] = {}
        for name, copier in self.copiers.items():
            try:
                codes[name] = copier.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[name] = None
        self.drop_copiers()
        assert set(codes.values()) == {0}, f"{codes}, see {self._log}"

    def drop_copiers(self) -> None:
        for copier in self.copiers.values():
            if copier.poll() is None:
                copier.kill()
                copier.wait()


@contextmanager
def running(tmp_path: Path, flush: str) -> Iterator[World]:
    with Launcher(tmp_path / "brokers.log") as launcher:
        world = World(launcher, tmp_path, flush)
        try:
            yield world
        finally:
            world.drop_copiers()


def until(what: str, condition: object, within_s: float, world: World) -> None:
    assert callable(condition)
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        world.check_copiers()
        time.sleep(0.05)


def play(world: World, recorder: Recorder, rng: Random) -> tuple[Feeder, Reader]:
    """Load, kills and healing; answers what was written and what was read meanwhile."""
    server = RecordingServer(recorder)
    feeder = Feeder(recorder, world.bootstrap_servers)
    reader = Reader(recorder, world.bootstrap_servers)
    with ExitStack() as stack:
        stack.callback(server.close)
        for thread in (feeder, reader):
            thread.start()
            stack.callback(thread.join)
            stack.callback(thread.is_over.set)
        stack.callback(world.drop_copiers)
        world.start_copiers(server.port)
        until("all copiers work", lambda: len(server.working) == len(CLIENTS), START_S, world)

        faults: list[str | None] = [*POINTS, *([None] * (KILLS - len(POINTS)))]
        rng.shuffle(faults)
        for point in faults:
            fault(world, recorder, rng, point)
            before = sum(server.committed.values())
            until("work goes on", lambda: sum(server.committed.values()) > before, 20, world)  # noqa: B023
        recorder.note(Op.HEAL)

        feeder.is_over.set()
        feeder.join()
        wanted = {index: len(values) for index, values in feeder.values.items()}
        until("everything is copied", lambda: offsets(world) == wanted, DRAIN_S, world)
        server.is_over.set()
        world.end_copiers()
        print(f"{sum(server.committed.values())} committed: {server.committed}")
        deadline = time.monotonic() + 10
        while reader.count < sum(wanted.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
    return feeder, reader


def offsets(world: World) -> dict[int, int]:
    return aftermath.committed(world.bootstrap_servers, GROUP, SOURCE)


def fault(world: World, recorder: Recorder, rng: Random, point: str | None) -> None:
    """Kill the broker, now or at a point that it comes to, and start it again."""
    time.sleep(rng.uniform(0.05, 0.5))  # the moment of the kill is what the test is about
    recorder.note(Op.FAULT, what="kill", target="n1")
    world.kill()
    if point is not None:
        crash_at = f"{point}:{1 if point in RARE else rng.randint(1, 8)}"
        recorder.note(Op.FAULT, what=point, target="n1")
        if world.start(crash_at):
            if point == "before-identity":
                world.open_an_id()
            assert world.has_crashed(within_s=15), f"not reached: {crash_at}"
        recorder.note(Op.FAULT, what=point, target="n1", over=True)
    world.start()
    recorder.note(Op.FAULT, what="kill", target="n1", over=True)


def read_everything(world: World, recorder: Recorder) -> dict[int, list[int]]:
    """The end of the history: what a fresh reader finds, and the offsets of the group."""
    process = recorder.new_process()
    call = recorder.call(process, Op.COMMITTED, group=[GROUP, None, {}])
    found = {f"{SOURCE}:{index}": offset for index, offset in offsets(world).items()}
    recorder.ok(call, group=[GROUP, None, found])
    values: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    places = [
        TopicPartition(topic, int(index), 0) for topic, index in (p.split(":") for p in ALL_PARTS)
    ]
    with closing(a_reader(world.bootstrap_servers)) as consumer:
        ends = {
            (place.topic, place.partition): consumer.get_watermark_offsets(place, timeout=10)[1]
            for place in places
        }
        left = {place for place, end in ends.items() if end}
        consumer.assign(places)
        deadline = time.monotonic() + 20
        while left and time.monotonic() < deadline:
            call = recorder.call(process, Op.FINAL)
            messages = consumer.consume(500, timeout=0.5)
            recorder.ok(call, [read_of(messages)], more=True)
            note_copies(messages, values)
            positions = consumer.position([TopicPartition(*place) for place in left])
            left -= {
                (at.topic, at.partition)
                for at in positions
                if at.offset >= ends[at.topic, at.partition]
            }
        found_ends = {f"{topic}:{index}": [end, end] for (topic, index), end in ends.items()}
        recorder.ok(recorder.call(process, Op.FINAL), ends=found_ends)
    return values


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush", ["sync", "os"])
def test_d54_copies_are_exact_whenever_the_broker_is_killed(flush: str, tmp_path: Path) -> None:
    """D55, K1, K3, K4, K5: P4 to P11 and P16."""
    history = tmp_path / "history.jsonl"
    again = f"ONCELOG_TEST_SEED={SEED} ONCELOG_TEST_KILLS={KILLS}; see {tmp_path}"
    print(again)
    header = Run(
        seed=SEED,
        durability="fsync" if flush == "sync" else "os",
        txn=True,
        parts=ALL_PARTS,
        faults=("kill", *POINTS),
        scale=min(1.0, KILLS / 40),
    )
    with running(tmp_path, flush) as world, Recorder(history, header) as recorder:
        feeder, reader = play(world, recorder, Random(f"{SEED} {flush}"))
        left = aftermath.settled(
            world.bootstrap_servers,
            (SOURCE, TARGET),
            within_s=TRANSACTION_TIMEOUT_MS / 1000 + 2,
        )
        assert left.is_settled, f"{left}\n{again}"
        final = read_everything(world, recorder)

    # How many ends stay unknown is a matter of luck: a kill has to cut off the very reply. So the
    # floors of the checker are not asked for; what the run must have seen is counted here.
    report = judge(open_history(history), with_floors=False)
    print(as_text(report))
    assert report.verdict is Verdict.VALID, f"{as_text(report)}\n{again}"
    assert report.counts["confirmed"] >= MIN_CONFIRMED, f"{as_text(report)}\n{again}"
    assert report.counts["faults"] >= KILLS, f"{as_text(report)}\n{again}"
    assert final == feeder.values, again
    assert reader.values == feeder.values, again
