"""A broker for tests of bad input: whatever it is sent, others are served and the log is unchanged."""

import asyncio
import contextlib
import hashlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psutil

import oncelog
from oncelog.core.batch import TRANSACTIONAL
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.scenarios.wire import OK, TOPIC, Wire, connect, hang_up, now_ms

MIB = 1 << 20
SETTINGS = {
    "oncelog.half.frame.timeout.ms": "400",
    "oncelog.write.stall.timeout.ms": "400",
    "auto.create.topics.enable": "true",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
ANSWER_S = 10.0
HEALTHY = "healthy"

T = TypeVar("T")


class Victim:
    """A broker in a process of its own, with a topic that must not change."""

    def __init__(self, broker: oncelog.Broker) -> None:
        self.broker = broker
        self.process = psutil.Process(broker.pid)
        self.host, _, port = broker.bootstrap_servers.rpartition(":")
        self.port = int(port)

    def socket(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection((self.host, self.port), timeout=ANSWER_S)

    def rss_bytes(self) -> int:
        """The memory that the broker takes."""
        return int(self.process.memory_info().rss)

    def sockets(self) -> int:
        """How many connections it has."""
        return len(self.process.net_connections("tcp"))

    def digest(self) -> str:
        """A fingerprint of the topic's records and of which directories there are."""
        total = hashlib.sha256()
        for path in sorted((self.broker.data_dir / f"{TOPIC}-0").glob("*.log")):
            total.update(path.read_bytes())
        return total.hexdigest()

    def talk(self, main: Callable[[Wire], Awaitable[T]]) -> T:
        """Do something over a connection of its own."""

        async def run() -> T:
            wire = await connect(self.broker.bootstrap_servers)
            try:
                return await main(wire)
            finally:
                await hang_up(wire)

        return asyncio.run(asyncio.wait_for(run(), 30))

    def check_health(self) -> None:
        """Another client writes, reads back, and commits a transaction (K7)."""
        self.talk(_write_read_and_commit)


async def _write_read_and_commit(wire: Wire) -> None:
    value = b"%d" % now_ms()
    answer = await wire.produce(wire.batch(value=value), topic=HEALTHY)
    assert answer.error_code == OK
    data = await wire.fetch(answer.base_offset, topic=HEALTHY)
    assert value in bytes(data.records or b"")
    request = InitProducerIdRequest(transactional_id=HEALTHY, transaction_timeout_ms=60_000)
    identity = await wire.ask(request, 5)
    assert identity.error_code == OK
    batch = wire.batch(
        sequence=0,
        producer_id=identity.producer_id,
        epoch=identity.producer_epoch,
        attributes=TRANSACTIONAL,
    )
    sent = await wire.produce(batch, topic=HEALTHY, version=12, transactional_id=HEALTHY)
    assert sent.error_code == OK
    end = EndTxnRequest(
        transactional_id=HEALTHY,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=True,
    )
    assert (await wire.ask(end, 5)).error_code == OK


# --- bytes on a socket ------------------------------------------------------------------------


def framed(data: bytes) -> bytes:
    """With its size in front."""
    return struct.pack(">i", len(data)) + data


def header(
    api_key: int, version: int, *, correlation_id: int = 7, client_id: bytes | None = None
) -> bytes:
    """The header of a request, up to where a flexible version has its tags."""
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", api_key, version, correlation_id, size) + (client_id or b"")


def answer_to(victim: Victim, data: bytes) -> bytes:
    """Send bytes and read until the broker closes; a broker that does neither fails the test."""
    with victim.socket() as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(data)
        return read_to_the_end(raw)


def read_to_the_end(raw: socket.socket) -> bytes:
    """All that comes until the broker closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := raw.recv(1 << 16):
            found += data
    return found


def read_frame(raw: socket.socket) -> bytes:
    """One response, without its size."""
    size = struct.unpack(">i", read_exactly(raw, 4))[0]
    return read_exactly(raw, size)


def read_exactly(raw: socket.socket, size: int) -> bytes:
    """So many bytes, and no fewer."""
    data = b""
    while len(data) < size:
        piece = raw.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data
