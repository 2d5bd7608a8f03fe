"""One recorder for clients in processes of their own: they ask for each line, and wait for it.

The order of the lines is evidence, so a client goes on only when its line is written. A request is a
JSON object on a line of its own, the answer a number and whether the run is over: `12 0`. What a
client had under way when it was killed is written down for it: a transaction whose commit it never
announced has failed, any other end is unknown.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from oncelog.check import Op, Recorder, Write


@dataclass(slots=True)
class _Open:
    """An operation that a client has under way."""

    op: Op
    tid: str | None
    asked: list[Write]
    #: How it is about to end, and when that was said: before the broker was asked for it.
    ending: dict[str, Any] = field(default_factory=dict)
    ending_at_s: float = 0.0


class RecordingServer:
    """Writes down what the clients of a run say."""

    def __init__(
        self, recorder: Recorder, *, on_commit: Callable[[float], None] = lambda took_s: None
    ) -> None:
        """`on_commit` is told how many seconds each confirmed commit took."""
        self._recorder = recorder
        self._on_commit = on_commit
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_over = threading.Event()
        #: Who has had something to do, by transactional id.
        self.working: set[str] = set()
        #: Confirmed commits, by transactional id.
        self.committed: dict[str, int] = {}
        #: Confirmed aborts that were asked for, and transactions whose end nobody knows.
        self.aborted_count = 0
        self.unknown_count = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Take no more clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads = [each for each in self._threads if each.is_alive()]
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        under_way: dict[int, _Open] = {}
        try:
            with connection, connection.makefile("r") as lines:
                for line in lines:
                    number = self._do(json.loads(line), under_way)
                    connection.sendall(f"{number} {int(self.is_over.is_set())}\n".encode())
        except ConnectionError:
            pass  # whoever it was has ended
        for call, left in under_way.items():
            self._break_off(call, left)

    def _do(self, request: dict[str, Any], under_way: dict[int, _Open]) -> int:
        what = request.pop("do")
        steps = [Write(*step[1:]) for step in request.pop("steps", ())]
        match what:
            case "process":
                return self._recorder.new_process()
            case "value":
                return self._recorder.new_value()
            case "working" | "waiting":
                if what == "working":
                    self.working.add(request["tid"])
                return 0
            case "call":
                process, op = request.pop("p"), Op(request.pop("op"))
                number = self._recorder.call(process, op, steps, **request)
                under_way[number] = _Open(op, request.get("tid"), steps)
                return number
            case "ending":
                opened = under_way[request.pop("call")]
                opened.ending, opened.ending_at_s = request, time.monotonic()
                return 0
        call = request.pop("call")
        self._count(what, under_way.pop(call), request)
        complete = {
            "ok": self._recorder.ok,
            "fail": self._recorder.fail,
            "unknown": self._recorder.unknown,
        }
        return complete[what](call, steps, **request)

    def _count(self, what: str, opened: _Open, fields: dict[str, Any]) -> None:
        if opened.op is not Op.TXN:
            return
        if what == "unknown":
            self.unknown_count += 1
        elif what == "fail":
            self.aborted_count += "err" not in fields
        elif opened.tid is not None:
            self.committed[opened.tid] = self.committed.get(opened.tid, 0) + 1
            if opened.ending:
                self._on_commit(time.monotonic() - opened.ending_at_s)

    def _break_off(self, call: int, left: _Open) -> None:
        fields = {**left.ending, "err": "CLIENT_GONE"}
        if left.op is Op.TXN and left.ending.get("end") != "commit":
            self._recorder.fail(call, left.asked, **fields)
            return
        self.unknown_count += left.op is Op.TXN
        self._recorder.unknown(call, left.asked, **fields)


class RemoteRecorder:
    """The same, in a client's process."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("r")
        self.is_over = False

    def ask(self, what: str, **fields: object) -> int:
        """One line, written down; answers its number."""
        self._socket.sendall((json.dumps({"do": what, **fields}) + "\n").encode())
        number, is_over = self._lines.readline().split()
        self.is_over = is_over == "1"
        return int(number)

    def close(self) -> None:
        """Hang up: what is under way has broken off."""
        self._lines.close()
        self._socket.close()

    def new_values(self, count: int) -> list[int]:
        """Values that nobody else writes."""
        return [self.ask("value") for _ in range(count)]


def writes(steps: Iterable[tuple[str, int, int | None]]) -> list[list[object]]:
    """Steps of a completed operation."""
    return [["w", *step] for step in steps]
