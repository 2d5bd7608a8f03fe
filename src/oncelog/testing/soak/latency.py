"""How long commits took: counts in buckets, so that a day of them takes no more room than a minute."""

import math
import threading
from collections import Counter
from typing import Final

#: Each bucket is 5 % wider than the one before it: that is how far off an answer may be.
_GROWTH: Final = math.log(1.05)
_SMALLEST_S: Final = 1e-6


class Latencies:
    """Seconds that were told, and how large a share of them was below what."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """Take one in; any thread may."""
        bucket = math.ceil(math.log(max(seconds, _SMALLEST_S) / _SMALLEST_S) / _GROWTH)
        with self._lock:
            self._counts[bucket] += 1

    def below_s(self, share: float) -> float | None:
        """So many seconds were enough for this share of them; None where there are none."""
        with self._lock:
            counts = sorted(self._counts.items())
        wanted = share * sum(count for _, count in counts)
        for bucket, count in counts:
            wanted -= count
            if wanted <= 0:
                return _SMALLEST_S * math.exp(bucket * _GROWTH)
        return None

    def drained(self) -> "Latencies":
        """What was told since the last call; this one is empty again."""
        taken = Latencies()
        with self._lock:
            taken._counts, self._counts = self._counts, Counter()
        return taken
