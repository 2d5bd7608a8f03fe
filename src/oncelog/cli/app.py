"""`oncelog app run`: the listeners of an app, with a line for each on the terminal."""

import argparse
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from oncelog.cli.failure import CommandFailed
from oncelog.cli.logs import LEVELS, JsonLines, TextLines
from oncelog.cli.options import described
from oncelog.core.plural import plural
from oncelog.observe.terminal import Terminal

if TYPE_CHECKING:
    from oncelog.apps import App, Counts

SUMMARY: Final = "Run services that are made of transactional functions and listeners."

EXAMPLE: Final = """\
  oncelog app run billing:app
  oncelog app run services/billing.py:app --log-level info"""

_RUN_EXAMPLE: Final = """\
  oncelog app run billing:app
  oncelog app run services/billing.py:app --log-format json

The module is looked for in the present directory first. SIGTERM and Ctrl-C let what is begun be
committed. Killed and started again, here or elsewhere, the service goes on where its last commit was."""

_TICK_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    run_parser = verbs.add_parser("run", help="run the listeners of an app until told to stop")
    described(run_parser, "Run the listeners of an app until told to stop.", _RUN_EXAMPLE)
    run_parser.add_argument(
        "target", metavar="MODULE:APP", help="a module or a file, and the name of its oncelog.App"
    )
    run_parser.add_argument(
        "--log-level", choices=LEVELS, default="warning", help="(default: %(default)s)"
    )
    run_parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="(default: %(default)s)"
    )
    run_parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it, and print what it did."""
    terminal = Terminal(sys.stderr)
    _log_to(terminal, form=args.log_format, level=args.log_level)
    app = load(args.target)
    from oncelog.apps.errors import AppError

    try:
        with _shown(app, terminal):
            app.run()
    except AppError as error:
        raise CommandFailed(str(error)) from error
    finally:
        app.close()
    for name, counts in app.counts().items():
        print(line(name, counts))
    return 0


# --- the app --------------------------------------------------------------------------------


def load(target: str) -> "App":
    """The app that MODULE:APP names; whatever is wrong with that becomes a sentence."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise CommandFailed(f"{target!r}: write it as MODULE:APP, such as billing:app.")
    try:
        from oncelog.apps import App
    except ImportError as error:
        raise CommandFailed(str(error)) from error
    module = _module(place)
    found = getattr(module, name, None)
    if isinstance(found, App):
        return found
    apps = sorted(key for key, value in vars(module).items() if isinstance(value, App))
    has = f"its apps are {', '.join(apps)}" if apps else "there is no oncelog.App in it"
    raise CommandFailed(f"{place} has no app {name!r}: {has}.")


def _module(place: str) -> ModuleType:
    is_file = place.endswith(".py")
    directory = Path(place).resolve().parent if is_file else Path.cwd()
    sys.path.insert(0, str(directory))
    name = Path(place).stem if is_file else place
    if is_file and not Path(place).is_file():
        raise CommandFailed(f"There is no file {place}.")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise CommandFailed(f"{place} imports {error.name}, which is not there.") from error
        raise CommandFailed(f"There is no module {name} in {directory}, nor elsewhere.") from error
    except (SyntaxError, ValueError, TypeError) as error:
        raise CommandFailed(f"{place} cannot be imported: {error}.") from error


# --- what people see ------------------------------------------------------------------------


def line(name: str, counts: "Counts") -> str:
    """What a listener has done, in one line."""
    parts = [
        name,
        plural(counts.records, "record"),
        plural(counts.transactions, "transaction"),
        plural(counts.aborts, "abort"),
        f"lag {counts.lag:,}",
    ]
    if counts.dead_letters:
        parts.insert(2, plural(counts.dead_letters, "dead letter"))
    return " · ".join(parts)


@contextmanager
def _shown(app: "App", terminal: Terminal) -> Iterator[None]:
    """Keep a line for each listener up to date."""
    is_over = threading.Event()

    def tick() -> None:
        while not is_over.wait(_TICK_S):
            terminal.show(*(line(name, counts) for name, counts in app.counts().items()))

    ticking = threading.Thread(target=tick, name="oncelog-display", daemon=True)
    ticking.start()
    try:
        yield
    finally:
        is_over.set()
        ticking.join()
        terminal.clear()


def _log_to(terminal: Terminal, *, form: str, level: str) -> None:
    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            terminal.say(self.format(record))

    handler: Any = Lines()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
