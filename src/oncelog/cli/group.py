"""`oncelog group list|describe|reset|delete`."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any, Final

from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.options import add_json, instant, partition
from oncelog.cli.output import as_json, table
from oncelog.cli.verbs import add_verb
from oncelog.client import admin
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Refused
from oncelog.core.plural import plural
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode

SUMMARY: Final = "List, describe, reset and delete consumer groups."

EXAMPLE: Final = """\
  oncelog group describe billing
  oncelog group reset billing --topic orders --to-earliest --execute"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_list(verbs)
    _add_describe(verbs)
    _add_reset(verbs)
    _add_delete(verbs)


# --- list -----------------------------------------------------------------------------------


def _add_list(verbs: Any) -> None:
    parser = add_verb(verbs, "list", list_, "list groups", "  oncelog group list --json")
    add_json(parser)


async def list_(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print all groups."""
    groups = await admin.list_groups(cluster)
    if args.json:
        facts = [
            {
                "group": group.group_id,
                "state": group.group_state,
                "protocol_type": group.protocol_type,
                "type": group.group_type,
            }
            for group in groups
        ]
        print(as_json(facts))
    elif groups:
        rows = [(g.group_id, g.group_state, g.protocol_type, g.group_type) for g in groups]
        print(table(("GROUP", "STATE", "PROTOCOL", "TYPE"), rows))


# --- describe -------------------------------------------------------------------------------


def _add_describe(verbs: Any) -> None:
    summary = "show members, offsets and lag"
    example = "  oncelog group describe billing --json"
    parser = add_verb(verbs, "describe", describe, summary, example)
    parser.add_argument("group")
    add_json(parser)


async def describe(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print one group: who is in it, how far it came, and how much is left."""
    view = await admin.describe_group(cluster, args.group)
    members = sorted(view.group.members, key=lambda member: member.member_id)
    owned = {
        member.member_id: admin.read_assignment(member.member_assignment) for member in members
    }
    facts = {
        "group": args.group,
        "state": view.group.group_state,
        "protocol_type": view.group.protocol_type,
        "protocol": view.group.protocol_data,
        "coordinator": view.coordinator_id,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": [
                    {"topic": place.topic, "partition": place.partition}
                    for place in owned[member.member_id]
                ],
            }
            for member in members
        ],
        "offsets": await _offsets(cluster, args.group, owned),
    }
    print(as_json(facts) if args.json else _as_text(facts))


async def _offsets(
    cluster: Cluster, group_id: str, owned: dict[str, list[TopicPartition]]
) -> list[dict[str, Any]]:
    committed = await admin.committed_offsets(cluster, group_id)
    owner = {place: member_id for member_id, places in owned.items() for place in places}
    places = sorted(committed.keys() | owner.keys())
    ends = await _ends(cluster, places)
    rows = []
    for place in places:
        offset, end = committed.get(place), ends.get(place)
        lag = None if offset is None or end is None else max(end - offset, 0)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": offset,
                "end": end,
                "lag": lag,
                "member_id": owner.get(place),
            }
        )
    return rows


async def _ends(
    cluster: Cluster, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Where each log ends; a topic that was deleted since has no end."""
    known = {
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in await admin.topics(cluster)
        for partition in topic.partitions
    }
    wanted = dict.fromkeys((place for place in places if place in known), admin.LATEST)
    return await admin.list_offsets(cluster, wanted) if wanted else {}


def _as_text(facts: dict[str, Any]) -> str:
    members, offsets = facts["members"], facts["offsets"]
    parts = [
        f"Group {facts['group']}, {facts['state']}, {plural(len(members), 'member')}, "
        f"protocol {facts['protocol'] or '-'}, coordinator {facts['coordinator']}"
    ]
    if members:
        rows = [
            (
                member["member_id"],
                member["instance_id"],
                member["client_id"],
                member["host"],
                len(member["partitions"]),
            )
            for member in members
        ]
        parts.append(table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows))
    if offsets:
        columns = ("topic", "partition", "committed", "end", "lag", "member_id")
        header = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")
        parts.append(table(header, [[row[name] for name in columns] for row in offsets]))
    return "\n\n".join(parts)


# --- reset ----------------------------------------------------------------------------------


def _add_reset(verbs: Any) -> None:
    summary = "move the offsets of a group that has no members"
    example = (
        "  oncelog group reset billing --topic orders --to-datetime 2026-01-31T08:00:00Z\n"
        "  oncelog group reset billing --topic orders:0,2 --shift-by -10 --execute\n\n"
        "Without --execute it only shows what it would do."
    )
    parser = add_verb(verbs, "reset", reset, summary, example)
    parser.add_argument("group")
    parser.add_argument(
        "--topic",
        metavar="TOPIC[:PARTITION,...]",
        type=scope,
        action="append",
        default=[],
        help="whose offsets (repeatable)",
    )
    parser.add_argument(
        "--all-topics", action="store_true", help="every partition with a committed offset"
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="to the first record there is")
    target.add_argument("--to-latest", action="store_true", help="behind the last record")
    target.add_argument("--to-offset", metavar="OFFSET", type=int, help="to this offset")
    target.add_argument(
        "--to-datetime", metavar="TIME", type=instant, help="to the first record of this time"
    )
    target.add_argument("--shift-by", metavar="N", type=int, help="forward, or back if negative")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(parser)


def scope(text: str) -> tuple[str, tuple[int, ...]]:
    """A topic, or some of its partitions."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: write it as TOPIC or TOPIC:0,1.")
    return topic, tuple(partition(number) for number in numbers.split(",")) if colon else ()


async def reset(cluster: Cluster, args: argparse.Namespace) -> None:
    """Show, and with --execute do, a move of a group's offsets."""
    if bool(args.topic) == args.all_topics:
        raise Misused("Say whose offsets to move: --topic TOPIC or --all-topics.")
    await _check_idle(cluster, args.group)
    committed = await admin.committed_offsets(cluster, args.group)
    places = sorted(committed) if args.all_topics else await _in_scope(cluster, args.topic)
    if not places:
        raise CommandFailed(f"Group {args.group} has committed no offsets.")
    targets = await _targets(cluster, args, places, committed)
    if args.execute:
        await admin.commit_offsets(cluster, args.group, targets)
    _show_moves(args, committed, targets)


async def _check_idle(cluster: Cluster, group_id: str) -> None:
    """The offsets of a group with members are theirs. One that does not exist yet may be made."""
    try:
        view = await admin.describe_group(cluster, group_id)
    except Refused as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if view.is_active:
        raise CommandFailed(
            f"Group {group_id} is {view.group.group_state} with "
            f"{plural(len(view.group.members), 'member')}: stop all of them first."
        )


async def _in_scope(
    cluster: Cluster, scopes: list[tuple[str, tuple[int, ...]]]
) -> list[TopicPartition]:
    places = set()
    for name, numbers in scopes:
        (topic,) = await admin.topics(cluster, [name])
        known = {partition.partition_index for partition in topic.partitions}
        for missing in sorted(set(numbers) - known):
            raise CommandFailed(f"Topic {name} has no partition {missing}.")
        places |= {TopicPartition(name, number) for number in numbers or known}
    return sorted(places)


async def _targets(
    cluster: Cluster,
    args: argparse.Namespace,
    places: list[TopicPartition],
    committed: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The new offset of each partition, never outside of its log."""
    first = await admin.list_offsets(cluster, dict.fromkeys(places, admin.EARLIEST))
    end = await admin.list_offsets(cluster, dict.fromkeys(places, admin.LATEST))
    wanted: dict[TopicPartition, int | None]
    if args.to_earliest:
        wanted = first
    elif args.to_latest:
        wanted = end
    elif args.to_datetime is not None:
        wanted = await admin.list_offsets(cluster, dict.fromkeys(places, args.to_datetime))
    elif args.to_offset is not None:
        wanted = dict.fromkeys(places, args.to_offset)
    else:
        for place in places:
            if place not in committed:
                raise CommandFailed(f"Group {args.group} has no offset in {place} to shift.")
        wanted = {place: committed[place] + args.shift_by for place in places}
    targets = {}
    for place in places:
        low, high, to = first[place] or 0, end[place] or 0, wanted[place]
        targets[place] = high if to is None else min(max(to, low), high)
    return targets


def _show_moves(
    args: argparse.Namespace,
    committed: dict[TopicPartition, int],
    targets: dict[TopicPartition, int],
) -> None:
    if args.json:
        moves = [
            {
                "topic": place.topic,
                "partition": place.partition,
                "from": committed.get(place),
                "to": to,
            }
            for place, to in targets.items()
        ]
        print(as_json({"group": args.group, "executed": args.execute, "offsets": moves}))
        return
    rows = [(p.topic, p.partition, committed.get(p), to) for p, to in targets.items()]
    print(table(("TOPIC", "PARTITION", "FROM", "TO"), rows))
    if not args.execute:
        print("Nothing was changed: add --execute to do it.", file=sys.stderr)


# --- delete ---------------------------------------------------------------------------------


def _add_delete(verbs: Any) -> None:
    summary = "forget groups that have no members, with their offsets"
    parser = add_verb(verbs, "delete", delete, summary, "  oncelog group delete billing")
    parser.add_argument("groups", metavar="GROUP", nargs="+")


async def delete(cluster: Cluster, args: argparse.Namespace) -> None:
    """Delete each group; one that cannot be deleted does not keep the others."""
    failures = 0
    for group_id in args.groups:
        try:
            await admin.delete_group(cluster, group_id)
            print(f"Deleted group {group_id}.")
        except Refused as error:
            print(f"oncelog: {error}", file=sys.stderr)
            failures += 1
    if failures:
        raise CommandFailed(f"{failures} of {len(args.groups)} groups could not be deleted.")
