"""`python -m bench scale`: how start, stop and memory grow with what a broker has to know.

A process of its own fills a directory through the broker's own code and ends without a word, as in a
crash. Then a broker starts on it three times: after that crash, after an orderly stop, and on nothing
at all to compare with. Growth is linear when each item costs the same at both sizes.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from oncelog.core.batch import read_header
from oncelog.core.records import KeyValue, encode_batch
from oncelog.runtime.clock import LoopClock
from oncelog.runtime.config import BrokerConfig
from oncelog.runtime.node import Node
from oncelog.runtime.partition import Partition
from oncelog.server.broker import BrokerCore
from oncelog.storage.disk import RealDisk

READY: Final = "oncelog listening on "
STOP_TIMEOUT_S: Final = 300.0
#: Nobody waits for a reply meanwhile, but others may want to run.
AT_ONCE: Final = 500

SUMMARY: Final = """\
Fill a data directory with many transactional ids, producer ids or partitions, and measure how long a
broker takes to start on it (after a crash that left nothing synced, and after an orderly stop), how
long to stop, and how much memory it holds once it has started. The stop is the one after the crash:
recovery has written the snapshots by then, so a broker whose logs were all written to takes longer."""

EXAMPLE: Final = """\
example:
  python -m bench scale --what ids --sizes 10000,100000

By default all three are measured: 10,000 and 100,000 transactional ids, 100,000 and 1,000,000 producer
ids in one partition, 1,000 and 10,000 partitions with a record each."""

Fill = Callable[[Node, int], Coroutine[Any, Any, None]]


async def _fill_ids(node: Node, count: int) -> None:
    await node.ensure_transaction_topic()
    for number in range(count):
        await node.transactions.init_producer_id(f"transactional-{number}", 60_000, None)
        await _breathe(number)


async def _fill_producers(node: Node, count: int) -> None:
    await node.create_topic("producers", 1)
    partition = node.partition("producers", 0)
    for number in range(count):
        _append(node, partition, producer_id=number)
        await _breathe(number)


async def _fill_partitions(node: Node, count: int) -> None:
    await node.create_topic("partitions", count)
    for number in range(count):
        _append(node, node.partition("partitions", number), producer_id=number)
        await _breathe(number)


def _append(node: Node, partition: Partition, *, producer_id: int) -> None:
    now = node.clock.now()
    batch = encode_batch(
        [KeyValue(b"key", b"value")],
        timestamp_ms=now.wall_ms,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    partition.append_from_client(memoryview(batch), read_header(batch), now)


async def _breathe(number: int) -> None:
    if number % AT_ONCE == 0:
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Something that there may be much of."""

    name: str
    fill: Fill
    sizes: tuple[int, ...]


LOADS: Final[Mapping[str, Load]] = {
    "ids": Load(name="transactional ids", fill=_fill_ids, sizes=(10_000, 100_000)),
    "producers": Load(name="producer ids", fill=_fill_producers, sizes=(100_000, 1_000_000)),
    "partitions": Load(name="partitions", fill=_fill_partitions, sizes=(1_000, 10_000)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one directory gave."""

    name: str
    count: int
    crashed_start_s: float
    clean_start_s: float
    stop_s: float
    resident_mb: float


def main(argv: Sequence[str]) -> int:
    """Measure what was asked for, and print it."""
    args = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="oncelog-scale-", dir=args.dir) as name:
        nothing = _measure(Path(name) / "nothing", "nothing", _fill_ids, 0)
        results = []
        for what in args.what:
            load = LOADS[what]
            for count in args.sizes or load.sizes:
                print(f"  {count:,} {load.name} ...", file=sys.stderr, flush=True)
                directory = Path(name) / f"{what}-{count}"
                results.append(_measure(directory, load.name, load.fill, count))
                print(f"  {results[-1]}", file=sys.stderr, flush=True)
    print(render(nothing, results))
    return 0


def _measure(data: Path, name: str, fill: Fill, count: int) -> Measured:
    context = multiprocessing.get_context("spawn")
    filler = context.Process(target=_run_filler, args=(data, fill, count))
    filler.start()
    filler.join()
    if filler.exitcode != 0:
        raise SystemExit(f"bench scale: {data} could not be filled")
    crashed_start_s, stop_s, _ = _start_and_stop(data)
    # What the first start had to mend, this one finds in order.
    clean_start_s, _, resident_mb = _start_and_stop(data)
    return Measured(
        name=name,
        count=count,
        crashed_start_s=crashed_start_s,
        clean_start_s=clean_start_s,
        stop_s=stop_s,
        resident_mb=resident_mb,
    )


def _run_filler(data: Path, fill: Fill, count: int) -> None:
    data.mkdir(parents=True)
    asyncio.run(_fill(data, fill, count))
    os._exit(0)  # Nothing is closed, nothing is synced.


async def _fill(data: Path, fill: Fill, count: int) -> None:
    config = BrokerConfig().with_values({"oncelog.flush": "os"}, origin="bench scale")
    core = BrokerCore(config, RealDisk(data), clock=LoopClock())
    await core.open()
    await fill(core.node, count)


def _start_and_stop(data: Path) -> tuple[float, float, float]:
    """Seconds to start, seconds to stop, and the memory in between, in MB."""
    line = [sys.executable, "-m", "oncelog", "serve", "--data", str(data),
            "--listen", "127.0.0.1:0", "--flush", "os", "--log-level", "error"]  # fmt: skip
    began = time.monotonic()
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None, "it was asked for"
            _wait_until_ready(process.stdout)
            start_s = time.monotonic() - began
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    return start_s, time.monotonic() - began, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _wait_until_ready(output: IO[str]) -> None:
    line = output.readline()
    if not line.startswith(READY):
        raise SystemExit(f"bench scale: the broker said {line!r}")


HEADINGS: Final = (
    "what", "how many", "start after a crash", "clean start", "stop", "memory",
    "clean start for each", "memory for each",
)  # fmt: skip


def render(nothing: Measured, results: Sequence[Measured]) -> str:
    """The table; what each item costs is counted from a broker that has nothing to know."""
    lines = [HEADINGS, *(_cells(nothing, each) for each in (nothing, *results))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    ruler = tuple("-" * width for width in widths)
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        + " |"
        for cells in (lines[0], ruler, *lines[1:])
    )


def _cells(nothing: Measured, each: Measured) -> tuple[str, ...]:
    start_each = memory_each = "-"
    if each.count:
        start_us = (each.clean_start_s - nothing.clean_start_s) / each.count * 1e6
        start_each = f"{start_us:.1f} µs"
        memory_each = f"{(each.resident_mb - nothing.resident_mb) / each.count * 1e6:,.0f} bytes"
    return (
        each.name,
        f"{each.count:,}",
        f"{each.crashed_start_s:.2f} s",
        f"{each.clean_start_s:.2f} s",
        f"{each.stop_s:.2f} s",
        f"{each.resident_mb:.0f} MB",
        start_each,
        memory_each,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench scale",
        description=SUMMARY,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def loads(text: str) -> list[str]:
        for name in text.split(","):
            if name not in LOADS:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(LOADS)}")
        return text.split(",")

    def sizes(text: str) -> list[int]:
        return [int(size) for size in text.split(",")]

    parser.add_argument(
        "--what",
        type=loads,
        default=list(LOADS),
        metavar="NAME,...",
        help=f"only these: {', '.join(LOADS)}",
    )
    parser.add_argument(
        "--sizes", type=sizes, metavar="N,...", help="how many of each, instead of the usual"
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="where the directories are made (the system's own)"
    )
    return parser
