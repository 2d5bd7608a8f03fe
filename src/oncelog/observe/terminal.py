"""Lines that stay and, where somebody watches, some below them that change."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO

#: How often a stream that is not a terminal gets the changing lines.
_EVERY_S: Final = 10.0
_CLEAR: Final = "\r\x1b[K"
_UP: Final = "\x1b[A"


class Terminal:
    """Writes to a terminal, or to whatever takes its place: a file, a pipe, a log."""

    def __init__(
        self,
        stream: TextIO,
        *,
        every_s: float = _EVERY_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Elsewhere than on a terminal the changing lines are written once in `every_s`."""
        self.is_live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._stream = stream
        self._every_s = every_s
        self._now = now
        self._shown_s = now()
        self._shown = ""
        # A ticking thread shows while the main one says.
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            if self.is_live:
                self._stream.write(self._cleared())
            self._stream.write(f"{text}\n")
            if self.is_live:
                self._stream.write(self._shown)
            self._stream.flush()

    def show(self, *lines: str) -> None:
        """The lines that change."""
        with self._lock:
            if self.is_live:
                before = self._cleared()
                # A line that wraps could not be taken back.
                width = shutil.get_terminal_size().columns - 1
                self._shown = "\n".join(line[:width] for line in lines)
                self._stream.write(f"{before}{self._shown}")
            elif self._now() - self._shown_s >= self._every_s:
                self._shown_s = self._now()
                self._stream.writelines(f"{line}\n" for line in lines)
            self._stream.flush()

    def clear(self) -> None:
        """Take the changing lines away."""
        with self._lock:
            if self.is_live and self._shown:
                self._stream.write(self._cleared())
                self._stream.flush()
            self._shown = ""

    def _cleared(self) -> str:
        return _CLEAR + f"{_UP}{_CLEAR}" * self._shown.count("\n")
