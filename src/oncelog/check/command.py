"""`oncelog check HISTORY...`: judge recorded runs.

Exit codes, for scripts: 0 all valid, 1 an anomaly, 2 a history that cannot be read, 3 a floor
missed. With several histories, an anomaly outweighs an unreadable file, and that a missed floor.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from oncelog.check.history import Event, Unreadable, open_history
from oncelog.check.verdict import Verdict, as_json, as_text, judge

SUMMARY: Final = "judge recorded runs: is anything lost, doubled, moved or out of order?"
EXAMPLE: Final = "example: oncelog check run-4711.jsonl"

VALID: Final = 0
ANOMALY: Final = 1
UNREADABLE: Final = 2
INCONCLUSIVE: Final = 3

PROGRESS_EVENTS: Final = 100_000  # between two looks at how far it has come

_CODES: Final = {
    Verdict.VALID: VALID,
    Verdict.INVALID: ANOMALY,
    Verdict.INCONCLUSIVE: INCONCLUSIVE,
}
_GRAVEST_FIRST: Final = (ANOMALY, UNREADABLE, INCONCLUSIVE, VALID)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument(
        "histories", nargs="+", type=Path, metavar="HISTORY", help="a file, or - for standard input"
    )
    parser.add_argument(
        "--no-floors",
        action="store_true",
        help="judge a small history without asking whether enough happened in it",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per history")


def run(args: argparse.Namespace) -> int:
    """Judge every history given and answer the exit code."""
    codes = {_check(path, args.json, with_floors=not args.no_floors) for path in args.histories}
    return next(code for code in _GRAVEST_FIRST if code in codes)


def main(argv: Sequence[str] | None = None) -> int:
    """The same as a command of its own."""
    parser = argparse.ArgumentParser(prog="oncelog check", description=SUMMARY, epilog=EXAMPLE)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def _check(path: Path, wants_json: bool, *, with_floors: bool) -> int:
    try:
        history = open_history(path)
        if sys.stderr.isatty():
            history = history._replace(events=_counted(history.events, sys.stderr))
        report = judge(history, with_floors=with_floors)
    except Unreadable as error:
        if wants_json:
            print(
                json.dumps(
                    {
                        "source": error.source,
                        "verdict": "unreadable",
                        "line": error.line,
                        "why": error.why,
                    }
                )
            )
        print(f"unreadable: {error}", file=sys.stderr)
        return UNREADABLE
    print(json.dumps(as_json(report)) if wants_json else as_text(report))
    return _CODES[report.verdict]


def _counted(events: Iterator[Event], terminal: TextIO) -> Iterator[Event]:
    """The same events; whoever waits for them on a terminal sees how far it has come."""
    for event in events:
        if event.n and event.n % PROGRESS_EVENTS == 0:
            terminal.write(f"\r{event.n / 1e6:.1f} million events read")
            terminal.flush()
        yield event
    terminal.write("\r\033[K")  # the line goes when the verdict comes
    terminal.flush()
