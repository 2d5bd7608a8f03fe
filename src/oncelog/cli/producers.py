"""`oncelog producers TOPIC`: who writes to a topic, and who holds up its readers."""

import argparse
import time
from typing import Any, Final

from oncelog.cli.client_config import add_client_config
from oncelog.cli.failure import CommandFailed
from oncelog.cli.options import add_connection, add_json, partition
from oncelog.cli.output import as_json, table
from oncelog.cli.transaction_text import moment, outlook, speaker
from oncelog.cli.verbs import run_connected
from oncelog.client import admin, transactions
from oncelog.client.cluster import Cluster
from oncelog.core.plural import plural
from oncelog.core.types import TopicPartition
from oncelog.wire.messages.describe_producers import ProducerState
from oncelog.wire.messages.describe_transactions import TransactionState

SUMMARY: Final = """\
Show who writes to a topic, and whose open transaction holds up its read_committed readers: since
when, which transactional id and client, and what will happen next."""

EXAMPLE: Final = """\
  oncelog producers orders
  oncelog producers orders --partition 0 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    parser.add_argument("topic")
    parser.add_argument("--partition", type=partition, help="one of its partitions (default: all)")
    add_connection(parser)
    add_client_config(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the producers of a topic."""
    return run_connected(args, show)


async def show(cluster: Cluster, args: argparse.Namespace) -> None:
    """Ask the partitions, then the coordinators of what is open in them."""
    (topic,) = await admin.topics(cluster, [args.topic])
    places = [
        TopicPartition(args.topic, found.partition_index)
        for found in sorted(topic.partitions, key=lambda p: p.partition_index)
        if args.partition in (None, found.partition_index)
    ]
    if not places:
        raise CommandFailed(f"Topic {args.topic} has no partition {args.partition}.")
    found = await transactions.producers(cluster, places)
    owners = await transactions.owners(
        cluster,
        (
            producer.producer_id
            for producers in found.values()
            for producer in producers
            if producer.current_txn_start_offset >= 0
        ),
    )
    latest = dict.fromkeys(places, admin.LATEST)
    stable = await admin.list_offsets(cluster, latest, committed_only=True)
    ends = await admin.list_offsets(cluster, latest)
    now_ms = time.time_ns() // 1_000_000
    views = [
        _view(place, found[place], owners, stable[place], ends[place], now_ms) for place in places
    ]
    print(as_json(views) if args.json else _as_text(args.topic, views))


def _view(
    place: TopicPartition,
    producers: list[ProducerState],
    owners: dict[int, TransactionState],
    stable: int | None,
    end: int | None,
    now_ms: int,
) -> dict[str, Any]:
    # Of the open ones the oldest is in the way, whoever else waits behind it.
    open_here = [p for p in producers if p.current_txn_start_offset >= 0]
    first = min(open_here, key=lambda p: p.current_txn_start_offset, default=None)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "last_stable_offset": stable,
        "end_offset": end,
        "lag": None if stable is None or end is None else end - stable,
        "held_by": None if first is None else _holder(place, first, owners, now_ms),
        "producers": [_producer(producer, owners) for producer in producers],
    }


def _producer(producer: ProducerState, owners: dict[int, TransactionState]) -> dict[str, Any]:
    is_open = producer.current_txn_start_offset >= 0
    owner = owners.get(producer.producer_id) if is_open else None
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence if producer.last_sequence >= 0 else None,
        "last_written_at_ms": producer.last_timestamp,
        "open_since_offset": producer.current_txn_start_offset if is_open else None,
        "transactional_id": owner.transactional_id if owner else None,
    }


def _holder(
    place: TopicPartition,
    producer: ProducerState,
    owners: dict[int, TransactionState],
    now_ms: int,
) -> dict[str, Any]:
    owner = owners.get(producer.producer_id)
    is_owned = transactions.is_owned(place, owner)
    holder: dict[str, Any] = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transactional_id": None,
        "client_id": None,
        "client_host": None,
        "started_at_ms": None,
        "who": f"producer {producer.producer_id}, whose transaction no coordinator owns",
        "next": "Nothing ends it by itself once it is older than any transaction may be: "
        f"`oncelog txn find-hanging --topic {place.topic}`.",
    }
    if owner is not None and is_owned:
        holder |= {
            "transactional_id": owner.transactional_id,
            "client_id": owner.client_id or None,
            "client_host": owner.client_host or None,
            "started_at_ms": owner.transaction_start_time_ms,
            "who": f"{owner.transactional_id}, {owner.transaction_state} since "
            f"{moment(owner.transaction_start_time_ms)} ({speaker(owner)})",
            "next": outlook(owner, now_ms),
        }
    return holder


def _as_text(topic: str, views: list[dict[str, Any]]) -> str:
    rows = [
        (
            view["partition"],
            producer["producer_id"],
            producer["producer_epoch"],
            producer["last_sequence"],
            moment(producer["last_written_at_ms"]),
            producer["open_since_offset"],
            producer["transactional_id"],
        )
        for view in views
        for producer in view["producers"]
    ]
    header = ("PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST WRITTEN", "OPEN SINCE",
              "TRANSACTIONAL ID")  # fmt: skip
    producers = {producer["producer_id"] for view in views for producer in view["producers"]}
    parts = [
        f"Topic {topic}, {plural(len(views), 'partition')}, {plural(len(producers), 'producer')} "
        "with an id"
    ]
    if rows:
        parts.append(table(header, rows))
    parts += [
        f"Readers of {topic}-{view['partition']} stop at {view['last_stable_offset']}, "
        f"{plural(view['lag'], 'offset')} before its end.\n"
        f"Held by: {view['held_by']['who']}\n"
        f"Next:    {view['held_by']['next']}"
        for view in views
        if view["held_by"] is not None and view["lag"]
    ]
    return "\n\n".join(parts)
