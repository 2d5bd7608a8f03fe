"""A real broker for a test: in this process or in one of its own, gone without a trace.

    with oncelog.Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The broker runs on a loop in a thread of its own, on a temporary directory and a free port of the
loopback interface. `process=True` runs it as a separate process, which can be stopped and
killed by signals. In a coroutine use `async with`: the broker then runs on the caller's loop.

With `faults=True` clients reach it through a proxy, and its disk and clock can be made to
misbehave: `broker.fault(lose_reply("EndTxn"))`.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from oncelog.runtime.config import BrokerConfig
from oncelog.server.broker import Broker as Server
from oncelog.testing.background import BackgroundLoop
from oncelog.testing.faults import (
    ClockJump,
    ConnectionFault,
    DiskFault,
    Fault,
    Fence,
    ImpossibleFault,
    Kill,
    Pause,
    RequestFault,
    Requests,
    Restart,
)
from oncelog.testing.hardware import Hardware
from oncelog.testing.injection import Injection
from oncelog.testing.process import BrokerProcess, RemoteHardware
from oncelog.testing.proxy import Proxy
from oncelog.testing.takeover import take_over

HOST: Final = "127.0.0.1"
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
        faults: bool = False,
    ) -> None:
        """`settings` are broker settings by their names; `data_dir` is kept if it is given."""
        self._settings = {**TEST_SETTINGS, **(settings or {})}
        self._config = BrokerConfig().with_values(self._settings, origin="Broker").checked()
        self._is_temporary = data_dir is None
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._wants_process = process
        self._proxy = Proxy(port=port) if faults else None
        self._hardware = Hardware() if faults and not process else None
        self._remote_hardware = RemoteHardware() if faults and process else None
        # Clients find the proxy where they look for the broker.
        self._wanted_port = 0 if faults else port
        self._server: Server | None = None
        self._background: BackgroundLoop | None = None
        self._callers_loop: asyncio.AbstractEventLoop | None = None
        self._process: BrokerProcess | None = None
        self._port = 0
        self._injections: list[Injection[Any]] = []

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given."""
        return self._proxy.address if self._proxy is not None else f"{HOST}:{self._port}"

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

    def __exit__(self, *raised: object) -> None:
        self.close()

    def start(self) -> None:
        """Start; when this returns the broker is ready."""
        try:
            self._prepare()
            if self._wants_process:
                self._start_process()
            else:
                self._start_thread()
        except BaseException:
            self._give_up()
            raise

    def stop(self) -> None:
        """Stop in order; the data stays, and `start` goes on with it."""
        if self._process is not None:
            self._end_process(signal.SIGTERM)
        elif self._background is not None:
            self._background.call(self._stop_server(), timeout_s=STOP_TIMEOUT_S)
            self._end_thread()

    def kill(self) -> None:
        """End it without warning, as a crash would; the data stays, and `start` recovers it."""
        if self._process is not None:
            self._end_process(signal.SIGKILL)
        elif self._background is not None and self._hardware is not None:
            self._hardware.crash()
            self._background.call(self._drop_server(), timeout_s=STOP_TIMEOUT_S)
            self._end_thread()
        else:
            raise ImpossibleFault(
                "This broker cannot be killed: start it with process=True, or with faults=True and "
                "`with` (not `async with`)."
            )

    def close(self) -> None:
        """Stop, and remove what was temporary."""
        try:
            self.heal()
            self.stop()
        finally:
            self._clean_up()

    # --- with a coroutine ---------------------------------------------------------------------------

    async def __aenter__(self) -> "Broker":
        if self._wants_process:
            raise RuntimeError("A broker in a process of its own is used with `with`.")
        self._callers_loop = asyncio.get_running_loop()
        try:
            self._prepare()
            await self._start_server()
        except BaseException:
            self._give_up()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        try:
            self.heal()
            await self._stop_server()
        finally:
            self._clean_up()

    # --- faults -------------------------------------------------------------------------------------

    def fault(self, fault: Fault) -> Injection[Any]:
        """Let something go wrong; `oncelog.testing.faults` has what there is.

        What is returned counts how often it happened, and ends it: at the end of a `with` block, by
        `end()`, or with the broker. Where a fault is not possible, `ImpossibleFault` says why.
        """
        injection = self._inject(fault)
        self._injections = [each for each in self._injections if not each.is_over]
        self._injections.append(injection)
        return injection

    def heal(self) -> None:
        """End every fault."""
        while self._injections:
            self._injections.pop().end()

    def _inject(self, fault: Fault) -> Injection[Any]:
        match fault:
            case RequestFault() | ConnectionFault():
                if self._proxy is None:
                    raise self._without_faults(fault)
                return self._proxy.fault(fault)
            case DiskFault() | ClockJump():
                hardware = self._hardware or self._remote_hardware
                if hardware is None:
                    raise self._without_faults(fault)
                return hardware.fault(fault)
            case Pause():
                return self._pause(fault)
            case Kill():
                self.kill()
                self.start()
            case Restart():
                self._restart()
            case Fence():
                self._check_loop()
                take_over((HOST, self._port), fault.transactional_id)
        done = Injection(fault, Requests())
        done.strikes()
        done.end()
        return done

    def _without_faults(self, fault: Fault) -> ImpossibleFault:
        return ImpossibleFault(f"{fault.name} needs a broker with faults: Broker(faults=True).")

    def _restart(self) -> None:
        if self._callers_loop is None:
            self.stop()
            self.start()
            return
        self._check_loop()
        self._on_callers_loop(self._stop_server())
        self._on_callers_loop(self._start_server())

    def _pause(self, fault: Pause) -> Injection[Pause]:
        process = self._process
        if process is None:
            raise ImpossibleFault(
                "Only a broker in a process of its own can stand still: Broker(process=True)."
            )
        injection: Injection[Pause] = Injection(
            fault, Requests(), on_end=lambda: process.send(signal.SIGCONT)
        )
        process.send(signal.SIGSTOP)
        injection.strikes()
        if fault.seconds is not None:
            timer = threading.Timer(fault.seconds, injection.end)
            timer.daemon = True
            timer.start()
        return injection

    def _check_loop(self) -> None:
        """Whoever waits for the broker must not keep it from running."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is self._callers_loop:
            raise ImpossibleFault(
                "The broker runs on this loop: `await asyncio.to_thread(broker.fault, ...)`."
            )

    def _on_callers_loop(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._callers_loop is not None, "the broker runs on it"
        asyncio.run_coroutine_threadsafe(work, self._callers_loop).result(START_TIMEOUT_S)

    # --- the server in this process -----------------------------------------------------------------

    async def _start_server(self) -> None:
        server = Server(
            self._config,
            self.data_dir,
            (HOST, self._wanted_port),
            (HOST, self._proxy.port) if self._proxy is not None else None,
            layer=self._hardware.disk if self._hardware is not None else lambda disk: disk,
            clock=self._hardware.clock if self._hardware is not None else None,
        )
        await server.start()
        self._server = server
        self._listens_on(server.port)

    async def _stop_server(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    async def _drop_server(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.drop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _start_thread(self) -> None:
        self._background = BackgroundLoop("oncelog-broker")
        try:
            self._background.call(self._start_server(), timeout_s=START_TIMEOUT_S)
        except BaseException:
            self._end_thread()
            raise

    def _end_thread(self) -> None:
        if self._background is not None:
            self._background.close()
            self._background = None

    # --- a process ----------------------------------------------------------------------------------

    def _start_process(self) -> None:
        hit = (
            self._remote_hardware.hit if self._remote_hardware is not None else lambda number: None
        )
        process = BrokerProcess(self._command(), hit=hit)
        self._listens_on(process.wait_until_listening())
        self._process = process
        if self._remote_hardware is not None:
            self._remote_hardware.attach(process)

    def _command(self) -> list[str]:
        if self._proxy is not None:
            wanted = {
                "data": str(self.data_dir),
                "port": self._wanted_port,
                "advertise": self._proxy.port,
                "settings": self._settings,
            }
            return [sys.executable, "-m", "oncelog.testing.served", json.dumps(wanted)]
        command = [sys.executable, "-m", "oncelog", "serve", "--data", str(self.data_dir)]
        command += ["--listen", f"{HOST}:{self._wanted_port}"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _end_process(self, number: signal.Signals) -> None:
        assert self._process is not None, "there is a process"
        process, self._process = self._process, None
        if self._remote_hardware is not None:
            self._remote_hardware.detach()
        process.end(number)

    # --- around it ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if self._data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="oncelog-"))
        if self._proxy is not None:
            self._proxy.start()

    def _listens_on(self, port: int) -> None:
        """The port stays the same over restarts, so that clients find the broker again."""
        self._port = self._wanted_port = port
        if self._proxy is not None:
            self._proxy.target = f"{HOST}:{port}"

    def _give_up(self) -> None:
        """A first start that failed leaves nothing; after a later one the data is still there."""
        if self._port == 0:
            self._clean_up()

    def _clean_up(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
        if self._is_temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None
