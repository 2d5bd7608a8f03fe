"""Run the simulation of whatever `oncelog` is on the path, until a seed fails.

    python -m tests.teeth.hunt PACKAGE WORKLOAD SEEDS

One JSON object on standard output says what was found. It runs as a process of its own, since the
package that it imports has a bug in it.
"""

import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Final

import oncelog
from oncelog.testing.sim.scenario import TRANSACTIONAL, Shape, simulate

SHAPES: Final = {
    "plain": Shape(),
    "transactional": TRANSACTIONAL,
    # Much is under way when the power goes, and it goes often.
    "crashes": Shape(
        producers=1, members=1, batches=8, txn_producers=4, transactions=20, copiers=1, crashes=12
    ),
}
#: What a failure of a run means; the first sign that is found counts.
WORDS: Final = {
    "a new one on the same disk": "another state after a replay",
    "TimeoutError": "a run that does not end",
    "Refused": "a correct client that is refused",
    "NeverStarted": "a broker that does not start",
    "CorruptMessage": "a batch that cannot be read",
    "UnreadableRecord": "a batch that cannot be read",
}


def main(package: str, workload: str, seeds: str) -> int:
    """Hunt, and say what was caught."""
    found = Path(oncelog.__file__).parent.resolve()
    assert found == Path(package).resolve(), f"{found} was imported, not {package}"
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(seeds)):
            caught = _caught(seed, Path(folder) / "history.jsonl", SHAPES[workload])
            if caught:
                print(json.dumps({"seed": seed, "caught_by": caught}))
                return 0
    print(json.dumps({"seed": None, "caught_by": []}))
    return 0


def _caught(seed: int, history: Path, shape: Shape) -> list[str]:
    """What the simulation says of a seed: nothing where it is good."""
    try:
        outcome = simulate(seed, history, shape)
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
    sys.exit(main(*sys.argv[1:]))
