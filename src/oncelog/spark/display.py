"""How a running pipeline looks to the person who started it: one line, kept up to date."""

import threading
import time
from typing import Final

from oncelog.core.plural import plural
from oncelog.observe.terminal import Terminal
from oncelog.spark.pipeline import Summary
from oncelog.spark.steps import Event, Step

_TICK_S: Final = 0.2
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

#: What the driver does after each step.
_DOING: Final = {
    Step.LOOKED: "taking over",
    Step.FENCED: "looking for rows",
    Step.PLANNED: "writing",
    Step.WRITTEN: "recording",
    Step.RECORDED: "committing",
    Step.MIRRORED: "committing",
    Step.COMMITTED: "waiting for rows",
    Step.SKIPPED: "skipping",
    Step.RETRIED: "trying again",
}


class Display:
    """Told of steps and batches; a thread keeps the time on the line running."""

    def __init__(self, terminal: Terminal, name: str) -> None:
        """Nothing is shown before the `with` block."""
        self._terminal = terminal
        self._name = name
        self._doing = "connecting"
        self._since_s = time.monotonic()
        self._summary: Summary | None = None
        self._retries = 0
        self._turn = 0
        self._is_over = threading.Event()
        self._ticking = threading.Thread(target=self._tick, name="oncelog-display", daemon=True)

    def __enter__(self) -> "Display":
        self._ticking.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over.set()
        self._ticking.join()
        self._terminal.clear()

    def step(self, event: Event) -> None:
        """For `Sink.watched_by`."""
        if event.step is Step.RETRIED:
            self._retries += 1
        doing = _DOING[event.step]
        if event.batch is not None and event.step is not Step.COMMITTED:
            doing = f"{doing} batch {event.batch}"
        self._doing, self._since_s = doing, time.monotonic()

    def batch(self, summary: Summary) -> None:
        """For `Pipeline.run(on_batch=...)`."""
        self._summary = summary

    def line(self) -> str:
        """What the line says now."""
        parts = [self._name]
        if self._summary is not None:
            parts += _numbers(self._summary)
        if self._retries:
            parts.append(f"{self._retries} {'retry' if self._retries == 1 else 'retries'}")
        waited_s = int(time.monotonic() - self._since_s)
        parts.append(f"{self._doing} {waited_s} s" if waited_s else self._doing)
        return " · ".join(parts)

    def _tick(self) -> None:
        while not self._is_over.wait(_TICK_S):
            spinner = ""
            if self._terminal.is_live:
                self._turn = (self._turn + 1) % len(_SPINNER)
                spinner = f"{_SPINNER[self._turn]} "
            self._terminal.show(f"{spinner}{self.line()}")


def _numbers(summary: Summary) -> list[str]:
    last = summary.last
    rate = last.rows / last.seconds if last is not None and last.seconds else 0.0
    numbers = [
        plural(summary.rows, "row"),
        plural(summary.batches, "transaction"),
        f"{rate:,.0f} rows/s",
        f"lag {summary.lag:,}",
    ]
    if summary.rejected:
        numbers.insert(1, plural(summary.rejected, "dead letter"))
    return numbers
