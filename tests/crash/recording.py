"""One recorder for clients in processes of their own: they ask for each line, and wait for it.

The order of the lines is evidence, so a client goes on only when its line is written. A request is a
JSON object on a line of its own, the answer a number and whether the run is over: `12 0`.
"""

import json
import socket
import threading
from collections.abc import Iterable
from typing import Any

from oncelog.check import Op, Recorder, Write


class RecordingServer:
    """Writes down what the clients of a run say."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_over = threading.Event()
        #: Who has had something to do, by transactional id.
        self.working: set[str] = set()
        #: Confirmed commits, by transactional id.
        self.committed: dict[str, int] = {}
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
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tids: dict[int, str] = {}
        try:
            with connection, connection.makefile("r") as lines:
                for line in lines:
                    number = self._do(json.loads(line), tids)
                    connection.sendall(f"{number} {int(self.is_over.is_set())}\n".encode())
        except ConnectionError:
            pass  # whoever it was has ended

    def _do(self, request: dict[str, Any], tids: dict[int, str]) -> int:
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
                if op is Op.TXN:
                    tids[number] = request["tid"]
                return number
        call = request.pop("call")
        tid = tids.pop(call, None)
        if what == "ok":
            if tid is not None:
                self.committed[tid] = self.committed.get(tid, 0) + 1
            return self._recorder.ok(call, steps, **request)
        if what == "fail":
            return self._recorder.fail(call, steps, **request)
        assert what == "unknown", what
        return self._recorder.unknown(call, steps, **request)


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

    def new_values(self, count: int) -> list[int]:
        """Values that nobody else writes."""
        return [self.ask("value") for _ in range(count)]


def writes(steps: Iterable[tuple[str, int, int | None]]) -> list[list[object]]:
    """Steps of a completed operation."""
    return [["w", *step] for step in steps]
