"""`oncelog demo`: see it work, and survive."""

import argparse
from typing import Final

from oncelog.cli.failure import CommandFailed
from oncelog.cli.options import count
from oncelog.cli.with_spark import spark_installed

SUMMARY: Final = """\
A broker, a stream of orders and a Spark job that splits and sums it, with the driver, a worker and the
broker killed on the way; an audit at the end, and the same again at least once for comparison."""

EXAMPLE: Final = """\
  oncelog demo
  oncelog demo --records 50000 --seed 7 --keep

The exit code is the audit's: 0 if every order came out exactly once."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument(
        "--records", metavar="N", type=count, default=20_000, help="orders (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="other orders, other aborts (default: %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="leave logs and data behind")
    parser.add_argument("--verbose", action="store_true", help="show what Spark says, too")


def run(args: argparse.Namespace) -> int:
    """Run the demo, and answer with its audit."""
    with spark_installed():
        from oncelog.demo.driver import DemoFailed
        from oncelog.demo.show import show
    try:
        return show(args.records, args.seed, keeps=args.keep, is_verbose=args.verbose)
    except DemoFailed as error:
        raise CommandFailed(str(error)) from error
