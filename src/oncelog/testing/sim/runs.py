"""Running many seeds, in several processes, until one fails or the time is over."""

import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oncelog.check.verdict import Verdict, as_text
from oncelog.testing.sim.plan import Plan
from oncelog.testing.sim.scenario import Outcome, play
from oncelog.testing.sim.swarm import Shape, draw_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is worth telling of a run."""

    seed: int
    digest: str
    is_good: bool
    #: Why it is not.
    text: str
    transactions: int
    faults: int
    virtual_s: float


def result_of(outcome: Outcome) -> Result:
    """The gist of an outcome."""
    lines = [f"  {failure}" for failure in outcome.failures]
    if outcome.report is not None and outcome.report.verdict is not Verdict.VALID:
        lines.append(as_text(outcome.report))
    return Result(
        seed=outcome.seed,
        digest=outcome.digest,
        is_good=outcome.is_good,
        text="\n".join(lines),
        transactions=outcome.transactions,
        faults=outcome.faults,
        virtual_s=outcome.virtual_s,
    )


def run_plan(plan: Plan, history: Path | None = None) -> Result:
    """Run one plan; its history is kept where that is asked for."""
    if history is not None:
        return result_of(play(plan, history))
    with tempfile.TemporaryDirectory() as folder:
        return result_of(play(plan, Path(folder) / "history.jsonl"))


def run_seeds(
    first: int, count: int | None, *, shape: Shape | None, for_s: float | None, jobs: int
) -> Iterator[Result]:
    """Run seeds one after the other, or `jobs` at a time; results come in the order of seeds."""
    seeds = itertools.count(first) if count is None else iter(range(first, first + count))
    deadline = None if for_s is None else time.monotonic() + for_s
    timely = itertools.takewhile(lambda _: deadline is None or time.monotonic() < deadline, seeds)
    run_one = partial(_run_seed, shape=shape)
    if jobs == 1:
        yield from map(run_one, timely)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        # A few at a time: a pool takes all that an iterator has at once.
        while batch := list(itertools.islice(timely, 4 * jobs)):
            yield from pool.imap(run_one, batch)


def _run_seed(seed: int, *, shape: Shape | None) -> Result:
    return run_plan(draw_plan(seed, shape))
