"""`python -m bench`: start both, measure in turns, print the table."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from bench import scale, turns
from bench.load import LoadFailed
from bench.quiet import Quiet
from bench.rows import FULL, MODES, QUICK, Kind, Scale, kinds
from bench.servers import contenders
from bench.table import Result, render
from oncelog import __version__
from tests.peers.java import JavaFailed, is_complete
from tests.peers.kafka import KafkaFailed
from tests.peers.oncelog import OncelogFailed

#: The name of all rows that begin with it.
SPARK: Final = "spark"

EXAMPLE: Final = """\
example:
  python -m bench --quick --rows produce,consume --mode os --json bench.json

A ratio is ours divided by Kafka's, the median of all rounds. With --mode sync both sync every
batch before they acknowledge it; with --mode os both leave that to the operating system.

The rows of Spark compare two clients on one server: our source and exactly-once sink, and Spark's own
connector, which is at-least-once.

`python -m bench scale` measures Oncelog alone: how start, stop and memory grow (see its --help)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["scale"]:
        return scale.main(argv[1:])
    known = kinds()
    args = _parser(known).parse_args(argv)
    if not is_complete():
        print("Apache Kafka is measured too: fetch it with `make peers`.", file=sys.stderr)
        return 2
    chosen = QUICK if args.quick else FULL
    if args.rounds is not None:
        chosen = replace(
            chosen, rounds=args.rounds, start_rounds=args.rounds, long_rounds=args.rounds
        )
    modes = MODES if args.mode == "both" else (args.mode,)
    quiet = Quiet(chosen.quiet_budget_s)
    try:
        results = [
            result
            for mode in modes
            for result in _run(mode, [known[name] for name in args.rows], chosen, quiet)
        ]
    except (LoadFailed, KafkaException, JavaFailed, KafkaFailed, OncelogFailed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(render(results))
    if quiet.disturbed:
        print(f"\n{quiet.disturbed} of {quiet.rounds} rounds began while the machine was busy.")
    if args.json is not None:
        args.json.write_text(json.dumps(_report(results, chosen, quiet), indent=2) + "\n")
    return 0


def _run(mode: str, chosen: Sequence[Kind], scale: Scale, quiet: Quiet) -> list[Result]:
    pair = contenders(mode)
    try:
        return [
            result
            for kind in chosen
            if mode in kind.modes
            for result in turns.measure(
                kind, kind.sides(pair), scale, mode=mode, wait=quiet.wait, say=_say
            )
        ]
    finally:
        for contender in pair:
            contender.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _report(results: Sequence[Result], scale: Scale, quiet: Quiet) -> Mapping[str, object]:
    return {
        "oncelog": __version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "bulk_records": scale.bulk_records,
        "ack_records": scale.ack_records,
        "transactions_s": scale.transactions_s,
        "commits": scale.commits,
        "spark_rows": scale.spark_rows,
        "rounds": quiet.rounds,
        "disturbed_rounds": quiet.disturbed,
        "results": [result.as_json() for result in results],
    }


def _parser(known: Mapping[str, Kind]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Oncelog beside Apache Kafka 4.3, in turns, with the same client.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def rows(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in (*known, SPARK):
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}, {SPARK}")
        return [
            name
            for name in known
            if name in names or (SPARK in names and name.startswith(f"{SPARK}-"))
        ]

    parser.add_argument("--quick", action="store_true", help="small counts: about a minute")
    parser.add_argument(
        "--rows",
        type=rows,
        default=list(known),
        metavar="NAME,...",
        help=f"only these: {', '.join(known)}; {SPARK} means all of Spark's",
    )
    parser.add_argument(
        "--mode", choices=(*MODES, "both"), default="both", help="durability (both)"
    )
    parser.add_argument("--rounds", type=_count, metavar="N", help="rounds of each row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here as well")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 100:
        raise argparse.ArgumentTypeError("between 1 and 100")
    return count


if __name__ == "__main__":
    sys.exit(main())
