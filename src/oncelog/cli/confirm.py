"""Nothing that ends other people's work happens without a yes."""

import argparse
import sys

from oncelog.cli.failure import CommandFailed, Misused


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Let a script say yes beforehand."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def confirm(args: argparse.Namespace, what: str) -> None:
    """Go on only if somebody wants it: a person at the terminal, or a script with --yes."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise Misused(f"{what} Nobody is here to be asked: add --yes to do it.")
    print(f"{what} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("Nothing was done.")
