"""`oncelog produce`: lines from standard input become records."""

import argparse
import asyncio
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.options import add_connection, assignment, partition
from oncelog.cli.record_text import BadLine, Line, read_json, read_plain
from oncelog.client.cluster import Cluster, raise_for
from oncelog.core.plural import plural
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.metadata import MetadataResponse

SUMMARY: Final = """\
Write lines from standard input to a topic, one record each. Records are idempotent: a resend after
a lost answer is not written twice."""

EXAMPLE: Final = """\
  printf 'alice:1\\nbob:2\\n' | oncelog produce payments --key-separator :
  oncelog consume orders --json --max 10 | oncelog produce copy --json

A JSON line has "value" and, if you like, "key", "headers", "partition" and "timestamp" (in
milliseconds). Bytes that are not UTF-8 are written {"base64": "..."}."""

_CHUNK_BYTES: Final = 64 * 1024
_BATCH_BYTES: Final = 256 * 1024
_REQUEST_MAX_BYTES: Final = 100 * 1024 * 1024
#: How long a topic may take to come into being when the broker creates it for us.
_CREATION_S: Final = 5.0
_PROGRESS_EVERY_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument("topic")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--key-separator", metavar="TEXT", help="what stands between key and value")
    form.add_argument("--json", action="store_true", help="each line is a JSON object")
    parser.add_argument(
        "--header",
        metavar="NAME=VALUE",
        type=assignment,
        action="append",
        default=[],
        help="a header for every record",
    )
    parser.add_argument("--partition", type=partition, help="write to this partition alone")
    parser.add_argument(
        "--acks",
        choices=("all", "1", "0"),
        default="all",
        help="who must have a record before it counts: all (idempotent), the leader, nobody",
    )
    parser.add_argument("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--verbose", action="store_true", help="show the log of the client library")
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Read lines until there are no more."""
    if args.key_separator == "":
        raise Misused("--key-separator is empty.")
    if not args.verbose:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    asyncio.run(_produce(args))
    return 0


async def _produce(args: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    partition_count = await _topic_partitions(args)
    if args.partition is not None and args.partition >= partition_count:
        raise CommandFailed(f"Topic {args.topic} has no partition {args.partition}.")
    producer = AIOKafkaProducer(
        bootstrap_servers=args.bootstrap,
        client_id="oncelog-produce",
        acks="all" if args.acks == "all" else int(args.acks),
        enable_idempotence=args.acks == "all",
        compression_type=None if args.compression == "none" else args.compression,
        linger_ms=5,
        max_batch_size=_BATCH_BYTES,
        # The broker knows the topic's limit and refuses what is above it; we need not guess.
        max_request_size=_REQUEST_MAX_BYTES,
        request_timeout_ms=int(args.request_timeout * 1000),
    )
    sending = Sending(producer, args, partition_count)
    try:
        await producer.start()
        try:
            await sending.send_all(lines(sys.stdin.buffer.fileno()))
        finally:
            await producer.stop()
    except KafkaError as error:
        raise CommandFailed(f"{args.topic}: {error}. {sending.summary()}") from error
    sending.finish()


async def _topic_partitions(args: argparse.Namespace) -> int:
    """Make sure that there is a topic, or that the broker makes it; and learn its partitions.

    The library would keep asking for its whole timeout and then blame the clock.
    """
    async with await Cluster.open(args.bootstrap, timeout=args.request_timeout) as cluster:
        deadline = time.monotonic() + _CREATION_S
        while True:
            reply: MetadataResponse = await cluster.metadata(
                [args.topic], allow_auto_topic_creation=True
            )
            (topic,) = reply.topics
            if not topic.error_code:
                return len(topic.partitions)
            # 5 is LEADER_NOT_AVAILABLE: the topic is there, or will be in a moment.
            is_coming = topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 5)
            if not is_coming or time.monotonic() > deadline:
                raise_for(topic.error_code, f"Topic {args.topic}")
            await asyncio.sleep(0.1)


class Sending:
    """Sends lines, and counts what was acknowledged and what was not."""

    def __init__(self, producer: Any, args: argparse.Namespace, partition_count: int) -> None:
        """`producer` is an AIOKafkaProducer, or whatever a test puts in its place."""
        self._producer = producer
        self._topic = args.topic
        self._partition = args.partition
        self._partition_count = partition_count
        self._headers = [(name, value.encode()) for name, value in args.header]
        separator = None if args.key_separator is None else args.key_separator.encode()
        self._read: Callable[[bytes], Line] = (
            read_json if args.json else lambda line: read_plain(line, separator)
        )
        self._shows_progress = sys.stderr.isatty() and not sys.stdin.isatty()
        self._shown_at = 0.0
        self.sent = 0
        self.acknowledged = 0
        self.problem: BaseException | None = None

    async def send_all(self, chunks: AsyncIterator[list[bytes]]) -> None:
        """Send every line; the first that cannot be sent ends it."""
        number = 0
        async for chunk in chunks:
            for line in chunk:
                number += 1
                try:
                    record = self._read(line)
                    self._check_partition(record)
                except BadLine as error:
                    await self._producer.flush()
                    raise CommandFailed(f"Line {number}: {error}. {self.summary()}") from error
                await self._send(record)
                if self.problem is not None:
                    return
            self._show_progress()
        await self._producer.flush()

    def _check_partition(self, record: Line) -> None:
        if record.partition is not None and record.partition >= self._partition_count:
            raise BadLine(f"{self._topic} has no partition {record.partition}")

    async def _send(self, record: Line) -> None:
        answer = await self._producer.send(
            self._topic,
            value=record.value,
            key=record.key,
            partition=record.partition if self._partition is None else self._partition,
            timestamp_ms=record.timestamp_ms,
            headers=[*record.headers, *self._headers],
        )
        self.sent += 1
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self.acknowledged += 1
        elif self.problem is None:
            self.problem = error

    def summary(self) -> str:
        """How far we came."""
        return f"{plural(self.acknowledged, 'record')} written."

    def finish(self) -> None:
        """Raise if not everything was written."""
        self._show_progress(is_last=True)
        if self.problem is not None:
            lost = self.sent - self.acknowledged
            raise CommandFailed(f"{lost} of {self.sent} records not acknowledged: {self.problem}.")

    def _show_progress(self, *, is_last: bool = False) -> None:
        if not self._shows_progress:
            return
        now = time.monotonic()
        if is_last or now - self._shown_at >= _PROGRESS_EVERY_S:
            self._shown_at = now
            end = "\n" if is_last else ""
            shown = plural(self.acknowledged, "record")
            print(f"\r{shown}", end=end, file=sys.stderr, flush=True)


async def lines(handle: int) -> AsyncIterator[list[bytes]]:
    """Lines as they come, without their ends; a last line need not have one.

    A thread reads, since standard input may be a file, a pipe or a terminal. It is a daemon: while
    it waits for a line that never comes, the process can still end.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=16)

    def read() -> None:
        with open(handle, "rb", buffering=0, closefd=False) as source:
            chunk = b"-"
            while chunk:
                chunk = source.read(_CHUNK_BYTES) or b""
                try:
                    asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
                except RuntimeError:  # the loop is gone, and with it whoever wanted the lines
                    return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        *whole, rest = (rest + chunk).split(b"\n")
        if whole:
            yield whole
    if rest:
        yield [rest]
