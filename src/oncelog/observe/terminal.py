"""Lines that stay and, where somebody watches, one below them that changes."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO

#: How often a stream that is not a terminal gets the changing line.
_EVERY_S: Final = 10.0
_CLEAR: Final = "\r\x1b[K"


class Terminal:
    """Writes to a terminal, or to whatever takes its place: a file, a pipe, a log."""

    def __init__(
        self,
        stream: TextIO,
        *,
        every_s: float = _EVERY_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Elsewhere than on a terminal the changing line is written once in `every_s`."""
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
                self._stream.write(_CLEAR)
            self._stream.write(f"{text}\n")
            if self.is_live:
                self._stream.write(self._shown)
            self._stream.flush()

    def show(self, text: str) -> None:
        """The line that changes."""
        with self._lock:
            if self.is_live:
                # A line that wraps could not be taken back.
                self._shown = text[: shutil.get_terminal_size().columns - 1]
                self._stream.write(f"{_CLEAR}{self._shown}")
            elif self._now() - self._shown_s >= self._every_s:
                self._shown_s = self._now()
                self._stream.write(f"{text}\n")
            self._stream.flush()

    def clear(self) -> None:
        """Take the changing line away."""
        with self._lock:
            if self.is_live and self._shown:
                self._stream.write(_CLEAR)
                self._stream.flush()
            self._shown = ""
