"""A look at the broker every second, and what it comes to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.testing.soak.latency import Latencies
from oncelog.testing.soak.process import size_of, usage

#: A process that has just started is still growing.
WARM_S: Final = 5.0
#: A slope over less says nothing.
SLOPE_S: Final = 60.0
SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look."""

    at_s: float
    #: Which start of the broker this is, from 1.
    life: int
    age_s: float
    rss_bytes: int
    handle_count: int
    thread_count: int
    disk_bytes: int
    commit_p50_ms: float | None
    commit_p99_ms: float | None


class Watch:
    """All looks of a run: one a second, some dozen bytes each."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._recent = Latencies()
        self.latencies = Latencies()
        self.samples: list[Sample] = []
        self._life = 0
        self._started_at_s = 0.0

    def broker_started(self, at_s: float) -> None:
        """What follows is of another process."""
        self._life += 1
        self._started_at_s = at_s

    def committed(self, took_s: float) -> None:
        """A commit was confirmed."""
        self._recent.add(took_s)
        self.latencies.add(took_s)

    def look(self, pid: int, at_s: float) -> Sample | None:
        """Look once; None while there is no broker."""
        found = usage(pid)
        if found is None:
            return None
        recent = self._recent.drained()
        sample = Sample(
            at_s=round(at_s, 3),
            life=self._life,
            age_s=round(at_s - self._started_at_s, 3),
            rss_bytes=found.rss_bytes,
            handle_count=found.handle_count,
            thread_count=found.thread_count,
            disk_bytes=size_of(self._data_dir),
            commit_p50_ms=milliseconds(recent.below_s(0.5)),
            commit_p99_ms=milliseconds(recent.below_s(0.99)),
        )
        self.samples.append(sample)
        return sample

    def last_life(self) -> list[Sample]:
        """The warm part of the last process: where growth would be seen."""
        return [each for each in self.samples if each.life == self._life and each.age_s >= WARM_S]


def milliseconds(seconds: float | None) -> float | None:
    """Rounded to what can be measured."""
    return None if seconds is None else round(seconds * 1000, 2)


def growth_per_hour(samples: list[Sample]) -> float | None:
    """The slope of the memory, in bytes: least squares; None where they are too close together."""
    if not samples or samples[-1].at_s - samples[0].at_s < SLOPE_S:
        return None
    mean_at = sum(each.at_s for each in samples) / len(samples)
    mean_rss = sum(each.rss_bytes for each in samples) / len(samples)
    spread = sum((each.at_s - mean_at) ** 2 for each in samples)
    shared = sum((each.at_s - mean_at) * (each.rss_bytes - mean_rss) for each in samples)
    return shared / spread * SECONDS_PER_HOUR
