"""The job's process, as the demo sees it: started, listened to, stopped or killed."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LOOK_S: Final = 0.05
#: Nothing in the demo takes as long, on any machine.
_PATIENCE_S: Final = 120.0
_LINES_OF_LOG: Final = 15


class DemoFailed(Exception):
    """The show cannot go on; the text says why."""


class Driver:
    """One life of the Spark driver."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        """Listens at once."""
        self.is_ready = False
        self.step = "starting Spark"
        #: What the pipeline committed in this life.
        self.batches = 0
        self.rows = 0
        self.retries = 0
        #: How much is left to read, and how often that was said.
        self.lag: int | None = None
        self.lag_reports = 0
        self._process = process
        self._log = log
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        servers: str,
        *,
        delivery: str,
        directory: Path,
        batch_offsets: int,
        is_verbose: bool = False,
    ) -> "Driver":
        """Start the job, in a process group with its JVM; `is_verbose` lets Spark speak."""
        log = directory / "spark.log"
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "oncelog.demo.job"),
                *("--servers", servers, "--delivery", delivery),
                *("--directory", str(directory), "--batch-offsets", str(batch_offsets)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if is_verbose else file,
                start_new_session=True,
            )
        return cls(process, log)

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for something while the job runs."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not is_so():
                    if self._process.returncode is not None:
                        raise DemoFailed(
                            f"The Spark job ended while the demo waited for {what}:\n{self._tail()}"
                        )
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise DemoFailed(f"The demo waited in vain for {what}:\n{self._tail()}") from None

    async def stop(self) -> None:
        """Let it finish its batch and what it has started."""
        self._process.send_signal(signal.SIGTERM)
        await self.until(lambda: self._process.returncode is not None, "the Spark job to end")
        if self._process.returncode:
            raise DemoFailed(f"The Spark job failed:\n{self._tail()}")
        await self._listening

    async def kill(self) -> None:
        """SIGKILL for the driver and its JVM; the workers find nobody left and go."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        assert self._process.stdout is not None, "it was asked for"
        async for line in self._process.stdout:
            told = json.loads(line)
            match told["kind"]:
                case "ready":
                    self.is_ready = True
                case "step":
                    self._note_step(told["step"], told["rows"])
                case "batch":
                    self.lag = told["lag"]
                    self.lag_reports += 1

    def _note_step(self, step: str, rows: int) -> None:
        self.step = step
        if step == "committed":
            self.batches += 1
            self.rows += rows
        elif step == "retried":
            self.retries += 1

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LINES_OF_LOG:])
