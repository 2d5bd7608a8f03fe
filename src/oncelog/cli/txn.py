"""`oncelog txn list|describe|find-hanging|abort|fence`."""

import argparse
import re
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from oncelog.cli.confirm import add_yes, confirm
from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.options import add_json, partition, seconds
from oncelog.cli.output import as_json, table
from oncelog.cli.transaction_text import facts, moment, outlook, span, speaker
from oncelog.cli.verbs import add_verb
from oncelog.client import admin, transactions
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Refused
from oncelog.core.plural import plural
from oncelog.core.types import TopicPartition
from oncelog.wire.messages.describe_transactions import TransactionState

SUMMARY: Final = "See transactions, and end those that nobody else ends."

EXAMPLE: Final = """\
  oncelog txn list --older-than 60
  oncelog txn describe billing-7
  oncelog txn find-hanging --topic orders

`oncelog producers TOPIC` shows who holds up the readers of a topic."""

#: What an id that has never said anything else gets: Kafka's default.
DEFAULT_TIMEOUT_MS: Final = 60_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_list(verbs)
    _add_describe(verbs)
    _add_find_hanging(verbs)
    _add_abort(verbs)
    _add_fence(verbs)


def now_ms() -> int:
    """The time by which ages are told."""
    return time.time_ns() // 1_000_000


# --- list -----------------------------------------------------------------------------------


def _add_list(verbs: Any) -> None:
    summary = "list transactional ids, with what they have open"
    example = (
        "  oncelog txn list --state Ongoing --older-than 60\n"
        "  oncelog txn list --pattern 'billing-.*' --json\n\n"
        "An id is listed if it passes every filter. --older-than without --state looks at what is\n"
        "open."
    )
    parser = add_verb(verbs, "list", list_, summary, example)
    parser.add_argument(
        "--state",
        metavar="STATE",
        type=state,
        action="append",
        default=[],
        help=f"{', '.join(transactions.STATES)} (repeatable)",
    )
    parser.add_argument(
        "--older-than", metavar="SECONDS", type=seconds, help="begun longer ago than this"
    )
    parser.add_argument(
        "--pattern", metavar="REGEX", help="a regular expression that matches the whole id"
    )
    parser.add_argument(
        "--producer-id",
        metavar="ID",
        type=producer_id,
        action="append",
        default=[],
        help="the id's producer id (repeatable)",
    )
    add_json(parser)


def state(text: str) -> str:
    """A state of a transaction, however it is capitalised."""
    known = {name.lower(): name for name in transactions.STATES}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a state; there are {', '.join(transactions.STATES)}."
        )
    return known[text.lower()]


def producer_id(text: str) -> int:
    """The id of a producer."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a producer id.")
    return int(text)


async def list_(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print the ids that pass the filters."""
    older_than_ms = None if args.older_than is None else round(args.older_than * 1000)
    states = args.state or (() if older_than_ms is None else transactions.OPEN_STATES)
    found = await transactions.find(
        cluster,
        states=states,
        producer_ids=args.producer_id,
        older_than_ms=older_than_ms,
        pattern=args.pattern,
    )
    now = now_ms()
    if args.json:
        print(as_json([facts(txn, now) for txn in found]))
    elif found:
        header = ("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "SINCE", "TIMES OUT",
                  "PARTITIONS", "CLIENT", "HOST")  # fmt: skip
        print(table(header, [_row(facts(txn, now)) for txn in found]))


def _row(shown: dict[str, Any]) -> tuple[str | int | None, ...]:
    return (
        shown["transactional_id"],
        shown["state"],
        shown["producer_id"],
        shown["producer_epoch"],
        moment(shown["started_at_ms"]),
        moment(shown["times_out_at_ms"]),
        shown["partitions"],
        shown["client_id"],
        shown["client_host"],
    )


# --- describe -------------------------------------------------------------------------------


def _add_describe(verbs: Any) -> None:
    summary = "show one transactional id, and what its transaction holds up"
    example = "  oncelog txn describe billing-7 --json"
    parser = add_verb(verbs, "describe", describe, summary, example)
    parser.add_argument("transactional_id", metavar="ID")
    add_json(parser)


async def describe(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print one id: whose it is, what it has open and where, and what happens next."""
    txn = await transactions.describe(cluster, args.transactional_id)
    now = now_ms()
    shown = facts(txn, now)
    shown["partitions"] = await _places(cluster, txn)
    shown["next"] = outlook(txn, now)
    print(as_json(shown) if args.json else _as_text(txn, shown))


async def _places(cluster: Cluster, txn: TransactionState) -> list[dict[str, Any]]:
    """Where the transaction is open, and how far readers are held back there."""
    places = transactions.partitions_of(txn)
    there = await _existing(cluster, places)
    producers = await transactions.producers(cluster, there) if there else {}
    latest = dict.fromkeys(there, admin.LATEST)
    ends = await admin.list_offsets(cluster, latest) if there else {}
    stable = await admin.list_offsets(cluster, latest, committed_only=True) if there else {}
    rows = []
    for place in places:
        first = next(
            (
                found.current_txn_start_offset
                for found in producers.get(place, ())
                if found.producer_id == txn.producer_id and found.current_txn_start_offset >= 0
            ),
            None,
        )
        end, stop = ends.get(place), stable.get(place)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "first_offset": first,
                "last_stable_offset": stop,
                "end_offset": end,
                "lag": None if end is None or stop is None else end - stop,
                "holds_readers": first is not None and first == stop,
            }
        )
    return rows


async def _existing(cluster: Cluster, places: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those that are still there: a topic may be deleted during a transaction."""
    known = {
        TopicPartition(topic.name or "", found.partition_index)
        for topic in await admin.topics(cluster)
        for found in topic.partitions
    }
    return [place for place in places if place in known]


def _as_text(txn: TransactionState, shown: dict[str, Any]) -> str:
    lines = [
        f"Transactional id {txn.transactional_id}, {txn.transaction_state}, producer "
        f"{txn.producer_id} epoch {txn.producer_epoch}, timeout "
        f"{span(txn.transaction_timeout_ms)}",
        f"Whose: {speaker(txn)}",
    ]
    if shown["started_at_ms"] is not None:
        lines.append(f"Since: {moment(shown['started_at_ms'])}, for {span(shown['age_ms'])}")
    lines.append(f"Next:  {shown['next']}")
    if shown["partitions"]:
        header = ("TOPIC", "PARTITION", "FIRST", "LAST STABLE", "END", "LAG", "HOLDS READERS")
        rows = [
            (*list(place.values())[:-1], "yes" if place["holds_readers"] else "no")
            for place in shown["partitions"]
        ]
        lines += ["", table(header, rows)]
    return "\n".join(lines)


# --- find-hanging -----------------------------------------------------------------------------


def _add_find_hanging(verbs: Any) -> None:
    summary = "find open transactions that no coordinator will ever end"
    example = (
        "  oncelog txn find-hanging --topic orders\n\n"
        "Such a transaction is open in a partition, has not been written to for longer than any\n"
        "transaction may last, and no transactional id says that it is its own. Brokers before\n"
        "Kafka 3.6 could leave one behind; it holds up every read_committed reader until it is\n"
        "ended by `oncelog txn abort --topic ... --partition ... --start-offset ...`."
    )
    parser = add_verb(verbs, "find-hanging", find_hanging, summary, example)
    parser.add_argument("--topic", action="append", default=[], help="where (repeatable; all)")
    parser.add_argument("--partition", type=partition, help="one partition of that topic")
    parser.add_argument(
        "--broker-max-timeout",
        metavar="SECONDS",
        type=seconds,
        help="how long a transaction may last (default: what the brokers are set to)",
    )
    add_json(parser)


async def find_hanging(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print the transactions that hang, and how to end them."""
    if args.partition is not None and len(args.topic) != 1:
        raise Misused("A --partition needs one --topic.")
    if args.broker_max_timeout is None:
        older_than_ms = await transactions.max_timeout_ms(cluster)
    else:
        older_than_ms = round(args.broker_max_timeout * 1000)
    places = [
        TopicPartition(topic.name or "", found.partition_index)
        for topic in await admin.topics(cluster, args.topic or None)
        for found in topic.partitions
        if args.partition in (None, found.partition_index)
    ]
    if not places:
        raise CommandFailed("There is no such partition.")
    found = await transactions.find_hanging(
        cluster, places, older_than_ms=older_than_ms, now_ms=now_ms()
    )
    if args.json:
        print(as_json([_hanging_facts(each) for each in found]))
    elif found:
        rows = [list(_hanging_facts(each).values()) for each in found]
        for row in rows:
            row[5] = moment(row[5])
        header = ("TOPIC", "PARTITION", "START OFFSET", "PRODUCER", "EPOCH", "LAST WRITTEN",
                  "TRANSACTIONAL ID")  # fmt: skip
        print(table(header, rows))
    else:
        print("No transaction hangs.", file=sys.stderr)


def _hanging_facts(hanging: transactions.Hanging) -> dict[str, Any]:
    return {
        "topic": hanging.partition.topic,
        "partition": hanging.partition.partition,
        "start_offset": hanging.producer.current_txn_start_offset,
        "producer_id": hanging.producer.producer_id,
        "producer_epoch": hanging.producer.producer_epoch,
        "last_written_at_ms": hanging.producer.last_timestamp,
        "transactional_id": hanging.owner.transactional_id if hanging.owner else None,
    }


# --- abort ------------------------------------------------------------------------------------


def _add_abort(verbs: Any) -> None:
    summary = "abort an open transaction, or a hanging one in its partition"
    example = (
        "  oncelog txn abort billing-7\n"
        "  oncelog txn abort --topic orders --partition 0 --start-offset 4711\n\n"
        "With an ID the coordinator aborts its transaction everywhere and its producer is fenced.\n"
        "With a place only a transaction that no coordinator owns is ended: `find-hanging` finds\n"
        "those."
    )
    parser = add_verb(verbs, "abort", abort, summary, example)
    parser.add_argument("transactional_id", metavar="ID", nargs="?")
    parser.add_argument("--topic")
    parser.add_argument("--partition", type=partition)
    parser.add_argument("--start-offset", metavar="OFFSET", type=int)
    add_yes(parser)


async def abort(cluster: Cluster, args: argparse.Namespace) -> None:
    """Abort by name, or by place."""
    place = (args.topic, args.partition, args.start_offset)
    if args.transactional_id is not None and place == (None, None, None):
        await _abort_by_name(cluster, args)
    elif args.transactional_id is None and None not in place:
        await _abort_by_place(cluster, args)
    else:
        raise Misused("Name one ID, or one place: --topic, --partition and --start-offset.")


async def _abort_by_name(cluster: Cluster, args: argparse.Namespace) -> None:
    name = args.transactional_id
    txn = await transactions.describe(cluster, name)
    if txn.transaction_state != "Ongoing":
        raise CommandFailed(
            f"{name} is {txn.transaction_state}: there is nothing to abort. {outlook(txn, now_ms())}"
        )
    where = plural(len(transactions.partitions_of(txn)), "partition")
    confirm(
        args,
        f"Abort the transaction of {name}, open since {moment(txn.transaction_start_time_ms)} in "
        f"{where}, and fence its producer ({speaker(txn)})?",
    )
    await _fence(cluster, args, txn)
    print(f"Aborted the transaction of {name}; its producer is fenced.")


async def _abort_by_place(cluster: Cluster, args: argparse.Namespace) -> None:
    place = TopicPartition(args.topic, args.partition)
    found = (await transactions.producers(cluster, [place]))[place]
    open_here = {producer.current_txn_start_offset: producer for producer in found}
    producer = open_here.get(args.start_offset)
    if producer is None or args.start_offset < 0:
        raise CommandFailed(f"No transaction is open at offset {args.start_offset} of {place}.")
    owner = (await transactions.owners(cluster, [producer.producer_id])).get(producer.producer_id)
    if owner is not None and transactions.is_owned(place, owner):
        # A marker from outside would tear it apart: aborted here, perhaps committed elsewhere.
        raise CommandFailed(
            f"That transaction belongs to {owner.transactional_id}, which is "
            f"{owner.transaction_state}: say `oncelog txn abort {owner.transactional_id}`."
        )
    confirm(
        args,
        f"Abort what producer {producer.producer_id} epoch {producer.producer_epoch} has open in "
        f"{place} since offset {args.start_offset}, last written at "
        f"{moment(producer.last_timestamp)}?",
    )
    await transactions.abort_in_partition(cluster, place, producer)
    print(f"Aborted the transaction at offset {args.start_offset} of {place}.")


# --- fence ------------------------------------------------------------------------------------


def _add_fence(verbs: Any) -> None:
    summary = "shut out whoever uses a transactional id, aborting what is open"
    example = (
        "  oncelog txn fence billing-7 billing-8 --yes\n\n"
        "The next request of a fenced producer is refused for good; a producer that starts anew\n"
        "with the id may go on."
    )
    parser = add_verb(verbs, "fence", fence, summary, example)
    parser.add_argument("transactional_ids", metavar="ID", nargs="+")
    add_yes(parser)


async def fence(cluster: Cluster, args: argparse.Namespace) -> None:
    """Fence each id; one that cannot be fenced does not keep the others."""
    names = args.transactional_ids
    confirm(args, f"Fence the producer of {', '.join(names)}?")
    failures = 0
    for name in names:
        try:
            # An id that nobody knows is refused here: asking for it would make it.
            txn = await transactions.describe(cluster, name)
            await _fence(cluster, args, txn)
            print(f"Fenced the producer of {name}.")
        except Refused as error:
            print(f"oncelog: {error}", file=sys.stderr)
            failures += 1
    if failures:
        raise CommandFailed(f"{failures} of {len(names)} ids could not be fenced.")


async def _fence(cluster: Cluster, args: argparse.Namespace, txn: TransactionState) -> None:
    await transactions.fence(
        cluster,
        txn.transactional_id,
        timeout_ms=txn.transaction_timeout_ms or DEFAULT_TIMEOUT_MS,
        wait_s=args.request_timeout,
    )
