"""A TCP proxy that knows Kafka's frames, in front of any broker: what a bad network does, on demand.

    with Proxy("127.0.0.1:9092") as proxy:
        proxy.fault(lose_reply("EndTxn"))

Clients must be told to come this way: the broker advertises the proxy's address. Each request is
known by its header and each reply by the request that it answers, so that a fault can be for one
API, one client, or the n-th request. The proxy does not look into TLS.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from oncelog.client.addresses import Address, parse_address
from oncelog.testing.background import BackgroundLoop
from oncelog.testing.faults import ConnectionFault, NetworkFault, Reach, RequestFault, Requests
from oncelog.testing.injection import Injection
from oncelog.testing.line import Active, Line
from oncelog.wire.frame import RequestHeader

HOST: Final = "127.0.0.1"
CALL_TIMEOUT_S: Final = 10.0


class Proxy:
    """Listens on loopback and passes everything on to a broker, but for the faults in force."""

    def __init__(self, target: str | None = None, *, port: int = 0) -> None:
        """`target` is the broker's address, if it is known already; port 0 takes a free one."""
        self._target = None if target is None else parse_address(target)
        self._wanted_port = port
        self._background: BackgroundLoop | None = None
        self._server: asyncio.Server | None = None
        self._active: list[Active] = []
        self._lines: dict[Line, asyncio.Task[None]] = {}
        self._flow = asyncio.Event()
        self.port = 0

    @property
    def address(self) -> str:
        """What clients are given, and what the broker advertises."""
        return f"{HOST}:{self.port}"

    @property
    def target(self) -> Address | None:
        """Where the broker is; connections are closed as they come while nobody knows."""
        return self._target

    @target.setter
    def target(self, address: str | None) -> None:
        self._target = None if address is None else parse_address(address)

    # --- start and stop -----------------------------------------------------------------------------

    def __enter__(self) -> "Proxy":
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def start(self) -> None:
        """Listen, if it does not already; the port is known when this returns."""
        if self._background is not None:
            return
        self._background = BackgroundLoop("oncelog-proxy")
        try:
            self._call(self._listen())
        except BaseException:
            self._background.close()
            self._background = None
            raise

    def close(self) -> None:
        """End every fault and every connection, and stop listening."""
        if self._background is None:
            return
        self.heal()
        self._call(self._shut())
        self._background.close()
        self._background = None

    # --- faults -------------------------------------------------------------------------------------

    def fault(self, fault: NetworkFault) -> Injection[NetworkFault]:
        """Put a fault into force; it is so when this returns."""
        if isinstance(fault, RequestFault):
            requests = fault.requests
        else:
            requests = Requests(times=None, seed=fault.seed)
        injection: Injection[NetworkFault] = Injection(
            fault, requests, on_end=lambda: self._call(self._remove(injection))
        )
        self._call(self._add(injection))
        return injection

    def heal(self) -> None:
        """End every fault."""
        for active in list(self._active):
            active.injection.end()

    def cut(self) -> None:
        """Reset every connection, now."""
        self._call(self._cut())

    # --- for the lines --------------------------------------------------------------------------------

    @property
    def flow(self) -> asyncio.Event:
        """Set while bytes pass at all."""
        return self._flow

    def struck_by(self, request: RequestHeader) -> list[Active]:
        """The faults that happen to this request, counted."""
        return [
            active
            for active in self._active
            if isinstance(active.injection.fault, RequestFault)
            and _is_for(active.injection.fault.requests, request)
            and active.injection.strikes()
        ]

    # --- on the loop ----------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        if self._background is None:
            work.close()
            raise RuntimeError("The proxy does not run: use it in a `with` block, or start it.")
        self._background.call(work, timeout_s=CALL_TIMEOUT_S)

    async def _listen(self) -> None:
        self._flow.set()
        self._server = await asyncio.start_server(self._accept, HOST, self._wanted_port)
        self.port = self._wanted_port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        assert self._server is not None, "it listens"
        self._server.close()
        await self._cut()
        await asyncio.gather(*self._lines.values(), return_exceptions=True)

    async def _cut(self) -> None:
        for line in self._lines:
            line.reset()

    async def _add(self, injection: Injection[NetworkFault]) -> None:
        active = Active(injection)
        self._active.append(active)
        if isinstance(injection.fault, ConnectionFault):
            if injection.fault.reach is Reach.SILENT:
                self._flow.clear()
            for line in self._lines:
                self._strike(active, injection.fault, line)

    async def _remove(self, injection: Injection[NetworkFault]) -> None:
        active = next(each for each in self._active if each.injection is injection)
        self._active.remove(active)
        active.over.set()
        for line in self._lines:
            if line.silenced_by is active:
                line.reset()  # A client that still waits for its reply may try again now.
        if not any(_is_silent(each) for each in self._active):
            self._flow.set()

    def _strike(self, active: Active, fault: ConnectionFault, line: Line) -> None:
        """Let a fault of connections happen to one of them."""
        if not active.injection.strikes():
            return
        match fault.reach:
            case Reach.REFUSED:
                line.reset()
            case Reach.SHORT:
                life_s = active.injection.draw(fault.seconds)
                asyncio.get_running_loop().call_later(life_s, self._expire, active, line)
            case Reach.SILENT:
                pass  # nothing flows, here and elsewhere

    def _expire(self, active: Active, line: Line) -> None:
        if active in self._active:
            line.reset()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        line = Line(self, reader, writer)
        self._lines[line] = task
        for active in list(self._active):
            if isinstance(active.injection.fault, ConnectionFault):
                self._strike(active, active.injection.fault, line)
        try:
            await line.serve(self._target)
        finally:
            del self._lines[line]


def _is_for(wanted: Requests, request: RequestHeader) -> bool:
    return wanted.api_key in (None, request.api_key) and wanted.client_id in (
        None,
        request.client_id,
    )


def _is_silent(active: Active) -> bool:
    fault = active.injection.fault
    return isinstance(fault, ConnectionFault) and fault.reach is Reach.SILENT
