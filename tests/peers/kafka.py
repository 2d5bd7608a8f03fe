"""Apache Kafka 4.3 beside us: one KRaft node on loopback, for comparisons and for the bench.

    with running_kafka({"log.flush.interval.messages": "1"}) as kafka:
        kafka.bootstrap_servers

Its heap and collector are those of Kafka's own start script, so that a measurement is fair.
"""

import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.wire.codec import decode, encode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.peers.java import KAFKA, command, run

HOST: Final = "127.0.0.1"
CLUSTER_ID: Final = "b25jZWxvZy1wZWVyLTAwMQ"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0

OPTIONS: Final = (
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class KafkaFailed(Exception):
    """Kafka ended, or did not get ready in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A broker that runs."""

    port: int
    pid: int
    directory: Path
    #: When the process was started, on the monotonic clock; formatting comes before.
    started_at_s: float
    #: The ports of the listeners that were asked for, by name.
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    def address(self, listener: str) -> str:
        """The address of a listener that was asked for."""
        return f"{HOST}:{self.ports[listener]}"

    @property
    def data(self) -> Path:
        """Where its topics lie."""
        return self.directory / "data"


@contextmanager
def running_kafka(
    settings: Mapping[str, str] | None = None,
    *,
    listeners: Mapping[str, str] | None = None,
    format_arguments: Sequence[str] = (),
) -> Iterator[Kafka]:
    """Format a directory, start a node on it, and stop it again; nothing is left behind.

    `listeners` are more of them beside the plain one: their names and security protocols.
    """
    with tempfile.TemporaryDirectory(prefix="oncelog-kafka-") as name:
        directory = Path(name)
        more = listeners or {}
        port, controller, *others = free_ports(2 + len(more))
        ports = dict(zip(more, others, strict=True))
        properties = directory / "server.properties"
        lines = defaults(directory, port, controller)
        for listener, its_port in ports.items():
            lines["listeners"] += f",{listener}://{HOST}:{its_port}"
            lines["advertised.listeners"] += f",{listener}://{HOST}:{its_port}"
            lines["listener.security.protocol.map"] += f",{listener}:{more[listener]}"
        lines |= settings or {}
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        format_ = ("format", "--config", str(properties), "--cluster-id", CLUSTER_ID)
        run(KAFKA, "kafka.tools.StorageTool", *format_, *format_arguments)
        with open(directory / "kafka.log", "w+") as log:
            line = command(KAFKA, "kafka.Kafka", [str(properties)], options=OPTIONS)
            started_at_s = time.monotonic()
            process = subprocess.Popen(line, stdout=log, stderr=log, cwd=directory)
            try:
                _wait_until_ready(process, port, directory / "kafka.log")
                yield Kafka(
                    port=port,
                    pid=process.pid,
                    directory=directory,
                    started_at_s=started_at_s,
                    ports=ports,
                )
            finally:
                _stop(process)


def defaults(directory: Path, port: int, controller: int) -> dict[str, str]:
    """What one node needs; everything else is Kafka's own default."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Tests write records of any age: retention shall not begin while they run.
        "log.initial.task.delay.ms": "86400000",
    }


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, each another."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def api_versions(port: int, *, timeout_s: float = 10.0) -> ApiVersionsResponse:
    """Ask a broker what it speaks, with our own codec over a plain socket."""
    request = ApiVersionsRequest(client_software_name="oncelog", client_software_version="0")
    # A flexible request header: API 18 in version 3, correlation id 7, no client id, no tags.
    frame = struct.pack(">hhih", 18, 3, 7, -1) + b"\0" + encode(request, 3)
    with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", _exactly(stream.read(4), 4))
            reply = _exactly(stream.read(size), size)
    # KIP-511: the header of this one response has no tags, whatever the version.
    assert reply[:4] == struct.pack(">i", 7), f"reply to another request: {reply[:4]!r}"
    return decode(ApiVersionsResponse, 3, reply, 4)


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ConnectionError(f"the connection ended after {len(data)} of {size} bytes")
    return data


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    # A KRaft broker opens its port when it has been let into the cluster, not before.
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise KafkaFailed(f"Kafka ended with {process.returncode}\n{log.read_text()}")
        try:
            api_versions(port, timeout_s=2.0)
            return
        except OSError:
            time.sleep(0.02)
    raise KafkaFailed(f"Kafka was not ready after {START_TIMEOUT_S} s\n{log.read_text()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
