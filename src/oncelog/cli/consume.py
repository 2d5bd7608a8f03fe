"""`oncelog consume`: print the records of a topic."""

import argparse
import asyncio
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.options import add_connection, count, instant, partition, seconds
from oncelog.cli.record_text import as_json, as_plain
from oncelog.client import admin
from oncelog.client.cluster import Cluster
from oncelog.core.types import TopicPartition

SUMMARY: Final = """\
Print the records of a topic to standard output, one line each, and wait for more until --max,
--timeout or an interrupt ends it."""

EXAMPLE: Final = """\
  oncelog consume orders --from 2026-01-31T08:00:00Z --json | jq .value
  oncelog consume orders --group billing --isolation read_committed --timeout 10

With --group the group's offsets say where to begin, and each line counts as consumed once it has
been written. Bytes that are not UTF-8 are printed as they are, and with --json as
{"base64": "..."}."""

_POLL_MS: Final = 1000
_MAX_RECORDS: Final = 10_000

Start = str | int | tuple[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument("topic")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        type=start,
        default="beginning",
        help="beginning (the default), end, an offset, or a time like 2026-01-31T08:00:00Z; with "
        "--group it counts for partitions in which the group has no offset",
    )
    parser.add_argument("--group", metavar="ID", help="consume as a member of this group")
    parser.add_argument(
        "--partition", type=partition, action="append", help="only this partition (repeatable)"
    )
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_uncommitted",
        help="whether open and aborted transactions are left out (default: %(default)s)",
    )
    parser.add_argument("--max", metavar="N", type=count, help="stop after this many records")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="stop when no record came for so long"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--key-separator", metavar="TEXT", help="print keys too, and this after them")
    form.add_argument("--json", action="store_true", help="print each record as a JSON object")
    parser.add_argument("--verbose", action="store_true", help="show the log of the client library")
    add_connection(parser)


def start(text: str) -> Start:
    """Where to begin: an end of the log, an offset, or a time."""
    if text in ("beginning", "end"):
        return text
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        return int(text)
    return ("time", instant(text))


def run(args: argparse.Namespace) -> int:
    """Print records until told to stop."""
    if args.group is not None and not isinstance(args.start, str):
        raise Misused(
            "With --group, --from takes beginning or end; `oncelog group reset` moves a group."
        )
    if args.group is not None and args.partition:
        raise Misused("With --group the group decides about partitions: leave --partition out.")
    if not args.verbose:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    asyncio.run(_consume(args))
    return 0


async def _consume(args: argparse.Namespace) -> None:
    from aiokafka.errors import KafkaError

    starts = await _starts(args)
    reading = asyncio.ensure_future(_read(args, starts))
    watching = asyncio.ensure_future(_reader_gone(sys.stdout.fileno()))
    try:
        await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Cancelled, the reading still says goodbye to its group.
        reading.cancel()
        watching.cancel()
        results = await asyncio.gather(reading, watching, return_exceptions=True)
    if isinstance(results[0], KafkaError):
        raise CommandFailed(f"{args.topic}: {results[0]}") from results[0]
    if isinstance(results[0], Exception):
        raise results[0]


async def _starts(args: argparse.Namespace) -> dict[TopicPartition, int]:
    """The offset at which each partition begins; an offset or a time beyond an end is that end."""
    async with await Cluster.open(args.bootstrap, timeout=args.request_timeout) as cluster:
        (topic,) = await admin.topics(cluster, [args.topic])
        known = {p.partition_index for p in topic.partitions}
        for missing in sorted(set(args.partition or ()) - known):
            raise CommandFailed(f"Topic {args.topic} has no partition {missing}.")
        places = [TopicPartition(args.topic, p) for p in sorted(args.partition or known)]
        first = await admin.list_offsets(cluster, dict.fromkeys(places, admin.EARLIEST))
        end = await admin.list_offsets(cluster, dict.fromkeys(places, admin.LATEST))
        wanted: dict[TopicPartition, int | None]
        match args.start:
            case "beginning":
                wanted = first
            case "end":
                wanted = end
            case int(offset):
                wanted = dict.fromkeys(places, offset)
            case (_, moment):
                wanted = await admin.list_offsets(cluster, dict.fromkeys(places, moment))
        return {place: _within(wanted[place], first[place], end[place]) for place in places}


def _within(wanted: int | None, first: int | None, end: int | None) -> int:
    low, high = first or 0, end or 0
    return high if wanted is None else min(max(wanted, low), high)


async def _read(args: argparse.Namespace, starts: dict[TopicPartition, int]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as Place

    consumer = AIOKafkaConsumer(
        bootstrap_servers=args.bootstrap,
        client_id="oncelog-consume",
        group_id=args.group,
        enable_auto_commit=False,
        auto_offset_reset="latest" if args.start == "end" else "earliest",
        isolation_level=args.isolation,
        request_timeout_ms=int(args.request_timeout * 1000),
    )
    if args.group is None:
        consumer.assign([Place(place.topic, place.partition) for place in starts])
    else:
        consumer.subscribe([args.topic])
    try:
        await consumer.start()
        if args.group is None:
            for place, offset in starts.items():
                consumer.seek(Place(place.topic, place.partition), offset)
        await _print_all(args, consumer)
    finally:
        await consumer.stop()


async def _print_all(args: argparse.Namespace, consumer: Any) -> None:
    left = args.max
    line = _line_of(args)
    idle_since = time.monotonic()
    while left is None or left > 0:
        found = await consumer.getmany(
            timeout_ms=_wait_ms(args.timeout, idle_since),
            max_records=_MAX_RECORDS if left is None else min(left, _MAX_RECORDS),
        )
        records = [record for batch in found.values() for record in batch]
        if records:
            # In a thread: a reader who takes a rest must not make us miss our heartbeats.
            await asyncio.to_thread(_write, b"".join(line(record) + b"\n" for record in records))
            if args.group is not None:
                await _commit(consumer)
            left = None if left is None else left - len(records)
            idle_since = time.monotonic()
        elif args.timeout is not None and time.monotonic() - idle_since >= args.timeout:
            return


def _wait_ms(timeout: float | None, idle_since: float) -> int:
    if timeout is None:
        return _POLL_MS
    left_ms = (idle_since + timeout - time.monotonic()) * 1000
    return max(1, min(_POLL_MS, int(left_ms) + 1))


async def _commit(consumer: Any) -> None:
    from aiokafka.errors import CommitFailedError

    try:
        await consumer.commit()
    except CommitFailedError:
        # The group has moved on without us. Whoever has our partitions now prints these lines
        # again, which is what a consumer that may not lose anything has to accept.
        print("oncelog: the group was rebalanced; some lines may come twice.", file=sys.stderr)


def _line_of(args: argparse.Namespace) -> Callable[[Any], bytes]:
    separator = None if args.key_separator is None else args.key_separator.encode()

    def plain(record: Any) -> bytes:
        return as_plain(record.key, record.value, separator)

    def json(record: Any) -> bytes:
        return as_json(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
        )

    return json if args.json else plain


def _write(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


async def _reader_gone(handle: int) -> None:
    """Return when the other end of our output pipe is closed; never, if it is no pipe.

    Otherwise `consume | head -n 1` would sit there until the next record makes it write again.
    """
    gone = asyncio.Event()
    if not stat.S_ISFIFO(os.fstat(handle).st_mode):
        await gone.wait()
    loop = asyncio.get_running_loop()
    # Nothing can be read from this end: what wakes us up is the error that a closed pipe reports.
    loop.add_reader(handle, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(handle)
