"""Counting what a run does, so that a fault can strike right after the k-th thing of a kind."""

from collections.abc import Callable
from enum import StrEnum

from oncelog.testing.sim.loop import as_process

Action = Callable[[], None]


class Step(StrEnum):
    """What is counted."""

    TURN = "turn"  # of the event loop: everything that was ready has run
    DISK = "disk"  # a write, a new name, the beginning or the end of a sync
    NET = "net"  # bytes that arrive at the broker or leave it


class Steps:
    """The steps of a run, and what is to happen after some of them."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Step, 0)
        self._due: dict[Step, dict[int, list[Action]]] = {step: {} for step in Step}

    def at(self, step: Step, number: int, act: Action) -> None:
        """Act right after the step with this number, the first being 1."""
        self._due[step].setdefault(number, []).append(act)

    def after(self, step: Step, count: int, act: Action) -> None:
        """Act once so many more of these steps are taken."""
        self.at(step, self.counts[step] + count, act)

    def counter(self, step: Step) -> Action:
        """What the loop, the disk or the network calls at each of its steps."""
        counts, due = self.counts, self._due[step]

        def count() -> None:
            counts[step] += 1
            if due:
                for act in due.pop(counts[step], ()):
                    with as_process(None):  # Whoever took the step may be about to die.
                        act()

        return count

    def clear(self) -> None:
        """Nothing is to happen after any step any more."""
        for due in self._due.values():
            due.clear()
