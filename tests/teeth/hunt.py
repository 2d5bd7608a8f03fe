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

import oncelog
from oncelog.testing.sim.scenario import TRANSACTIONAL, Shape, simulate


def main(package: str, workload: str, seeds: str) -> int:
    """Hunt, and say what was caught."""
    found = Path(oncelog.__file__).parent.resolve()
    assert found == Path(package).resolve(), f"{found} was imported, not {package}"
    shape = TRANSACTIONAL if workload == "transactional" else Shape()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(seeds)):
            caught = _caught(seed, Path(folder) / "history.jsonl", shape)
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
    fatal = [finding.name.value for finding in outcome.report.findings if finding.fatal_count]
    return fatal or [f"an error in the broker: {outcome.failures[0][:80]}"]


def _kinds(error: BaseException) -> set[str]:
    """In words: which promise of the simulation was not kept."""
    if isinstance(error, BaseExceptionGroup):
        return {kind for each in error.exceptions for kind in _kinds(each)}
    if isinstance(error, TimeoutError):
        return {"the run does not end"}
    return {f"{type(error).__name__}"}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
