"""Brokers from `launcher.py`: killed from outside, or by themselves at a crash point."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from oncelog.client.frames import FrameReader, decode_response, encode_request

ROOT: Final = Path(__file__).parents[2]
WAIT_S: Final = 30.0
LISTENING: Final = "oncelog listening on "
#: Few partitions start faster; what they do is the same.
SETTINGS: Final[Mapping[str, str]] = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class Launcher:
    """Starts one broker at a time."""

    def __init__(self, log: Path) -> None:
        """What brokers log goes to this file."""
        with log.open("a") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.launcher"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._pid: int | None = None
        self.port = 0

    def _read(self) -> None:
        assert self._process.stdout is not None, "it was asked for"
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pid is not None:
            self.kill()
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        assert self._process.stdout is not None, "it was asked for"
        self._process.stdout.close()

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given."""
        return f"127.0.0.1:{self.port}"

    def start(
        self,
        data: Path,
        settings: Mapping[str, str] | None = None,
        *,
        crash_at: str | None = None,
        port: int = 0,
    ) -> bool:
        """Start a broker; says whether it got so far as to listen before it died."""
        assert self._pid is None, "the last broker is gone"
        words = ["serve", "--data", str(data), "--listen", f"127.0.0.1:{port}"]
        words += ["--log-level", "warning"]
        for name, value in {**SETTINGS, **(settings or {})}.items():
            words += ["--set", f"{name}={value}"]
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.write(json.dumps({"words": words, "crash_at": crash_at}) + "\n")
        self._process.stdin.flush()
        while True:
            line = self._lines.get(timeout=WAIT_S)
            if line.startswith("pid "):
                self._pid = int(line[4:])
            elif line.startswith(LISTENING):
                self.port = int(line.rpartition(":")[2])
            else:
                # It is only a crash that was asked for.
                assert line == f"ended {-signal.SIGKILL}", line
                assert crash_at is not None, "nothing was to happen"
                self._pid = None
                return False
            if self._pid is not None and line.startswith(LISTENING):
                return True

    @property
    def is_running(self) -> bool:
        """Whether there is a broker, as far as is known."""
        return self._pid is not None

    def is_gone(self, *, within_s: float = WAIT_S) -> bool:
        """Wait for the crash that was asked for; says whether it came."""
        try:
            line = self._lines.get(timeout=within_s)
        except queue.Empty:
            return False
        assert line == f"ended {-signal.SIGKILL}", line
        self._pid = None
        return True

    def kill(self) -> None:
        """End the broker without warning."""
        assert self._pid is not None, "there is a broker"
        os.kill(self._pid, signal.SIGKILL)
        assert self.is_gone()


class SocketLine:
    """A connection that asks one thing after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameReader()

    def ask(self, message: Any, version: int) -> Any:
        """Send a request and wait for its answer; ConnectionError if the broker dies meanwhile."""
        self._socket.sendall(
            encode_request(message, version=version, correlation_id=1, client_id="crash")
        )
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker hung up")
            for frame in self._frames.feed(data):
                return decode_response(frame, api_key=message.API_KEY, version=version)

    @property
    def now_ms(self) -> int:
        """The time that a producer puts into its records."""
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
