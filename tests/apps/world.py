"""A broker, input for a copying service, services that come and go, and an audit at the end."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import oncelog
from oncelog.check import (
    Op,
    Payload,
    Recorder,
    Report,
    Run,
    Verdict,
    Write,
    as_text,
    encode_payload,
    judge,
    open_history,
)
from oncelog.testing.workload.final import read_everything
from oncelog.testing.workload.recording import RecordingServer
from tests.apps.conftest import until
from tests.apps.service import GROUP, PARTITIONS, RUN, SOURCE, TARGET
from tests.client import aftermath

ROOT: Final = Path(__file__).parents[2]
#: A broker lets members have sessions as short as these tests need them.
SHORT_SESSIONS: Final = {"group.min.session.timeout.ms": "500"}


class World:
    """Topics of one run, and everyone who works on them."""

    def __init__(self, servers: str, recorder: Recorder, directory: Path) -> None:
        self.servers = servers
        self.recorder = recorder
        self.server = RecordingServer(recorder)
        self.inputs: Counter[bytes] = Counter()
        self.copies: Counter[bytes] = Counter()
        self._settings: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self._producer = Producer({**self._settings, "enable.idempotence": True})
        self._log = directory / "services.log"
        self._services: list[subprocess.Popen[bytes]] = []
        client = AdminClient(self._settings)
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in (SOURCE, TARGET)]
        for made in client.create_topics(topics).values():
            made.result(20)

    def feed(self, count: int) -> None:
        """Write so much input, and write that down."""
        process = self.recorder.new_process()
        for number in range(count):
            value, partition = self.recorder.new_value(), number % PARTITIONS
            part = f"{SOURCE}:{partition}"
            call = self.recorder.call(process, Op.SEND, [Write(part, value)])
            offsets: list[int | None] = []

            def told(error: KafkaError | None, message: Message) -> None:
                assert error is None, error
                offsets.append(message.offset())  # noqa: B023  # it is flushed before the next

            payload = Payload(run=RUN, process=process, txn_number=0, index=number, value=value)
            self._producer.produce(
                SOURCE, encode_payload(payload), partition=partition, on_delivery=told
            )
            assert self._producer.flush(60) == 0
            self.recorder.ok(call, [Write(part, value, offsets[0])])
            self.inputs[b"%d %d" % (partition, value)] += 1

    def start(
        self,
        instance: str,
        *,
        at: str = "-",
        sends: signal.Signals = signal.SIGKILL,
        delivery: str = "exactly_once",
        timeout_s: int = 10,
    ) -> subprocess.Popen[bytes]:
        """Start a service, which sends itself a signal at a step."""
        words = [self.servers, instance, str(self.server.port), delivery]
        words += [at, sends.name, str(timeout_s)]
        with self._log.open("ab") as log:
            service = subprocess.Popen(
                [sys.executable, "-m", "tests.apps.service", *words],
                cwd=ROOT,
                stderr=log,
            )
        self._services.append(service)
        return service

    def until_fenced(self, service: subprocess.Popen[bytes]) -> None:
        """Give everybody work until a service finds out that it was replaced, and stops."""

        def has_stopped() -> bool:
            self.feed(6)
            return service.poll() is not None

        until("the older one has stopped", has_stopped)
        self._services.remove(service)
        assert service.returncode == 1
        assert "oncelog.apps.errors.Fenced: " in self._log.read_text()

    def committed(self) -> int:
        """How far the group has come, in records."""
        return sum(aftermath.committed(self.servers, GROUP, SOURCE).values())

    def until_copied(self) -> None:
        """Wait until the group is at the end of its input."""
        wanted = sum(self.inputs.values())
        until("everything is consumed", lambda: self.committed() == wanted)

    def end(self) -> None:
        """Let everybody leave in order."""
        for service in self._services:
            if service.poll() is None:
                service.terminate()
        for service in self._services:
            assert service.wait(30) in (0, -9, -15), self._log.read_text()
        self.server.close()

    def finish(self) -> None:
        """Wait until all is copied, let everybody leave, and read what there is."""
        self.until_copied()
        self.end()
        self.read()

    def drop(self) -> None:
        """Leave nobody behind."""
        for service in self._services:
            if service.poll() is None:
                service.kill()
            service.wait()

    def read(self) -> None:
        """The end of the history: what a fresh reader finds."""
        self.recorder.note(Op.HEAL)
        left = aftermath.settled(self.servers, (SOURCE, TARGET), within_s=15, prefix="copy-")
        assert left.is_settled, left
        call = self.recorder.call(
            self.recorder.new_process(), Op.COMMITTED, group=[GROUP, None, {}]
        )
        found = aftermath.committed(self.servers, GROUP, SOURCE)
        at = {f"{SOURCE}:{index}": offset for index, offset in found.items()}
        self.recorder.ok(call, group=[GROUP, None, at])
        parts = [f"{topic}:{n}" for topic in (SOURCE, TARGET) for n in range(PARTITIONS)]

        def seen(message: Message) -> None:
            if message.topic() == TARGET:
                self.copies[message.key() or b""] += 1

        read_everything(self.recorder, self._settings, parts, run=RUN, within_s=20, seen=seen)


@contextmanager
def world(servers: str, directory: Path) -> Iterator[World]:
    """A run whose history is judged by `judged`."""
    history = directory / "history.jsonl"
    with Recorder(history, Run(seed=RUN, txn=True)) as recorder:
        made = World(servers, recorder, directory)
        try:
            yield made
        finally:
            made.drop()


@contextmanager
def own_world(directory: Path) -> Iterator[World]:
    """The same, on a broker of its own."""
    with (
        oncelog.Broker(SHORT_SESSIONS, process=True) as broker,
        world(broker.bootstrap_servers, directory) as made,
    ):
        yield made


def judged(directory: Path) -> Report:
    """What `oncelog check` says of the run; anything but valid is a failure."""
    # How many ends stay unknown is a matter of where services die: floors are counted by the tests.
    report = judge(open_history(directory / "history.jsonl"), with_floors=False)
    assert report.verdict is Verdict.VALID, as_text(report)
    return report
