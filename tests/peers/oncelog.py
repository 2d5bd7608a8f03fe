"""Our own broker as a process of its own, as users run it: for clients, tools and the bench.

with running_oncelog(directory, {"num.partitions": "4"}, flush="os") as oncelog:
    oncelog.bootstrap_servers
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

READY: Final = "oncelog listening on "
STOP_TIMEOUT_S: Final = 20.0


class OncelogFailed(Exception):
    """The broker did not start, or did not stop as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oncelog:
    """A broker that runs."""

    bootstrap_servers: str
    pid: int
    #: When the process was started, on the monotonic clock.
    started_at_s: float
    data: Path

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic, and answer its name."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        client.create_topics([topic])[name].result(10)
        return name


@contextmanager
def running_oncelog(
    directory: Path, settings: Mapping[str, str] | None = None, *, flush: str = "sync"
) -> Iterator[Oncelog]:
    """Start a broker on `directory`/data, and stop it in order.

    It must end with exit code 0, and nothing may have happened that someone would have to act on.
    """
    log_file = directory / "oncelog.log"
    given = [
        word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")
    ]
    line = [sys.executable, "-m", "oncelog", "serve", "--data", str(directory / "data"),
            "--listen", "127.0.0.1:0", "--flush", flush, "--log-level", "warning", *given]  # fmt: skip
    with log_file.open("w") as log:
        started_at_s = time.monotonic()
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None, "it was asked for"
            ready = process.stdout.readline()
            if not ready.startswith(READY):
                raise OncelogFailed(f"the broker said {ready!r}\n{log_file.read_text()}")
            yield Oncelog(
                bootstrap_servers=ready.removeprefix(READY).strip(),
                pid=process.pid,
                started_at_s=started_at_s,
                data=directory / "data",
            )
        finally:
            code = _stop(process)
    logged = log_file.read_text()
    if code != 0 or " ERROR " in logged:
        raise OncelogFailed(f"the broker ended with {code}\n{logged}")


def _stop(process: subprocess.Popen[str]) -> int:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
    if process.stdout is not None:
        process.stdout.close()
    return process.returncode
