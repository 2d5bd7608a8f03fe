"""A broker in a process of its own whose disk and clock take faults from its parent.

    python -m oncelog.testing.served '{"data": ..., "port": 0, "advertise": ..., "settings": {...}}'

It says on which port it listens. Each line of its input puts a fault into force or ends one, and is
answered; each time that a fault happens, it says so. When its input ends, so does the broker: it does
not outlive the test that started it. `oncelog serve` has none of this.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from oncelog.runtime.config import BrokerConfig
from oncelog.server.broker import Broker, StartError
from oncelog.server.heap import keep_freed_memory
from oncelog.testing.background import new_loop
from oncelog.testing.faults import ClockJump, DiskFault, DiskTrouble, MachineFault
from oncelog.testing.hardware import Hardware, requests_of
from oncelog.testing.injection import Injection

LISTENING: Final = "oncelog listening on "
HIT: Final = "hit "
ANSWER: Final = "done"


class Commands:
    """What the parent wants, carried out on the machine."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._injections: dict[int, Injection[MachineFault]] = {}

    def read(self) -> None:
        """Until the input ends, and with it the broker."""
        for line in sys.stdin:
            self._carry_out(json.loads(line))
            _say(ANSWER)
        os.kill(os.getpid(), signal.SIGTERM)

    def _carry_out(self, command: dict[str, Any]) -> None:
        if "inject" in command:
            number, fault = int(command["inject"]), fault_of(command["fault"])
            given = Injection(fault, requests_of(fault), on_hit=lambda: _say(f"{HIT}{number}"))
            self._injections[number] = given
            self._hardware.inject(given)
        else:
            # One that had happened often enough before a restart is not in force here.
            injection = self._injections.pop(int(command["withdraw"]), None)
            if injection is not None:
                self._hardware.withdraw(injection)


def words_of(fault: MachineFault) -> dict[str, object]:
    """A fault as JSON."""
    match fault:
        case ClockJump():
            return {"milliseconds": fault.milliseconds}
        case DiskFault():
            return {
                "trouble": fault.trouble.value,
                "paths": fault.paths,
                "seconds": fault.seconds,
                "times": fault.times,
            }


def fault_of(words: dict[str, Any]) -> MachineFault:
    """The fault that these words are of."""
    if "milliseconds" in words:
        return ClockJump(milliseconds=words["milliseconds"])
    return DiskFault(**{**words, "trouble": DiskTrouble(words["trouble"])})


def _say(line: str) -> None:
    # One write, so that lines of two threads do not mix.
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


async def _serve(wanted: dict[str, Any]) -> None:
    keep_freed_memory()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hardware = Hardware()
    broker = Broker(
        BrokerConfig().with_values(wanted["settings"], origin="Broker").checked(),
        Path(wanted["data"]),
        ("127.0.0.1", wanted["port"]),
        ("127.0.0.1", wanted["advertise"]),
        layer=hardware.disk,
        clock=hardware.clock,
    )
    await broker.start()
    try:
        threading.Thread(target=Commands(hardware).read, name="commands", daemon=True).start()
        _say(f"{LISTENING}127.0.0.1:{broker.port}")
        await stop.wait()
    finally:
        await broker.stop()


def main(words: str) -> int:
    """Serve until the input ends or a signal comes."""
    logging.basicConfig(level=logging.WARNING)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(json.loads(words)))
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
