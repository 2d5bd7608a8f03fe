"""A broker in a process of its own, as its parent sees it: signals, and faults of its machine."""

import itertools
import json
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from oncelog.server.broker import StartError
from oncelog.testing.faults import ClockJump, DiskFault, MachineFault
from oncelog.testing.hardware import requests_of
from oncelog.testing.injection import Injection
from oncelog.testing.served import ANSWER, HIT, LISTENING, words_of

START_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 10.0
#: How many of its last log lines are kept, for the sentence that says why it did not start.
LOG_LINES: Final = 50


class BrokerProcess:
    """One run of a broker's process."""

    def __init__(self, command: Sequence[str], *, hit: Callable[[int], None]) -> None:
        """`hit` is told the number of a fault each time that it happens."""
        self._hit = hit
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._threads = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def wait_until_listening(self) -> int:
        """The port; raises `StartError` with what the broker said if it did not start."""
        try:
            line = self._answers.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            line = ""
        if not line.startswith(LISTENING):
            self.end(signal.SIGKILL)
            raise StartError("".join(self._log).strip() or "the broker did not start")
        return int(line.rpartition(":")[2])

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """End the process by a signal, and wait until it is gone."""
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # It may stand still.
        self._process.wait(STOP_TIMEOUT_S)
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None, "it was asked for"
            pipe.close()

    # --- faults of its machine ----------------------------------------------------------------------

    def inject(self, number: int, fault: MachineFault) -> None:
        """Put a fault into force inside the process, under a number of ours."""
        self._command({"inject": number, "fault": words_of(fault)})

    def withdraw(self, number: int) -> None:
        """End a fault."""
        self._command({"withdraw": number})

    def _command(self, command: dict[str, object]) -> None:
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            line = ""
        if line.strip() != ANSWER:
            raise RuntimeError("The broker's process does not answer; does it stand still?")

    # --- what it says -------------------------------------------------------------------------------

    def _read_output(self) -> None:
        assert self._process.stdout is not None, "it was asked for"
        for line in self._process.stdout:
            if line.startswith(HIT):
                self._hit(int(line.removeprefix(HIT)))
            else:
                self._answers.put(line)
        self._answers.put("")  # It has ended: nobody waits for more.

    def _read_log(self) -> None:
        assert self._process.stderr is not None, "it was asked for"
        self._log.extend(self._process.stderr)


class RemoteHardware:
    """The machine of brokers in processes of their own, one after the other."""

    def __init__(self) -> None:
        self._process: BrokerProcess | None = None
        self._numbers = itertools.count(1)
        self._in_force: dict[int, Injection[MachineFault]] = {}

    def hit(self, number: int) -> None:
        """The process says that a fault has happened."""
        injection = self._in_force.get(number)
        if injection is not None:
            injection.strikes()

    def attach(self, process: BrokerProcess) -> None:
        """A broker runs: whatever was wrong with its machine still is."""
        self._process = process
        for number, injection in self._in_force.items():
            left = _left_of(injection)
            if left is not None:
                process.inject(number, left)

    def detach(self) -> None:
        """No broker runs."""
        self._process = None

    def fault(self, fault: MachineFault) -> Injection[MachineFault]:
        """Put a fault into force."""
        number = next(self._numbers)
        injection: Injection[MachineFault] = Injection(
            fault, requests_of(fault), on_end=lambda: self._withdraw(number)
        )
        self._in_force[number] = injection
        if self._process is not None:
            self._process.inject(number, fault)
        return injection

    def _withdraw(self, number: int) -> None:
        del self._in_force[number]
        if self._process is not None:
            self._process.withdraw(number)


def _left_of(injection: Injection[MachineFault]) -> MachineFault | None:
    """What of a fault is to come after a restart: a clock that has jumped stays wrong."""
    match injection.fault:
        case ClockJump():
            return injection.fault
        case DiskFault():
            left = injection.remaining
            return None if left == 0 else replace(injection.fault, times=left)
