"""`oncelog topic create|list|describe|alter|delete`."""

import argparse
import sys
from typing import Any, Final

from oncelog.cli.failure import CommandFailed, Misused
from oncelog.cli.options import add_json, assignment, count
from oncelog.cli.output import as_json, table
from oncelog.cli.verbs import add_verb
from oncelog.client import admin
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Refused
from oncelog.core.plural import plural
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_configs import DescribeConfigsResourceResult
from oncelog.wire.messages.metadata import MetadataResponseTopic

SUMMARY: Final = "Create, list, describe, alter and delete topics."

EXAMPLE: Final = """\
  oncelog topic create orders --partitions 3 --config retention.ms=86400000
  oncelog topic describe orders"""

#: A setting that the topic has of its own, as DescribeConfigs numbers its sources.
_OF_THE_TOPIC: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_create(verbs)
    _add_list(verbs)
    _add_describe(verbs)
    _add_alter(verbs)
    _add_delete(verbs)


# --- create ---------------------------------------------------------------------------------


def _add_create(verbs: Any) -> None:
    example = "  oncelog topic create orders --partitions 3 --config cleanup.policy=compact"
    parser = add_verb(verbs, "create", create, "create a topic", example)
    parser.add_argument("topic")
    parser.add_argument("--partitions", type=count, help="how many (default: the broker's)")
    parser.add_argument("--replication-factor", type=count, help="default: the broker's")
    _add_config(parser, "a setting of the topic")
    parser.add_argument("--if-not-exists", action="store_true", help="an existing topic is fine")
    add_json(parser)


def _add_config(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--config", metavar="NAME=VALUE", type=assignment, action="append", default=[], help=text
    )


async def create(cluster: Cluster, args: argparse.Namespace) -> None:
    """Create a topic."""
    try:
        result = await admin.create_topic(
            cluster,
            args.topic,
            partitions=args.partitions or admin.BROKERS_DEFAULT,
            replication_factor=args.replication_factor or admin.BROKERS_DEFAULT,
            configs=dict(args.config),
        )
    except Refused as error:
        if args.if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            if args.json:
                print(as_json({"topic": args.topic, "created": False}))
            return
        raise
    if args.json:
        facts = {"topic_id": str(result.topic_id), "partitions": result.num_partitions}
        print(as_json({"topic": args.topic, "created": True, **facts}))
    else:
        print(f"Created topic {args.topic} with {plural(result.num_partitions, 'partition')}.")


# --- list -----------------------------------------------------------------------------------


def _add_list(verbs: Any) -> None:
    parser = add_verb(verbs, "list", list_, "list topics", "  oncelog topic list --json")
    parser.add_argument("--internal", action="store_true", help="the broker's own topics as well")
    add_json(parser)


async def list_(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print the names of all topics, one a line."""
    found = [t for t in await admin.topics(cluster) if args.internal or not t.is_internal]
    if args.json:
        print(as_json([_facts(topic) for topic in found]))
        return
    for topic in found:
        print(topic.name)


def _facts(topic: MetadataResponseTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
    }


# --- describe -------------------------------------------------------------------------------


def _add_describe(verbs: Any) -> None:
    example = "  oncelog topic describe orders --all-configs"
    summary = "show partitions, offsets and settings"
    parser = add_verb(verbs, "describe", describe, summary, example)
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    parser.add_argument(
        "--all-configs", action="store_true", help="inherited settings as well as the topic's own"
    )
    add_json(parser)


async def describe(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print what there is to know about some topics, or all."""
    found = await admin.topics(cluster, args.topics or None)
    if not args.topics:
        found = [topic for topic in found if not topic.is_internal]
    configs = await admin.topic_configs(cluster, [topic.name or "" for topic in found])
    views = []
    for topic in found:
        shown = [
            config
            for config in configs.get(topic.name or "", [])
            if args.all_configs or config.config_source == _OF_THE_TOPIC
        ]
        views.append(await _view(cluster, topic, shown))
    print(as_json(views) if args.json else "\n\n".join(_as_text(view) for view in views))


async def _view(
    cluster: Cluster, topic: MetadataResponseTopic, configs: list[DescribeConfigsResourceResult]
) -> dict[str, Any]:
    places = {
        partition.partition_index: TopicPartition(topic.name or "", partition.partition_index)
        for partition in topic.partitions
    }
    starts = await admin.list_offsets(cluster, dict.fromkeys(places.values(), admin.EARLIEST))
    ends = await admin.list_offsets(cluster, dict.fromkeys(places.values(), admin.LATEST))
    return {
        **_facts(topic),
        "configs": {config.name: config.value for config in configs},
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replica_nodes),
                "isr": list(partition.isr_nodes),
                "start_offset": starts[places[partition.partition_index]],
                "end_offset": ends[places[partition.partition_index]],
            }
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        ],
    }


def _as_text(view: dict[str, Any]) -> str:
    configs = " ".join(f"{name}={value}" for name, value in view["configs"].items())
    rows = [
        (
            partition["partition"],
            partition["leader"],
            partition["leader_epoch"],
            ",".join(map(str, partition["replicas"])),
            ",".join(map(str, partition["isr"])),
            partition["start_offset"],
            partition["end_offset"],
        )
        for partition in view["partitions"]
    ]
    header = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END")
    about = f"Topic {view['topic']}, {plural(len(rows), 'partition')}, id {view['topic_id']}"
    return "\n".join((about, f"Settings: {configs or 'none of its own'}", table(header, rows)))


# --- alter ----------------------------------------------------------------------------------


def _add_alter(verbs: Any) -> None:
    example = "  oncelog topic alter orders --partitions 6 --config retention.ms=3600000"
    parser = add_verb(verbs, "alter", alter, "change settings or add partitions", example)
    parser.add_argument("topic")
    parser.add_argument("--partitions", type=count, help="how many there shall be")
    _add_config(parser, "a setting to change")
    parser.add_argument(
        "--delete-config",
        metavar="NAME",
        action="append",
        default=[],
        help="a setting to give back to the broker",
    )


async def alter(cluster: Cluster, args: argparse.Namespace) -> None:
    """Change a topic: its settings first, which may be refused without harm."""
    if not (args.partitions or args.config or args.delete_config):
        raise Misused("Say what to change: --partitions, --config or --delete-config.")
    if args.config or args.delete_config:
        await admin.alter_topic_configs(
            cluster, args.topic, changed=dict(args.config), removed=args.delete_config
        )
    if args.partitions:
        await admin.create_partitions(cluster, args.topic, args.partitions)
    print(f"Altered topic {args.topic}.")


# --- delete ---------------------------------------------------------------------------------


def _add_delete(verbs: Any) -> None:
    summary = "delete topics with all of their records"
    parser = add_verb(verbs, "delete", delete, summary, "  oncelog topic delete orders")
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="a missing topic is fine")


async def delete(cluster: Cluster, args: argparse.Namespace) -> None:
    """Delete each topic; one that cannot be deleted does not keep the others."""
    failures = 0
    for topic in args.topics:
        try:
            await admin.delete_topic(cluster, topic)
            print(f"Deleted topic {topic}.")
        except Refused as error:
            if args.if_exists and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            print(f"oncelog: {error}", file=sys.stderr)
            failures += 1
    if failures:
        raise CommandFailed(f"{failures} of {len(args.topics)} topics could not be deleted.")
