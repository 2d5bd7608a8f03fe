"""The two contenders. Each is a process of its own on loopback, with a directory that goes with it.

At `flush=os` Kafka runs with its defaults; at `flush=sync` it syncs each batch before it answers,
as we do.
"""

import compileall
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import oncelog
from tests.peers.kafka import running_kafka
from tests.peers.oncelog import running_oncelog

#: Topics come into being with their first use, so this is how many partitions they have.
PARTITIONS: Final = 4

OURS: Final = "oncelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that takes requests."""

    name: str
    bootstrap_servers: str
    pid: int
    #: On the monotonic clock.
    started_at_s: float


Start = Callable[[], AbstractContextManager[Server]]


class Contender:
    """One of the two: starts its server, and keeps it for all rows that follow."""

    def __init__(self, name: str, start: Start) -> None:
        self.name = name
        self._start = start
        self._stack = ExitStack()
        self._server: Server | None = None
        self._done: set[str] = set()

    @property
    def server(self) -> Server:
        """The server that stays up until `close`; started when it is first asked for."""
        if self._server is None:
            self._server = self._stack.enter_context(self._start())
        return self._server

    @property
    def is_ours(self) -> bool:
        """Whether this is Oncelog, or a client of ours as a guest."""
        return self.name == OURS

    def guest(self, name: str) -> "Contender":
        """One of that name who is measured on this one's server, and finds there what this one did."""
        guest = Contender(name, lambda: nullcontext(self.server))
        guest._done = self._done
        return guest

    def restart(self) -> Server:
        """A server without a past, in place of the one that there may be."""
        self.close()
        return self.server

    def once(self, name: str, act: Callable[[Server], None]) -> None:
        """Do something with the server that stays up, unless it has been done."""
        if name not in self._done:
            act(self.server)
            self._done.add(name)

    def close(self) -> None:
        """Stop the server, if there is one."""
        self._server = None
        self._done.clear()
        self._stack.close()


def contenders(mode: str) -> tuple[Contender, Contender]:
    """Ours and Kafka's, at the same durability."""
    # As pip does when it installs: a broker that compiles itself takes half as long again to start.
    compileall.compile_dir(Path(oncelog.__file__).parent, quiet=1)
    return (
        Contender(OURS, lambda: _oncelog(mode)),
        Contender("kafka", lambda: _kafka(mode)),
    )


@contextmanager
def _oncelog(mode: str) -> Iterator[Server]:
    settings = {"num.partitions": str(PARTITIONS)}
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name,
        running_oncelog(Path(name), settings, flush=mode) as running,
    ):
        yield Server(
            name="oncelog",
            bootstrap_servers=running.bootstrap_servers,
            pid=running.pid,
            started_at_s=running.started_at_s,
        )


@contextmanager
def _kafka(mode: str) -> Iterator[Server]:
    # Deleted topics leave at once, as they do with us, and not a minute later: rounds write much.
    settings = {"num.partitions": str(PARTITIONS), "log.segment.delete.delay.ms": "0"}
    if mode == "sync":
        settings["log.flush.interval.messages"] = "1"
    with running_kafka(settings) as kafka:
        yield Server(
            name="kafka",
            bootstrap_servers=kafka.bootstrap_servers,
            pid=kafka.pid,
            started_at_s=kafka.started_at_s,
        )


def resident_mb(server: Server) -> float:
    """How much memory the process holds, in MB."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
