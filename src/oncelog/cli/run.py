"""`oncelog run`: a pipeline from a file, on Spark, with its progress on the terminal."""

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.cli.failure import CommandFailed
from oncelog.cli.options import assignment, seconds
from oncelog.cli.with_spark import spark_installed
from oncelog.client.errors import ClientError

if TYPE_CHECKING:
    from oncelog.observe.terminal import Terminal
    from oncelog.spark.pipeline import Summary

SUMMARY: Final = """\
Run the pipeline in a Python file on Apache Spark, until it is done or told to stop. SIGTERM and Ctrl-C
let the present batch be committed."""

EXAMPLE: Final = """\
  oncelog run invoices.py
  oncelog run invoices.py --trigger available_now --master spark://head:7077

The file holds a pipeline in a variable, or has a function pipeline() that returns one. It is
exactly where it was when it is started again, here or on another machine."""

#: Loggers of PySpark that print Java's stack beside the exception that says it in a sentence.
_REPETITIVE: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "py4j")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument("file", type=Path, help="a Python file with a Pipeline")
    parser.add_argument("--name", help="which pipeline, if the file has several")
    parser.add_argument("--master", metavar="URL", help="where Spark runs (default: this machine)")
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        type=assignment,
        action="append",
        default=[],
        help="a setting of Spark (repeatable)",
    )
    parser.add_argument(
        "--trigger",
        metavar="WHEN",
        type=trigger,
        help="available_now, once, or seconds between batches, instead of the pipeline's own",
    )
    parser.add_argument("--verbose", action="store_true", help="show what Spark says, too")


def trigger(text: str) -> str | float:
    """A trigger by its name, or a number of seconds."""
    return text if text in ("available_now", "once") else seconds(text)


def run(args: argparse.Namespace) -> int:
    """Run it, and print what it did."""
    _check_file(args.file)
    with spark_installed():
        from oncelog.observe.terminal import Terminal
        from oncelog.spark.errors import PipelineError
        from oncelog.spark.own_error import own_sentence, own_traceback
    terminal = Terminal(sys.stderr)
    _log_to(terminal, is_verbose=args.verbose)
    log = None if args.verbose else _log_file()
    try:
        print(_run(args, terminal, log))
    except (PipelineError, ClientError) as error:
        _remove(log)
        raise CommandFailed(str(error)) from error
    except Exception as error:
        if (sentence := own_sentence(error)) is not None:
            _remove(log)
            raise CommandFailed(sentence) from error
        # Whatever else it is, it comes from the user's own code.
        terminal.say(own_traceback(error))
        where = f"; Spark's own log is {log}." if log else "."
        raise CommandFailed(f"{args.file} failed{where}") from error
    _remove(log)
    return 0


def _run(args: argparse.Namespace, terminal: "Terminal", log: Path | None) -> "Summary":
    from oncelog.spark.display import Display
    from oncelog.spark.launch import LOCAL, load, pipeline_of, start_spark

    terminal.say("starting Spark ...")
    session = start_spark(
        args.file.stem,
        master=args.master or LOCAL,
        conf=dict(args.conf),
        beside=args.file.parent,
        log=log,
    )
    try:
        pipeline = pipeline_of(load(args.file), args.name)
        if args.trigger is not None:
            pipeline.trigger = args.trigger
        with Display(terminal, pipeline.name) as display:
            pipeline.sink.watched_by(display.step)
            return pipeline.run(session, on_batch=display.batch)
    finally:
        session.stop()


def _remove(log: Path | None) -> None:
    if log is not None:
        log.unlink(missing_ok=True)


def _log_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="oncelog-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


def _check_file(path: Path) -> None:
    """What is wrong with the file itself is said before Spark starts."""
    try:
        compile(path.read_bytes(), path, "exec")
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        raise CommandFailed(f"{path} is not Python: {error}.") from error


def _log_to(terminal: "Terminal", *, is_verbose: bool) -> None:
    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            terminal.say(self.format(record))

    logging.basicConfig(
        level="INFO" if is_verbose else "WARNING",
        format="%(message)s",
        handlers=[Lines()],
        force=True,
    )
    if not is_verbose:
        for name in _REPETITIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
