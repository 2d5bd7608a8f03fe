"""`oncelog soak`: a long run of mixed load with kills, watched and audited."""

import argparse
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from oncelog.cli.failure import CommandFailed
from oncelog.cli.options import duration
from oncelog.observe.terminal import Terminal

SUMMARY: Final = """\
A broker in a process of its own under bounded load: transactional copiers, aborts, a plain group, a topic
with retention, a slow reader. Broker and copiers are killed on a seeded schedule; memory, handles,
disk and commit times are watched, and at the end everything is read and the history is judged."""

EXAMPLE: Final = """\
  oncelog soak --for 10m
  oncelog soak --for 1h --seed 7 --kill-every 10s --dir ./soak --json soak.json

The broker is killed in the first half only: in the second one it lives long enough for growth to
show. The history takes about 3 MB a minute. The exit code is the audit's: 0 if nothing was lost,
doubled, torn or shown too early."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument(
        "--for", dest="span", metavar="TIME", type=duration, default=600.0,
        help="how long, as 90s, 10m or 1h (default: 10m)",
    )  # fmt: skip
    parser.add_argument(
        "--dir", type=Path, help="keep data, logs and history in this new directory"
    )
    parser.add_argument("--seed", type=int, default=1, help="other kills (default: %(default)s)")
    parser.add_argument(
        "--kill-every", metavar="TIME", type=duration, default=20.0,
        help="about how often somebody is killed (default: 20s)",
    )  # fmt: skip
    parser.add_argument("--no-kills", action="store_true", help="kill nobody")
    parser.add_argument(
        "--flush", choices=("sync", "os"), default="sync",
        help="whether the broker syncs what it acknowledges (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--history", type=Path, help="write the history here")
    parser.add_argument("--json", type=Path, help="write the summary and every sample here")


def run(args: argparse.Namespace) -> int:
    """Run the soak, and answer with its audit."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise CommandFailed("The load needs confluent-kafka: pip install 'oncelog[apps]'.")
    if args.dir is not None:
        return _soak(args, args.dir)
    directory = Path(tempfile.mkdtemp(prefix="oncelog-soak-"))
    code = 1
    try:
        code = _soak(args, directory)
    finally:
        # Whoever has to find out what went wrong needs all of it.
        if code == 0:
            shutil.rmtree(directory)
        else:
            print(f"oncelog: data, logs and history are in {directory}", file=sys.stderr)
    return code


def _soak(args: argparse.Namespace, directory: Path) -> int:
    from oncelog.testing.soak.process import NotMeasurable
    from oncelog.testing.soak.run import Plan, SoakFailed, soak
    from oncelog.testing.soak.summary import as_text

    plan = Plan(
        duration_s=args.span,
        directory=directory,
        history=args.history or directory / "history.jsonl",
        seed=args.seed,
        kill_every_s=None if args.no_kills else args.kill_every,
        flush=args.flush,
        json=args.json,
    )
    terminal = Terminal(sys.stderr)
    try:
        summary = soak(plan, show=terminal.show, say=terminal.say)
    except (SoakFailed, NotMeasurable) as error:
        raise CommandFailed(str(error)) from error
    finally:
        terminal.clear()
    print(as_text(summary))
    return 0 if summary.is_good else 1
