"""What is measured, and what is made of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.testing.soak.latency import Latencies
from oncelog.testing.soak.process import size_of, usage
from oncelog.testing.soak.watch import Sample, Watch, growth_per_hour


def sample(at_s: float, rss_bytes: int) -> Sample:
    return Sample(
        at_s=at_s,
        life=1,
        age_s=at_s,
        rss_bytes=rss_bytes,
        handle_count=1,
        thread_count=1,
        disk_bytes=0,
        commit_p50_ms=None,
        commit_p99_ms=None,
    )


def test_memory_that_grows_has_a_slope() -> None:
    growing = [sample(at, 1_000_000 + 1000 * at) for at in range(100)]

    assert growth_per_hour(growing) == pytest.approx(1000 * 3600)


def test_memory_that_stays_has_none() -> None:
    assert growth_per_hour([sample(at, 5) for at in range(100)]) == 0


def test_a_slope_over_a_few_seconds_is_not_told() -> None:
    assert growth_per_hour([sample(at, at) for at in range(10)]) is None
    assert growth_per_hour([]) is None


def test_this_process_is_measured() -> None:
    found = usage(os.getpid())

    assert found is not None
    assert found.rss_bytes > 1 << 20
    assert found.handle_count >= 3
    assert found.thread_count >= 1


def test_a_process_that_is_gone_is_not() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert usage(process.pid) is None


def test_the_bytes_of_a_directory_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/one").write_bytes(bytes(10))
    (tmp_path / "a/b/two").write_bytes(bytes(5))

    assert size_of(tmp_path) == 15


def test_latencies_are_told_within_five_percent() -> None:
    latencies = Latencies()
    for number in range(1, 1001):
        latencies.add(number / 1000)

    assert latencies.below_s(0.5) == pytest.approx(0.5, rel=0.06)
    assert latencies.below_s(0.99) == pytest.approx(0.99, rel=0.06)


def test_what_was_drained_is_not_counted_again() -> None:
    latencies = Latencies()
    latencies.add(0.001)

    assert latencies.drained().below_s(0.5) == pytest.approx(0.001, rel=0.06)
    assert latencies.below_s(0.5) is None


def test_growth_is_looked_for_in_the_last_life_alone(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.broker_started(0.0)
    watch.look(os.getpid(), 10.0)
    watch.broker_started(20.0)
    watch.look(os.getpid(), 21.0)
    watch.look(os.getpid(), 40.0)

    assert [each.at_s for each in watch.last_life()] == [40.0]
    assert len(watch.samples) == 3
