"""The whole broker: builds the parts, opens the door, keeps house, and stops in order."""

import asyncio
import base64
import contextlib
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from oncelog.core.errors import BrokerError
from oncelog.core.txn.commands import (
    TransactionFenced,
    TransactionTimedOut,
)
from oncelog.core.types import Now
from oncelog.observe import notes
from oncelog.observe.metrics import Metrics
from oncelog.runtime.clock import Clock, LoopClock
from oncelog.runtime.config import BrokerConfig
from oncelog.runtime.flush import Flusher, OsFlusher, SyncFlusher
from oncelog.runtime.log_directory import LogDirectory
from oncelog.runtime.node import Node
from oncelog.server.connection import Connection
from oncelog.server.handles import raise_limit, share_out
from oncelog.server.lock import DirectoryLock, DirectoryLocked
from oncelog.server.meta_properties import (
    FILE_NAME,
    MetaProperties,
    WrongDirectory,
    decode_properties,
    encode_properties,
)
from oncelog.server.metrics_listener import MetricsListener
from oncelog.server.metrics_page import page
from oncelog.storage.disk import Disk, RealDisk

#: How long requests under way may take once the broker stops.
STOP_GRACE_S: Final = 2.0


class StartError(Exception):
    """The broker cannot start; the sentence says why and nothing was touched."""


class BrokerCore:
    """A broker without a socket: also what a simulation runs, on its own clock and disk."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        *,
        clock: Clock,
        fresh_id: Callable[[], UUID] = uuid4,
        note: Callable[[object], None] | None = None,
        room: int = sys.maxsize,
    ) -> None:
        """Notes go to `note` as they are, or else to the log; there is `room` for so many connections."""
        self.config = config
        self.disk = disk
        flusher: Flusher = SyncFlusher(disk) if config.oncelog_flush == "sync" else OsFlusher(disk)
        self.metrics = Metrics()
        self.logs = LogDirectory(disk, flusher, note=self._take_note)
        self.node = Node(
            config,
            self.logs,
            clock=clock,
            fresh_id=fresh_id,
            note=self._take_note,
            metrics=self.metrics,
        )
        self.connections: dict[Connection, None] = {}
        self._room = room
        self._clock = clock
        self._note = note or self._write_note
        self._keepers: list[asyncio.Task[None]] = []
        self._all_closed = asyncio.Event()
        self.is_open = False

    async def open(self) -> None:
        """Recover everything, and begin to keep house."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._read_identity()
        await self.node.open()
        self.is_open = True
        await self.node.rewrite_shards()
        self._take_note(
            notes.Opened(
                partitions=sum(1 for _ in self.logs),
                clean=self.logs.was_clean,
                took_ms=int((loop.time() - began) * 1000),
            )
        )
        config = self.config
        self._keep(config.log_flush_offset_checkpoint_interval_ms, self._checkpoint)
        self._keep(config.log_retention_check_interval_ms, self._apply_retention)
        self._keep(config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._keep(
            config.transaction_remove_expired_transaction_cleanup_interval_ms, self._expire_ids
        )
        self._keep(10_000, self._close_idle)

    async def _read_identity(self) -> None:
        data = self.disk.read_file(FILE_NAME)
        if data is None:
            drawn = base64.urlsafe_b64encode(self.node.fresh_id().bytes).rstrip(b"=").decode()
            properties = MetaProperties(self.config.cluster_id or drawn, self.config.node_id)
            await self.disk.write_file(FILE_NAME, encode_properties(properties))
        else:
            properties = decode_properties(data)
            if properties.node_id != self.config.node_id:
                raise WrongDirectory(
                    f"it belongs to node {properties.node_id}, this is node {self.config.node_id}"
                )
        self.node.cluster_id = properties.cluster_id

    # --- notes --------------------------------------------------------------------------------------

    def _take_note(self, note: object) -> None:
        self.metrics.count(note)
        self._note(note)

    def _write_note(self, note: object) -> None:
        """Whose transaction it is says the shell: the core does not know about clients."""
        more: dict[str, object] = {}
        if isinstance(note, TransactionTimedOut | TransactionFenced):
            heard = self.node.transactions.last_heard(note.transactional_id)
            if heard is not None:
                more = {"client_id": heard.client_id, "client_host": heard.client_host}
        notes.write_note(note, more)

    # --- keeping house ------------------------------------------------------------------------------

    def _keep(self, every_ms: int, chore: Callable[[Now], Coroutine[Any, Any, None]]) -> None:
        self._keepers.append(asyncio.get_running_loop().create_task(self._repeat(every_ms, chore)))

    async def _repeat(
        self, every_ms: int, chore: Callable[[Now], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            try:
                await chore(self._clock.now())
            except (OSError, BrokerError) as error:
                self._take_note(
                    notes.ChoreFailed(chore=chore.__name__.strip("_"), error=str(error))
                )

    async def _checkpoint(self, now: Now) -> None:
        await self.logs.checkpoint()

    async def _apply_retention(self, now: Now) -> None:
        await self.logs.apply_retention(now)
        await self.node.rewrite_shards()

    async def _expire_producers(self, now: Now) -> None:
        self.logs.expire_producers(now, self.node.config.producer_id_expiration_ms)

    async def _expire_ids(self, now: Now) -> None:
        await self.node.transactions.expire_ids()

    async def _close_idle(self, now: Now) -> None:
        idle_ms = self.node.config.connections_max_idle_ms
        if idle_ms < 0:
            return
        deadline = asyncio.get_running_loop().time() - idle_ms / 1000
        for connection in list(self.connections):
            if connection.active_at < deadline:
                connection.abort()

    # --- connections --------------------------------------------------------------------------------

    def new_connection(self) -> Connection:
        """The protocol of a client that has just arrived."""
        return Connection(self.node, opened=self._admit, closed=self._forget)

    def _admit(self, connection: Connection) -> bool:
        if len(self.connections) >= min(self.node.config.max_connections, self._room):
            self.metrics.connections_refused += 1
            return False
        self.metrics.connections_accepted += 1
        connection.number = self.metrics.connections_accepted
        self.connections[connection] = None
        self._all_closed.clear()
        return True

    def _forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_closed.set()

    async def close(self) -> None:
        """Finish what is under way, then close everything in order."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), STOP_GRACE_S)
        for connection in list(self.connections):
            connection.abort()
        await self.node.close()


class Broker:
    """A broker on a data directory and a port."""

    def __init__(
        self,
        config: BrokerConfig,
        data_dir: Path,
        listen: tuple[str, int],
        advertise: tuple[str, int] | None = None,
        *,
        metrics: tuple[str, int] | None = None,
        layer: Callable[[Disk], Disk] = lambda disk: disk,
        clock: Clock | None = None,
    ) -> None:
        """`metrics` is where those listen who watch; nobody does without it.

        `layer` may stand between us and the disk, and `clock` in place of the machine's: a test has
        faults there.
        """
        self._config = config
        self._data_dir = data_dir
        self._listen = listen
        self._advertise = advertise
        self._metrics = metrics
        self._layer = layer
        self._clock = clock or LoopClock()
        self._lock = DirectoryLock(data_dir)
        self._server: asyncio.Server | None = None
        self._disk: RealDisk | None = None
        self._core: BrokerCore | None = None
        self._watched: MetricsListener | None = None
        self.port = 0

    async def start(self) -> None:
        """Recover, then listen: when this returns the broker is ready."""
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except (OSError, DirectoryLocked) as error:
            raise StartError(f"cannot use the data directory: {error}") from error
        try:
            await self._open()
        except BaseException:
            await self._abandon()
            raise

    async def _open(self) -> None:
        handles = share_out(raise_limit())
        self._disk = RealDisk(self._data_dir, max_open_files=handles.files)
        self._core = BrokerCore(
            self._config,
            self._layer(self._disk),
            clock=self._clock,
            room=handles.connections,
        )
        try:
            await self._core.open()
        except WrongDirectory as error:
            raise StartError(f"{self._data_dir} is not for this broker: {error}") from error
        except (OSError, BrokerError) as error:
            raise StartError(f"cannot open {self._data_dir}: {error}") from error
        host, port = self._listen
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._core.new_connection, host, port, backlog=1024
            )
        except OSError as error:
            raise StartError(f"cannot listen on {host}:{port}: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._core.node.advertised = self._advertise or (_reachable(host), self.port)
        if self._metrics is not None:
            await self._watch(self._core, *self._metrics)

    async def _watch(self, core: BrokerCore, host: str, port: int) -> None:
        self._watched = MetricsListener(lambda: page(core.node, len(core.connections)))
        try:
            await self._watched.start(host, port)
        except OSError as error:
            raise StartError(f"cannot serve metrics on {host}:{port}: {error}") from error

    @property
    def metrics_port(self) -> int:
        """Where metrics are served; 0 where they are not."""
        return self._watched.port if self._watched is not None else 0

    async def _abandon(self) -> None:
        """A start that failed: what was not opened is not closed either, and stays untouched."""
        if self._server is not None:
            self._server.close()
        if self._core is not None and self._core.is_open:
            await self._core.close()
        self._release()

    async def stop(self) -> None:
        """Finish what is under way, sync, and leave the mark of an orderly stop."""
        if self._watched is not None:
            await self._watched.stop()
        if self._server is not None:
            self._server.close()
        if self._core is not None:
            await self._core.close()
        self._release()

    async def drop(self) -> None:
        """Let go of everything at once: nothing is finished, synced or marked as stopped in order."""
        if self._watched is not None:
            await self._watched.stop()
        if self._server is not None:
            self._server.close()
        if self._core is not None:
            for connection in list(self._core.connections):
                connection.abort()
        self._release()

    def _release(self) -> None:
        if self._disk is not None:
            self._disk.shut_down()
        self._lock.release()


def _reachable(host: str) -> str:
    """What to tell clients when the broker listens on every address."""
    return "localhost" if host in ("0.0.0.0", "::", "") else host
