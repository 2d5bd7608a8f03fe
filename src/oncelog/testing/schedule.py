"""Faults one after the other, drawn from a seed, while a load runs against the broker.

    done = Schedule(seed=7).run(broker, seconds=30, recorder=recorder)

Each kind comes once before any comes again, in an order that the seed draws, with quiet moments in
between. At the end everything is healed. A recorder writes down when each began and ended, so that
`oncelog check` knows.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias

from oncelog.check import Op, Recorder
from oncelog.testing.broker import Broker
from oncelog.testing.faults import (
    Fault,
    ImpossibleFault,
    black_hole,
    clock_jump,
    cut,
    delay,
    disk_full,
    half_close,
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

#: Draws one fault of its kind.
Kind: TypeAlias = Callable[[Random], Fault]

#: What happens to connections and requests.
NETWORK: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "delay": lambda rng: delay(seconds=(0.0, rng.uniform(0.05, 0.3)), seed=_seed(rng)),
        "cut": lambda rng: cut(
            when=rng.choice(("before", "within request", "after", "within reply")),
            probability=0.05,
            times=None,
            seed=_seed(rng),
        ),
        "lose_reply": lambda rng: lose_reply(probability=0.05, times=None, seed=_seed(rng)),
        "half_close": lambda rng: half_close(
            towards=rng.choice(("broker", "client")), probability=0.05, times=None, seed=_seed(rng)
        ),
        # Joining a group twice makes two members: only what may be repeated is.
        "repeat": lambda rng: repeat(rng.choice(("Produce", "EndTxn")), times=None),
        "trickle": lambda rng: trickle(
            bytes_per_second=rng.choice((2_000, 20_000)), probability=0.2, seed=_seed(rng)
        ),
        "refuse": lambda rng: refuse(),
        "black_hole": lambda rng: black_hole(),
        "short_lives": lambda rng: short_lives(seconds=(0.1, 0.5), seed=_seed(rng)),
    }
)
#: What happens to the disk and the clock.
MACHINE: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "disk_full": lambda rng: disk_full(),
        "slow_disk": lambda rng: slow_disk(seconds=rng.uniform(0.02, 0.3)),
        "clock_jump": lambda rng: clock_jump(hours=rng.choice((-1, 1))),
    }
)
#: What happens to the broker; `pause` is for one in a process of its own.
PROCESS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "restart": lambda rng: restart(),
        "kill": lambda rng: kill(),
        "pause": lambda rng: pause(),
    }
)


class Schedule:
    """One seed's faults."""

    def __init__(
        self,
        seed: int,
        *,
        kinds: Mapping[str, Kind] | None = None,
        quiet_s: tuple[float, float] = (0.2, 0.8),
        lasting_s: tuple[float, float] = (0.1, 0.8),
    ) -> None:
        """`quiet_s` and `lasting_s` bound the time between two faults, and that of one."""
        self.kinds = dict({**NETWORK, **MACHINE, **PROCESS} if kinds is None else kinds)
        if not self.kinds:
            raise ImpossibleFault("A schedule needs at least one kind of fault.")
        self._rng = Random(seed)
        self._quiet_s = quiet_s
        self._lasting_s = lasting_s

    def run(
        self, broker: Broker, *, seconds: float, recorder: Recorder | None = None
    ) -> Counter[str]:
        """Break and mend the broker for so long, each kind at least once; how often each came."""
        counts: Counter[str] = Counter()
        deadline_s = time.monotonic() + seconds
        try:
            for name in self._drawn():
                if time.monotonic() > deadline_s and len(counts) == len(self.kinds):
                    break
                time.sleep(self._rng.uniform(*self._quiet_s))
                self._happen(broker, name, recorder)
                counts[name] += 1
        finally:
            broker.heal()
            if recorder is not None:
                recorder.note(Op.HEAL)
        return counts

    def _drawn(self) -> Iterator[str]:
        while True:
            yield from self._rng.sample(sorted(self.kinds), len(self.kinds))

    def _happen(self, broker: Broker, name: str, recorder: Recorder | None) -> None:
        fault = self.kinds[name](self._rng)
        lasting_s = self._rng.uniform(*self._lasting_s)
        if recorder is not None:
            recorder.note(Op.FAULT, what=name, target="broker")
        with broker.fault(fault) as injection:
            if not injection.is_over:
                time.sleep(lasting_s)
        if recorder is not None:
            recorder.note(Op.FAULT, what=name, target="broker", over=True)


def _seed(rng: Random) -> int:
    return rng.getrandbits(32)
