"""Options that several commands share, and how their texts are read."""

import argparse
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

from oncelog.client.addresses import Address, parse_address, parse_bootstrap
from oncelog.client.errors import BadAddress

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
BOOTSTRAP_VARIABLE: Final = "ONCELOG_BOOTSTRAP"
UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


def described(
    parser: argparse.ArgumentParser, description: str, example: str
) -> argparse.ArgumentParser:
    """Give a parser what its --help shows around the list of arguments."""
    parser.description = description
    parser.epilog = f"example:\n{example}" if example.startswith(" ") else example
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Where the broker is, and how long to wait for it."""
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        type=bootstrap,
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        help="a broker, or several with commas between (default: %(default)s)",
    )
    parser.add_argument(
        "--request-timeout",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="how long the broker may take to answer (default: %(default)g)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Print for programs instead of people."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def bootstrap(text: str) -> str:
    """A list of brokers that can be read."""
    _read(parse_bootstrap, text)
    return text


def address(text: str) -> Address:
    """HOST:PORT, the port included."""
    return _read(lambda given: parse_address(given, default_port=None), text)


def _read(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except BadAddress as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def assignment(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: write it as NAME=VALUE.")
    return name, value


def seconds(text: str) -> float:
    """A span of time above zero."""
    try:
        span = float(text)
    except ValueError:
        span = 0.0
    if not 0 < span < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0.")
    return span


def duration(text: str) -> float:
    """A span of time with its unit, as `90s`, `10m` or `1h`; in seconds."""
    factor = UNITS_S.get(text[-1:])
    if factor is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no unit: write it as 90s, 10m or 1h.")
    return seconds(text[:-1]) * factor


def count(text: str) -> int:
    """A whole number above zero."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0.")
    return int(text)


def partition(text: str) -> int:
    """The number of a partition."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a partition.")
    return int(text)


def instant(text: str) -> int:
    """A time as ISO 8601 says it, in UTC where it names no zone; in milliseconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write it like 2026-01-31T08:00:00Z."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
