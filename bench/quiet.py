"""Waits for the machine to calm down: a neighbour at work, or Kafka's compiler, spoils a round."""

import os
import time
from pathlib import Path
from typing import Final

#: The machine is quiet when less than this share of one processor is at work.
QUIET_SHARE: Final = 0.25
LOOK_S: Final = 0.25
#: One round may not use up the patience of all.
WAIT_LIMIT_S: Final = 5.0


class Quiet:
    """Waits before each round, as long as its budget lasts."""

    def __init__(self, budget_s: float) -> None:
        self._left_s = budget_s
        self.rounds = 0
        #: Rounds that began although the machine had other work.
        self.disturbed = 0

    def wait(self) -> None:
        """Return when the machine is quiet, or when waiting has taken too long altogether."""
        self.rounds += 1
        waited_s = 0.0
        while busy_processors(LOOK_S) > QUIET_SHARE:
            waited_s += LOOK_S
            self._left_s -= LOOK_S
            if self._left_s <= 0 or waited_s >= WAIT_LIMIT_S:
                self.disturbed += 1
                return


def busy_processors(over_s: float) -> float:
    """How many processors were at work, on average, during the time that this call takes."""
    before = _busy_ticks()
    time.sleep(over_s)
    return (_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / over_s


def _busy_ticks() -> int:
    # user nice system idle iowait irq softirq steal; what guests use is part of user already.
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return user + nice + system + irq + softirq + steal
