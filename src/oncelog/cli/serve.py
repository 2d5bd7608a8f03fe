"""`oncelog serve`: run a broker until it is told to stop."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from oncelog.cli import logs
from oncelog.cli.failure import CommandFailed
from oncelog.cli.options import address
from oncelog.runtime.config import BrokerConfig, load_config

SUMMARY: Final = """\
Run a broker. It prints "oncelog listening on HOST:PORT" when clients may come, writes its log to
standard error, and on SIGTERM or SIGINT finishes what is under way and exits with 0."""

EXAMPLE: Final = """\
  oncelog serve --data ./data --listen 127.0.0.1:9092 --set log.retention.hours=24

Settings come from --config (TOML), then from the environment (log.retention.ms is
ONCELOG_LOG_RETENTION_MS), then from --set; the last one wins."""

DEFAULT_LISTEN: Final = "127.0.0.1:9092"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument(
        "--data", metavar="DIR", type=Path, required=True, help="where the log lives; made if new"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=address,
        default=DEFAULT_LISTEN,
        help="where clients connect; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        type=address,
        help="the address that clients are told to use, if it is another one",
    )
    parser.add_argument(
        "--flush",
        choices=("sync", "os"),
        help="when acks=all is answered: once the disk has the record (sync, the default), or once "
        "the operating system has it (os)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        type=address,
        help="where Prometheus finds /metrics and others /healthz; not served by default, and to "
        "everybody who reaches it if it is",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings in TOML")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="one setting"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info")
    parser.add_argument(
        "--loop",
        choices=("auto", "asyncio"),
        default="auto",
        help="the event loop: uvloop where it is installed (auto), or Python's own",
    )


def run(args: argparse.Namespace) -> int:
    """Run a broker until it is told to stop."""
    if sys.flags.optimize:
        # What only we could have caused is asserted, and python -O would leave that out.
        raise CommandFailed("A broker does not run under python -O: it relies on its assertions.")
    logs.configure(form=args.log_format, level=args.log_level)
    config = load_config(file=args.config, environment=os.environ, assignments=args.set)
    if args.flush is not None:
        config = config.with_values({"oncelog.flush": args.flush}, origin="--flush")
    with asyncio.Runner(loop_factory=_loop_factory(args.loop)) as runner:
        runner.run(_serve(args, config))
    return 0


def _loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if choice == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(args: argparse.Namespace, config: BrokerConfig) -> None:
    from oncelog.server.broker import Broker, StartError
    from oncelog.server.heap import keep_freed_memory

    # Only here, where the process is ours: a broker inside a test leaves its host's memory alone.
    keep_freed_memory()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(config, args.data, args.listen, args.advertise, metrics=args.metrics)
    try:
        await broker.start()
    except StartError as error:
        raise CommandFailed(str(error)) from error
    try:
        print(f"oncelog listening on {_shown(args.listen[0])}:{broker.port}", flush=True)
        if args.metrics is not None:
            address_ = f"{_shown(args.metrics[0])}:{broker.metrics_port}"
            print(f"oncelog metrics on http://{address_}/metrics", flush=True)
        await stop.wait()
        # Whoever asks a second time does not want to wait.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    finally:
        await broker.stop()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
