"""Run the simulation of whatever `oncelog` is on the path, until a seed fails.

    python -m tests.teeth.hunt PACKAGE WORKLOAD SEEDS

One JSON object on standard output says what was found. It runs as a process of its own, since the
package that it imports has a bug in it.
"""

import json
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import oncelog
from oncelog.testing.sim.plan import Plan
from oncelog.testing.sim.scenario import play
from oncelog.testing.sim.swarm import PLAIN, TRANSACTIONAL, Shape, draw_plan
from tests.teeth.bug import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the plans of a workload have in common; the seed draws the rest."""

    shape: Shape
    settings: Mapping[str, str] = field(default_factory=dict)
    sync_s: float | None = None
    #: What all clients have in common, by the names of a plan.
    clients: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, seed: int) -> Plan:
        """The plan of a seed."""
        plan = draw_plan(seed, self.shape)
        plan = replace(plan, settings={**plan.settings, **self.settings})
        if self.sync_s is not None:
            plan = replace(plan, sync_s=self.sync_s)
        return replace(plan, clients=tuple(replace(c, **self.clients) for c in plan.clients))


#: Much is under way when the power goes, and it goes often.
CRASHES: Final = Shape(
    producers=1,
    members=1,
    batches=8,
    txn_producers=4,
    transactions=30,
    copiers=1,
    crashes=12,
    is_hasty=True,
    faults_s=2.0,
)
WORKLOADS: Final[Mapping[Workload, Work]] = {
    "plain": Work(shape=PLAIN),
    "transactional": Work(shape=TRANSACTIONAL),
    "crashes": Work(shape=CRASHES),
    # Many transactions are aborted, many segments begin, and syncs take long.
    "aborts": Work(
        shape=replace(CRASHES, copiers=0, producers=0),
        settings={"log.segment.bytes": "1024"},
        sync_s=0.02,
    ),
    # Nobody has said of a transaction's batches that they are durable before it is committed.
    "weak": Work(shape=replace(CRASHES, copiers=0, producers=0), sync_s=0.02, clients={"acks": 1}),
    # Five batches of each producer are always on their way to the disk.
    "flood": Work(
        shape=Shape(
            producers=4,
            members=0,
            batches=30,
            crashes=12,
            watchers=0,
            is_hasty=True,
            faults_s=2.0,
        ),
        settings={"log.flush.offset.checkpoint.interval.ms": "50"},
        sync_s=0.02,
    ),
    # A batch is sent again long before the first one is durable.
    "slow": Work(
        shape=Shape(producers=4, members=0, batches=15, crashes=8, watchers=0, faults_s=6.0),
        sync_s=0.5,
        clients={"patience_s": 0.2},
    ),
    # Nobody dies, so that what is late still arrives.
    "late": Work(
        shape=Shape(
            producers=0,
            members=2,
            txn_producers=4,
            transactions=60,
            restarts=False,
            is_hasty=True,
            watchers=0,
            faults_s=8.0,
        ),
        clients={"is_v2": False, "patience_s": 1.0},
    ),
    # Copiers that fall behind their group.
    "copies": Work(
        shape=Shape(
            producers=1, members=0, batches=20, txn_producers=1, copiers=3, crashes=1, watchers=0
        )
    ),
}
#: What a failure of a run means; the first sign that is found counts.
WORDS: Final = {
    "a new one on the same disk": "another state after a replay",
    "TimeoutError": "a run that does not end",
    "spins": "a broker that goes round in a circle",
    "NotAtRest": "a partition that does not come to rest",
    "Admitted": "a request that has to be refused",
    "Refused": "a correct client that is refused",
    "NeverStarted": "a broker that does not start",
    "CorruptMessage": "a batch that cannot be read",
    "UnreadableRecord": "a batch that cannot be read",
}


def main(package: str, workload: Workload, seeds: str) -> int:
    """Hunt, and say what was caught."""
    found = Path(oncelog.__file__).parent.resolve()
    assert found == Path(package).resolve(), f"{found} was imported, not {package}"
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(seeds)):
            caught = _caught(WORKLOADS[workload].plan(seed), Path(folder) / "history.jsonl")
            if caught:
                print(json.dumps({"seed": seed, "caught_by": caught}))
                return 0
    print(json.dumps({"seed": None, "caught_by": []}))
    return 0


def _caught(plan: Plan, history: Path) -> list[str]:
    """What the simulation says of a seed: nothing where it is good."""
    try:
        outcome = play(plan, history)
    except Exception as error:
        traceback.print_exc()
        return sorted(_kinds(error))
    if outcome.is_good:
        return []
    print(*outcome.failures, sep="\n", file=sys.stderr)
    findings = outcome.report.findings if outcome.report is not None else ()
    fatal = [finding.name.value for finding in findings if finding.fatal_count]
    return fatal or list(dict.fromkeys(_in_words(failure) for failure in outcome.failures))


def _kinds(error: BaseException) -> set[str]:
    """The errors that ended a run, in words."""
    if isinstance(error, BaseExceptionGroup):
        return {kind for each in error.exceptions for kind in _kinds(each)}
    return {_in_words(f"{type(error).__name__}: {error}")}


def _in_words(failure: str) -> str:
    """Which promise of the simulation was not kept, without the particulars of one seed."""
    for sign, words in WORDS.items():
        if sign in failure:
            return words
    return failure.partition(":")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], cast(Workload, sys.argv[2]), sys.argv[3]))  # By the planter.
