"""The copiers of a soak: processes that are killed and started again under the same name."""

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final

#: Short, so that those who live go on soon without one that was killed.
SESSION_MS: Final = 6_000
END_S: Final = 30.0


class Copiers:
    """A few copiers, named by their transactional ids; every other one is impatient."""

    def __init__(
        self, count: int, *, bootstrap: str, recorder_port: int, seed: int, log: Path
    ) -> None:
        self._words = [bootstrap, str(recorder_port), str(seed), str(SESSION_MS)]
        self._log = log
        self.names = [
            f"copier-{number}-{'impatient' if number % 2 else 'patient'}" for number in range(count)
        ]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Copiers":
        for name in self.names:
            self._start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, name: str) -> None:
        module = "oncelog.testing.workload.confluent"
        with self._log.open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, name.rpartition("-")[2], name, *self._words],
                stderr=log,
            )

    def restart(self, name: str) -> None:
        """Kill one without warning, and let its successor begin."""
        process = self._processes[name]
        process.kill()
        process.wait()
        self._start(name)

    def ended(self) -> dict[str, int]:
        """Those that ended by themselves, which none should, with their exit codes."""
        codes = {name: process.poll() for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def wait(self) -> dict[str, int | None]:
        """Let each leave in order, now that the run is over; answers the codes, None for the stuck."""
        deadline = time.monotonic() + END_S
        codes: dict[str, int | None] = {}
        for name, process in self._processes.items():
            try:
                codes[name] = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[name] = None
        return codes
