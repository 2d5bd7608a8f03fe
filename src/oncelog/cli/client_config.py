"""`--client-config`: TLS, SASL and other client settings from a file, as Kafka's own tools take them."""

import argparse
from dataclasses import replace
from pathlib import Path

from oncelog.cli.failure import CommandFailed
from oncelog.client.settings import ClientSettings, parse_settings


def add_client_config(parser: argparse.ArgumentParser) -> None:
    """How to be let into a cluster that does not let everybody in."""
    parser.add_argument(
        "--client-config",
        metavar="FILE",
        type=Path,
        help="client settings such as security.protocol and sasl.jaas.config, NAME=VALUE in each "
        "line, as for Kafka's own tools",
    )


def settings_of(args: argparse.Namespace) -> ClientSettings:
    """What the arguments and the file say together; the address is the arguments'."""
    given = {} if args.client_config is None else read_properties(args.client_config)
    settings = parse_settings({**given, "bootstrap.servers": args.bootstrap})
    return replace(settings, timeout_s=args.request_timeout)


def read_properties(path: Path) -> dict[str, str]:
    """A file of NAME=VALUE lines; empty lines and those that begin with # or ! say nothing."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"--client-config {path} cannot be read: {error}.") from error
    found = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The line itself may hold a password.
            raise CommandFailed(f"--client-config {path}, line {number}: write NAME=VALUE.")
        found[name.strip()] = value.strip()
    return found
