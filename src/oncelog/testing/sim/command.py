"""`oncelog sim`: run the real broker on simulated time, disk and network, seed after seed.

Exit codes: 0 no anomaly, 1 a seed failed, 2 it was asked for wrongly.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from oncelog.testing.sim.plan import BadPlan, Plan, decode_plan, encode_plan
from oncelog.testing.sim.runs import Result, run_plan, run_seeds
from oncelog.testing.sim.shrink import shrink
from oncelog.testing.sim.swarm import PLAIN, TRANSACTIONAL, Shape, draw_plan

SUMMARY: Final = (
    "Run the real broker under simulated faults: one seed gives one run, byte for byte.\n"
    "Each seed draws its clients, its settings and its faults; a checker judges what the clients\n"
    "saw. A seed that fails is made small and written down, to be run again."
)
EXAMPLE: Final = """\
  oncelog sim --seeds 100                  the first hundred seeds
  oncelog sim --for 1h --jobs 2            as many as an hour has time for, on two cores
  oncelog sim --seed 4711 --history h.jsonl    one seed, and its history for `oncelog check`
  oncelog sim --schedule seed-4711.json    what a failing seed has left"""

SHAPES: Final[dict[str, Shape | None]] = {
    "swarm": None,
    "plain": PLAIN,
    "transactional": TRANSACTIONAL,
}
UNITS: Final = {"s": 1, "m": 60, "h": 3600}
#: How long a failing seed may be made smaller.
SHRINK_S: Final = 60.0
#: A larger file is no schedule.
SCHEDULE_MAX_BYTES: Final = 16 << 20

GOOD: Final = 0
FAILED: Final = 1
MISUSED: Final = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument("--seed", type=_whole, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--seeds",
        "--count",
        dest="count",
        type=_whole,
        metavar="N",
        help="how many seeds (default: 1, or as many as --for has time for)",
    )
    parser.add_argument(
        "--for", dest="for_s", type=duration, metavar="TIME", help="how long: 90s, 10m, 1h"
    )
    parser.add_argument(
        "--shape", choices=sorted(SHAPES), default="swarm", help="who takes part (default: swarm)"
    )
    parser.add_argument(
        "--transactions",
        dest="shape",
        action="store_const",
        const="transactional",
        help="short for --shape transactional",
    )
    parser.add_argument(
        "--jobs", type=_jobs, default=1, metavar="N", help="processes at a time (default: 1)"
    )
    parser.add_argument(
        "--history", type=Path, metavar="FILE", help="keep the history of the only run here"
    )
    parser.add_argument("--digests", action="store_true", help="print the digest of each run")
    parser.add_argument(
        "--schedule", type=Path, metavar="FILE", help="run this schedule instead of seeds"
    )
    parser.add_argument(
        "--shrink",
        dest="shrink_s",
        type=duration,
        default=SHRINK_S,
        metavar="TIME",
        help="how long a failing seed may be made smaller (default: 60s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run what was asked for and answer the exit code."""
    shape = SHAPES[args.shape]
    if args.schedule is not None:
        try:
            plan = _read_schedule(args.schedule)
        except (OSError, UnicodeDecodeError, BadPlan) as error:
            print(f"oncelog sim: {args.schedule} is no schedule: {error}", file=sys.stderr)
            return MISUSED
        return _judge_one(plan, args)
    count = args.count if args.count is not None or args.for_s is not None else 1
    if args.history is not None:
        if count != 1:
            print("oncelog sim: --history keeps one run: ask for one seed.", file=sys.stderr)
            return MISUSED
        return _judge_one(draw_plan(args.seed, shape), args)
    progress = _Progress(sys.stderr)
    for result in run_seeds(args.seed, count, shape=shape, for_s=args.for_s, jobs=args.jobs):
        if args.digests:
            print(result.seed, result.digest)
        progress.add(result)
        if not result.is_good:
            progress.end()
            _explain(draw_plan(result.seed, shape), result, args.shrink_s)
            return FAILED
    progress.end()
    print(f"{progress.line()}: no anomaly", file=sys.stderr)
    return GOOD


def main(argv: Sequence[str] | None = None) -> int:
    """The same as a command of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m oncelog.testing.sim",
        description=SUMMARY,
        epilog=f"example:\n{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


def _read_schedule(path: Path) -> Plan:
    with path.open("rb") as file:
        data = file.read(SCHEDULE_MAX_BYTES + 1)
    if len(data) > SCHEDULE_MAX_BYTES:
        raise BadPlan(f"it has more than {SCHEDULE_MAX_BYTES} bytes")
    return decode_plan(data.decode())


def _judge_one(plan: Plan, args: argparse.Namespace) -> int:
    result = run_plan(plan, args.history)
    if args.digests:
        print(result.seed, result.digest)
    if not result.is_good:
        _explain(plan, result, args.shrink_s)
        return FAILED
    print(f"seed {result.seed}: {result.transactions} transactions, no anomaly", file=sys.stderr)
    return GOOD


def _explain(plan: Plan, result: Result, shrink_s: float) -> None:
    print(f"seed {result.seed} failed:\n{result.text}", file=sys.stderr)
    print(f"making it smaller (at most {shrink_s:g} s) ...", file=sys.stderr)
    small = shrink(plan, lambda smaller: not run_plan(smaller).is_good, within_s=shrink_s)
    path = Path(f"seed-{plan.seed}.json")
    path.write_text(encode_plan(small))
    print(
        f"{len(plan.faults)} faults and {len(plan.clients)} clients came down to "
        f"{len(small.faults)} and {len(small.clients)}:",
        file=sys.stderr,
    )
    for client in small.clients:
        print(f"  {client.name}: {client.operations} operations", file=sys.stderr)
    for fault in small.faults:
        print(f"  {fault}", file=sys.stderr)
    print(
        f"again: oncelog sim --schedule {path} --history failed.jsonl\n"
        f"all of it: oncelog sim --seed {plan.seed}",
        file=sys.stderr,
    )


class _Progress:
    """One line that says how far it has come, on a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out if out.isatty() else None
        self._began = time.monotonic()
        self._seeds = self._transactions = self._faults = 0
        self._virtual_s = 0.0

    def add(self, result: Result) -> None:
        self._seeds += 1
        self._transactions += result.transactions
        self._faults += result.faults
        self._virtual_s += result.virtual_s
        if self._out is not None:
            self._out.write(f"\r\x1b[K{self.line()}")
            self._out.flush()

    def end(self) -> None:
        if self._out is not None:
            self._out.write("\r\x1b[K")

    def line(self) -> str:
        took = max(time.monotonic() - self._began, 0.001)
        return (
            f"{self._seeds} seeds, {self._transactions} transactions, {self._faults} faults, "
            f"{self._virtual_s / 60:.0f} virtual minutes in {took:.0f} s by the clock "
            f"({self._transactions / took:.0f} transactions and {self._faults / took:.0f} faults a "
            "second)"
        )


def duration(text: str) -> float:
    """A span of time: 90s, 10m, 1h, or seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        span = float(number) * UNITS[unit]
    except ValueError:
        span = 0.0
    if not 0 < span < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time: write 90s, 10m or 1h.")
    return span


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 62):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number.")
    return int(text)


def _jobs(text: str) -> int:
    number = _whole(text)
    if not 1 <= number <= 256:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes.")
    return number
