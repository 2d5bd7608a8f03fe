"""`oncelog COMMAND ...`: finds the command, runs it, and turns what goes wrong into a sentence.

Each command is a module with a SUMMARY, an EXAMPLE, `add_arguments(parser)` and, unless it has verbs
(`cli/verbs.py`), `run(args)`, which answers the exit code. Only the chosen one is imported, so that
a broker starts without the clients.

Exit codes: 0 it is done, 1 it failed, 2 it was asked for wrongly, 130 it was interrupted.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from oncelog import __version__
from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.options import described
from oncelog.client.errors import ClientError
from oncelog.core.errors import BrokerError

#: Each command, the module that holds it, and a line about it.
COMMANDS: Final = {
    "serve": ("oncelog.cli.serve", "run a broker"),
    "topic": ("oncelog.cli.topic", "create, list, describe, alter and delete topics"),
    "produce": ("oncelog.cli.produce", "write lines from standard input to a topic"),
    "consume": ("oncelog.cli.consume", "print the records of a topic"),
    "group": ("oncelog.cli.group", "list, describe, reset and delete consumer groups"),
    "txn": ("oncelog.cli.txn", "list, describe, find, abort and fence transactions"),
    "producers": ("oncelog.cli.producers", "who writes to a topic, and who holds up its readers"),
    "app": ("oncelog.cli.app", "run a service of transactional functions and listeners"),
    "run": ("oncelog.cli.run", "run a pipeline on Apache Spark"),
    "pipeline": ("oncelog.cli.pipeline", "how far pipelines have come; move or forget them"),
    "demo": ("oncelog.cli.demo", "see exactly-once at work, with everything killed on the way"),
    "check": ("oncelog.check.command", "judge recorded runs: lost, doubled or moved records"),
    "sim": ("oncelog.testing.sim.command", "run the broker under simulated faults, seed by seed"),
    "soak": ("oncelog.cli.soak", "run mixed load with kills for a long time, and audit it"),
}

EXAMPLE: Final = """\
  oncelog serve --data ./data
  oncelog topic create orders --partitions 3
  echo hello | oncelog produce orders
  oncelog consume orders --max 1

Every command has its own --help. Commands that talk to a broker take --bootstrap HOST:PORT, or
ONCELOG_BOOTSTRAP from the environment."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    args = parser_for(words).parse_args(words)
    try:
        code: int = args.run(args)
        sys.stdout.flush()  # a pipe that is gone is noticed here and not at exit
        return code
    except BrokenPipeError:
        # Whoever read our output has had enough, which is no failure. What is left in the buffer
        # goes nowhere, so that Python does not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (ClientError, CommandFailed, BrokerError) as error:
        print(f"oncelog: {error}", file=sys.stderr)
        return 2 if isinstance(error, Misused) else 1


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the arguments of the one command that the words begin with."""
    parser = described(
        argparse.ArgumentParser(prog="oncelog"),
        "A transactional log that speaks the Kafka protocol.",
        EXAMPLE,
    )
    parser.add_argument("--version", action="version", version=f"oncelog {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = next((word for word in words if not word.startswith("-")), None)
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == chosen:
            module = importlib.import_module(module_name)
            described(command, module.SUMMARY, module.EXAMPLE)
            module.add_arguments(command)
            # A command with verbs has no `run`: each of its verbs says what runs.
            if hasattr(module, "run"):
                command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
