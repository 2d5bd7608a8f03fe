"""What users need to test against a real broker: `Broker`, its faults, and the fixture `oncelog_broker`."""

from oncelog.testing.broker import Broker
from oncelog.testing.faults import (
    Fault,
    ImpossibleFault,
    black_hole,
    clock_jump,
    cut,
    delay,
    disk_full,
    failing_sync,
    fence,
    half_close,
    hold,
    kill,
    lose_reply,
    pause,
    refuse,
    repeat,
    restart,
    short_lives,
    slow_disk,
    trickle,
)
from oncelog.testing.injection import FaultDidNotHappen, Injection
from oncelog.testing.proxy import Proxy
from oncelog.testing.schedule import MACHINE, NETWORK, PROCESS, Schedule

__all__ = [
    "MACHINE",
    "NETWORK",
    "PROCESS",
    "Broker",
    "Fault",
    "FaultDidNotHappen",
    "ImpossibleFault",
    "Injection",
    "Proxy",
    "Schedule",
    "black_hole",
    "clock_jump",
    "cut",
    "delay",
    "disk_full",
    "failing_sync",
    "fence",
    "half_close",
    "hold",
    "kill",
    "lose_reply",
    "pause",
    "refuse",
    "repeat",
    "restart",
    "short_lives",
    "slow_disk",
    "trickle",
]
