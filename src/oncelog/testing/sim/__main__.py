"""`python -m oncelog.testing.sim`: run seeds until one of them fails."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from oncelog.check.verdict import as_text
from oncelog.testing.sim.scenario import TRANSACTIONAL, Outcome, simulate


def main() -> int:
    """Run the seeds that were asked for; 1 if one of them failed."""
    parser = argparse.ArgumentParser(
        prog="python -m oncelog.testing.sim",
        description="Run the real broker on simulated time, disk and network.",
        epilog="example: python -m oncelog.testing.sim --seed 4711 --history run.jsonl",
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (default 1)")
    parser.add_argument(
        "--transactions", action="store_true", help="with transactional producers and copiers"
    )
    parser.add_argument("--history", type=Path, help="keep the history of the last run here")
    parser.add_argument("--digests", action="store_true", help="print the digest of each seed")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = options.history or Path(folder) / "history.jsonl"
        for seed in range(options.seed, options.seed + options.count):
            outcome = simulate(seed, path, TRANSACTIONAL if options.transactions else None)
            if options.digests:
                print(seed, outcome.digest)
            if not outcome.is_good:
                _explain(outcome)
                return 1
    took = time.monotonic() - began
    print(f"{options.count} seeds from {options.seed}: no anomaly ({took:.1f} s)", file=sys.stderr)
    return 0


def _explain(outcome: Outcome) -> None:
    print(f"seed {outcome.seed} failed", file=sys.stderr)
    print(as_text(outcome.report), file=sys.stderr)
    for failure in outcome.failures:
        print(f"  {failure}", file=sys.stderr)
    print(
        f"again: python -m oncelog.testing.sim --seed {outcome.seed} --history failed.jsonl",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
