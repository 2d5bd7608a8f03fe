"""Commands with verbs, such as `topic create`: each verb is a coroutine that is given a cluster."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from oncelog.cli.client_config import add_client_config, settings_of
from oncelog.cli.options import add_connection, described
from oncelog.client.cluster import Cluster

Verb = Callable[[Cluster, argparse.Namespace], Awaitable[None]]


def add_verb(verbs: Any, name: str, verb: Verb, summary: str, example: str) -> Any:
    """Give a command one more verb, and get the parser for its arguments."""
    parser = verbs.add_parser(name, help=summary)
    described(parser, f"{summary[0].upper()}{summary[1:]}.", example)
    add_connection(parser)
    add_client_config(parser)
    parser.set_defaults(run=lambda args: run_connected(args, verb))
    return parser


def run_connected(args: argparse.Namespace, verb: Verb) -> int:
    """Run a verb, or a command without verbs, against the cluster that the arguments name."""

    async def connected() -> None:
        async with await Cluster.connect(settings_of(args)) as cluster:
            await verb(cluster, args)

    asyncio.run(connected())
    return 0
