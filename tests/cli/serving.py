"""`oncelog serve` and the other commands as processes of their own."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ONCELOG = (sys.executable, "-m", "oncelog.cli.main")
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Serving:
    """A broker that runs."""

    process: subprocess.Popen[str]
    ready_line: str

    @property
    def bootstrap(self) -> str:
        return self.ready_line.rpartition(" ")[2]

    def oncelog(self, *words: str, given: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command against this broker to its end."""
        content = given.encode() if isinstance(given, str) else given
        return subprocess.run(
            [*ONCELOG, *words], input=content, capture_output=True, timeout=60, env=self.env
        )

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "ONCELOG_BOOTSTRAP": self.bootstrap}


@contextlib.contextmanager
def serving(data: Path, *words: str) -> Iterator[Serving]:
    """Start a broker on a free port, wait until it says that it is ready, and stop it again."""
    command = [*ONCELOG, "serve", "--data", str(data), "--listen", "127.0.0.1:0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A broker that neither starts nor ends must not hold up the suite.
    watchdog = threading.Timer(READY_TIMEOUT_S, process.kill)
    watchdog.start()
    assert process.stdout is not None
    ready_line = process.stdout.readline().rstrip("\n")
    watchdog.cancel()
    try:
        assert ready_line, process.communicate(timeout=STOP_TIMEOUT_S)[1]
        yield Serving(process, ready_line)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        finally:
            process.kill()
