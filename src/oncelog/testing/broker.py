"""A real broker for a test: in this process or in one of its own, gone without a trace.

    with oncelog.Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The broker runs on a loop in a thread of its own, on a temporary directory and a free port of the
loopback interface. `process=True` runs it as a separate process, which can be killed. In a
coroutine use `async with`: the broker then runs on the caller's loop.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from oncelog.runtime.config import BrokerConfig
from oncelog.server.broker import Broker as Server
from oncelog.server.broker import StartError

#: What a test wants and a server does not: no waiting for further members of a group.
TEST_SETTINGS: Final[Mapping[str, str]] = {"group.initial.rebalance.delay.ms": "0"}
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0


class Broker:
    """A broker for as long as a `with` block lasts."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: Path | str | None = None,
        port: int = 0,
        process: bool = False,
    ) -> None:
        """`settings` are broker settings by their names; `data_dir` is kept if it is given."""
        self._settings = {**TEST_SETTINGS, **(settings or {})}
        self._config = BrokerConfig().with_values(self._settings, origin="Broker").checked()
        self._is_temporary = data_dir is None
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._wanted_port = port
        self._wants_process = process
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given."""
        return f"127.0.0.1:{self._port}"

    @property
    def data_dir(self) -> Path:
        """Where the logs are."""
        assert self._data_dir is not None, "the broker was started"
        return self._data_dir

    @property
    def pid(self) -> int:
        """The process that the broker runs in."""
        return self._process.pid if self._process is not None else os.getpid()

    # --- with a block of plain code -----------------------------------------------------------------

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start; when this returns the broker is ready."""
        self._make_directory()
        if self._wants_process:
            self._start_process()
        else:
            self._start_thread()

    def stop(self) -> None:
        """Stop in order; the data stays, and `start` goes on with it."""
        if self._process is not None:
            self._signal(signal.SIGTERM)
        elif self._thread is not None and self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._stop_server(), self._loop).result(STOP_TIMEOUT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_TIMEOUT_S)
            self._thread = None

    def kill(self) -> None:
        """End the process without warning, as a crash would. Only with `process=True`."""
        if self._process is None:
            raise RuntimeError("only a broker in a process of its own can be killed")
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Stop, and remove what was temporary."""
        try:
            self.stop()
        finally:
            self._remove_directory()

    # --- with a coroutine ---------------------------------------------------------------------------

    async def __aenter__(self) -> "Broker":
        self._make_directory()
        await self._start_server()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._stop_server()
        finally:
            self._remove_directory()

    async def _start_server(self) -> None:
        server = Server(self._config, self.data_dir, ("127.0.0.1", self._wanted_port))
        await server.start()
        self._server = server
        self._port = self._wanted_port = server.port

    async def _stop_server(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    # --- a thread -----------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=self._run_loop, args=(self._loop,), name="oncelog-broker", daemon=True
        )
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start_server(), self._loop)
        try:
            started.result(START_TIMEOUT_S)
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_TIMEOUT_S)
            self._thread = None
            self._remove_directory()
            raise

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    # --- a process ----------------------------------------------------------------------------------

    def _start_process(self) -> None:
        command = [sys.executable, "-m", "oncelog", "serve", "--data", str(self.data_dir)]
        command += ["--listen", f"127.0.0.1:{self._wanted_port}"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None, "it was asked for"
        line = self._process.stdout.readline()
        if not line.startswith("oncelog listening on "):
            _, errors = self._process.communicate(timeout=STOP_TIMEOUT_S)
            self._process = None
            self._remove_directory()
            raise StartError(errors.strip() or "the broker did not start")
        self._port = self._wanted_port = int(line.rpartition(":")[2])
        # Nobody reads its log lines: they must not fill the pipe.
        threading.Thread(target=_drain, args=(self._process,), daemon=True).start()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "there is a process"
        process, self._process = self._process, None
        process.send_signal(number)
        process.wait(STOP_TIMEOUT_S)

    # --- the directory ------------------------------------------------------------------------------

    def _make_directory(self) -> None:
        if self._data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="oncelog-"))

    def _remove_directory(self) -> None:
        if self._is_temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None


def _new_loop() -> asyncio.AbstractEventLoop:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def _drain(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None, "it was asked for"
    for _ in process.stderr:
        pass
    process.stderr.close()
    if process.stdout is not None:
        process.stdout.close()
