"""The same admin requests, to Apache Kafka and to us, in every version: the same error codes.

What one broker leaves behind the next request finds, so each list of requests is a little story and
both brokers live through it. Left out is where we differ on purpose: internal topics, which Kafka
lets anyone create, grow and delete; unknown broker settings, which Kafka stores for its plugins;
segments below 1 MiB and an empty cleanup.policy.
"""

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

import pytest

import oncelog
from oncelog.client.addresses import parse_address
from oncelog.client.connection import Connection
from oncelog.wire.messages import alter_configs as whole
from oncelog.wire.messages import incremental_alter_configs as some
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.peers.kafka import Kafka

pytestmark = pytest.mark.peers

TOPIC: Final = 2
BROKER: Final = 4
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
NOWHERE: Final = UUID(int=7)


# --- requests, in few words -----------------------------------------------------------------


def topic(
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    *,
    assigned: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in assigned
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


def delete(*names: str, ids: Sequence[UUID] = ()) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name) for name in names]
    states += [DeleteTopicState(topic_id=each) for each in ids]
    return DeleteTopicsRequest(topics=states, topic_names=names, timeout_ms=10_000)


def grow(name: str, count: int, replicas: list[list[int]] | None = None) -> CreatePartitionsTopic:
    assigned = (
        None
        if replicas is None
        else [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
    )
    return CreatePartitionsTopic(name=name, count=count, assignments=assigned)


def partitions(*topics: CreatePartitionsTopic, validate_only: bool = False) -> Any:
    return CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)


def trim(name: str, *offsets: tuple[int, int]) -> DeleteRecordsRequest:
    found = [DeleteRecordsPartition(partition_index=index, offset=to) for index, to in offsets]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=found)], timeout_ms=10_000
    )


def move(name: str, *replicas: tuple[int, list[int] | None]) -> AlterPartitionReassignmentsRequest:
    found = [ReassignablePartition(partition_index=index, replicas=to) for index, to in replicas]
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=found)]
    )


def elect(*wanted: tuple[str, list[int]], kind: int = 0) -> ElectLeadersRequest:
    found = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted]
    return ElectLeadersRequest(election_type=kind, topic_partitions=found)


def alter(
    kind: int, name: str, *changes: tuple[int, str, str | None], validate_only: bool = False
) -> some.IncrementalAlterConfigsRequest:
    configs = [
        some.AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, key, value in changes
    ]
    resource = some.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return some.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replace(
    kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False
) -> whole.AlterConfigsRequest:
    found = [whole.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=found)
    return whole.AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def configs_of(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )
    return DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )


def feature(*updates: tuple[str, int, int]) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ]
    )


def page(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )


# --- stories --------------------------------------------------------------------------------

#: Each is told in every version of the API of its last request; `create` before it in the newest.
STORIES: Final[dict[str, tuple[Sequence[CreatableTopic], Sequence[Any]]]] = {
    "topics": (
        (),
        [
            create(topic("pa-a", 2, 1)),
            create(topic("pa-a", 2, 1)),
            create(topic("pa-a", 0, 9, configs=[("nonsense", "1")])),
            create(topic("pa-b"), topic("pa-b")),
            create(topic("pa-c", 1, 1), topic("pa-b"), topic("pa-b"), topic("pa-d", 0, 1)),
            create(topic("pa-e", 0)),
            create(topic("pa-e", -2)),
            create(topic("pa-e", 1, 2)),
            create(topic("pa-e", 1, 0)),
            create(topic("pa-e", 1, -2)),
            create(topic("pa-e", 0, 5)),
            create(topic("not a name")),
            create(topic("")),
            create(topic(".")),
            create(topic("..")),
            create(topic("x" * 250)),
            create(topic("pa-f", 1, 1), validate_only=True),
            create(topic("pa-f", 1, 2), validate_only=True),
            create(topic("pa-a", 1, 1), validate_only=True),
            create(topic("pa.g", 1, 1)),
            create(topic("pa_g", 1, 1)),
            create(topic("pa-h", 1, 1, configs=[("retention.ms", "x")])),
            create(topic("pa-h", 1, 1, configs=[("nonsense", "1")])),
            create(topic("pa-h", 1, 1, configs=[("retention.ms", None)])),
            create(topic("pa-h", 0, 1, configs=[("retention.ms", "x")])),
            create(topic("pa-h", 1, 1, configs=[("cleanup.policy", "delete,compact")])),
            create(),
        ],
    ),
    "assignments": (
        (),
        [
            create(topic("pb-a", assigned=[(0, [1]), (1, [1])])),
            create(topic("pb-b", 2, assigned=[(0, [1])])),
            create(topic("pb-b", -1, 1, assigned=[(0, [1])])),
            create(topic("pb-b", assigned=[(0, [2])])),
            create(topic("pb-b", assigned=[(1, [1])])),
            create(topic("pb-b", assigned=[(0, [1]), (2, [1])])),
            create(topic("pb-b", assigned=[(0, [1]), (0, [1])])),
            create(topic("pb-b", assigned=[(0, [1, 1])])),
            create(topic("pb-b", assigned=[(0, [])])),
            create(topic("pb-b", assigned=[(0, [1]), (1, [1, 2])])),
        ],
    ),
    "deletions": (
        [topic(f"pc-{letter}", 1, 1) for letter in "abcdefgh"],
        [
            delete("pc-nowhere"),
            delete("pc-a"),
            delete("pc-a"),
            delete("pc-b", "pc-b"),
            delete("pc-c", "pc-nowhere"),
            delete("pc-b", ids=[NOWHERE]),
            delete("not a name"),
            delete(),
        ],
    ),
    "growth": (
        [topic("pd-a", 2, 1), topic("pd-b", 1, 1)],
        [
            partitions(grow("pd-a", 4), validate_only=True),
            partitions(grow("pd-a", 3)),
            partitions(grow("pd-a", 3)),
            partitions(grow("pd-a", 2)),
            partitions(grow("pd-a", 0)),
            partitions(grow("pd-a", -1)),
            partitions(grow("pd-nowhere", 3)),
            partitions(grow("pd-a", 90, [[1]])),
            partitions(grow("pd-b", 2, [[1]]), validate_only=True),
            partitions(grow("pd-b", 2, [[2]])),
            partitions(grow("pd-b", 2, [[]])),
            partitions(grow("pd-b", 2, [[1, 1]])),
            partitions(grow("pd-b", 2, [])),
            partitions(grow("pd-b", 2), grow("pd-b", 3)),
            partitions(grow("pd-b", 2), grow("pd-nowhere", 3)),
            partitions(),
        ],
    ),
    "records": (
        [topic("pe-a", 3, 1), topic("pe-b", 1, 1, configs=[("cleanup.policy", "compact")])],
        [
            trim("pe-a", (0, 0), (1, -1), (2, 5), (9, 0)),
            trim("pe-a", (0, -2)),
            trim("pe-b", (0, 0)),
            trim("pe-nowhere", (0, 0)),
        ],
    ),
    "one node": (
        [topic("pf-a", 3, 1)],
        [
            elect(("pf-a", [0])),
            elect(("pf-a", [0, 9]), ("pf-nowhere", [0])),
            elect(("pf-a", [0]), kind=1),
            elect(("pf-a", [0]), kind=7),
            elect(),
        ],
    ),
    "moves": (
        [topic("pg-a", 3, 1)],
        [
            move("pg-a", (0, [1])),
            move("pg-a", (0, None)),
            move("pg-a", (0, [2]), (1, [1, 2]), (2, []), (9, [1])),
            move("pg-a", (0, [1, 1]), (9, None)),
            move("pg-nowhere", (0, [1])),
            move("pg-nowhere", (0, None)),
        ],
    ),
    "listed moves": (
        [topic("ph-a", 3, 1)],
        [
            ListPartitionReassignmentsRequest(topics=None),
            ListPartitionReassignmentsRequest(
                topics=[
                    ListPartitionReassignmentsTopics(name="ph-a", partition_indexes=[0, 9]),
                    ListPartitionReassignmentsTopics(name="ph-nowhere", partition_indexes=[0]),
                ]
            ),
        ],
    ),
    "settings, some": (
        [topic("pi-a", 1, 1)],
        [
            alter(TOPIC, "pi-a", (SET, "retention.ms", "5")),
            alter(TOPIC, "pi-a", (DELETE, "retention.ms", None)),
            alter(TOPIC, "pi-a", (DELETE, "retention.ms", "5")),
            alter(TOPIC, "pi-a", (DELETE, "nonsense", None)),
            alter(TOPIC, "pi-a", (SET, "retention.ms", None)),
            alter(TOPIC, "pi-a", (SET, "retention.ms", "x")),
            alter(TOPIC, "pi-a", (SET, "nonsense", "5")),
            alter(TOPIC, "pi-a", (APPEND, "cleanup.policy", "compact")),
            alter(TOPIC, "pi-a", (SUBTRACT, "cleanup.policy", "delete")),
            alter(TOPIC, "pi-a", (APPEND, "cleanup.policy", None)),
            alter(TOPIC, "pi-a", (APPEND, "retention.ms", "5")),
            alter(TOPIC, "pi-a", (SUBTRACT, "retention.ms", "5")),
            alter(TOPIC, "pi-a", (SET, "retention.ms", "5"), (SET, "retention.ms", "6")),
            alter(TOPIC, "pi-a", (SET, "cleanup.policy", "junk")),
            alter(TOPIC, "pi-a", (SET, "segment.ms", "7"), validate_only=True),
            alter(TOPIC, "pi-a", (SET, "segment.ms", "x"), validate_only=True),
            alter(TOPIC, "pi-a"),
            alter(TOPIC, "pi-nowhere", (SET, "retention.ms", "5")),
            alter(TOPIC, "not a name", (SET, "retention.ms", "5")),
            alter(TOPIC, "", (SET, "retention.ms", "5")),
            alter(99, "pi-a", (SET, "retention.ms", "5")),
            alter(0, "pi-a", (SET, "retention.ms", "5")),
            some.IncrementalAlterConfigsRequest(
                resources=[
                    *alter(TOPIC, "pi-a", (SET, "retention.ms", "5")).resources,
                    *alter(TOPIC, "pi-nowhere", (SET, "retention.ms", "5")).resources,
                ]
            ),
            some.IncrementalAlterConfigsRequest(
                resources=[
                    *alter(TOPIC, "pi-a", (SET, "retention.ms", "5")).resources,
                    *alter(TOPIC, "pi-a", (SET, "segment.ms", "5")).resources,
                ]
            ),
        ],
    ),
    "settings of brokers": (
        (),
        [
            alter(BROKER, "1", (SET, "log.retention.ms", "99999")),
            alter(BROKER, "", (SET, "log.retention.ms", "88888")),
            alter(BROKER, "1", (SET, "producer.id.expiration.ms", "99999")),
            alter(BROKER, "1", (SET, "node.id", "5")),
            alter(BROKER, "1", (SET, "log.retention.ms", "7"), (SET, "node.id", "5")),
            alter(BROKER, "1", (SET, "log.retention.hours", "5")),
            alter(BROKER, "1", (SET, "log.retention.ms", "x")),
            alter(BROKER, "1", (APPEND, "log.cleanup.policy", "compact")),
            alter(BROKER, "2", (SET, "log.retention.ms", "5")),
            alter(BROKER, "x", (SET, "log.retention.ms", "5")),
            alter(BROKER, "1", (DELETE, "log.cleanup.policy", None)),
            alter(BROKER, "1", (DELETE, "log.retention.ms", None)),
            alter(BROKER, "", (DELETE, "log.retention.ms", None)),
            alter(BROKER, "1", (DELETE, "producer.id.expiration.ms", None)),
        ],
    ),
    "settings, all": (
        [topic("pj-a", 1, 1)],
        [
            replace(TOPIC, "pj-a", ("retention.ms", "5")),
            replace(TOPIC, "pj-a"),
            replace(TOPIC, "pj-a", ("retention.ms", None)),
            replace(TOPIC, "pj-a", ("retention.ms", "x")),
            replace(TOPIC, "pj-a", ("nonsense", "5")),
            replace(TOPIC, "pj-a", ("retention.ms", "5"), ("retention.ms", "6")),
            replace(TOPIC, "pj-a", ("retention.ms", "x"), validate_only=True),
            replace(TOPIC, "pj-nowhere", ("retention.ms", "5")),
            replace(BROKER, "1", ("log.retention.ms", "5")),
            replace(BROKER, "1", ("node.id", "5")),
            replace(BROKER, "1"),
            replace(99, "pj-a"),
        ],
    ),
    "settings, described": (
        [topic("pk-a", 1, 1)],
        [
            configs_of(TOPIC, "pk-a"),
            configs_of(TOPIC, "pk-nowhere"),
            configs_of(TOPIC, "not a name"),
            configs_of(TOPIC, ""),
            configs_of(BROKER, "1"),
            configs_of(BROKER, ""),
            configs_of(BROKER, "2"),
            configs_of(BROKER, "x"),
            configs_of(99, "pk-a"),
        ],
    ),
    "listed settings": (
        (),
        [
            ListConfigResourcesRequest(),
            ListConfigResourcesRequest(resource_types=[TOPIC, BROKER]),
            ListConfigResourcesRequest(resource_types=[99]),
            ListConfigResourcesRequest(resource_types=[TOPIC, 99]),
        ],
    ),
    "features": (
        (),
        [
            feature(("nowhere", 1, 1)),
            feature(("nowhere", 0, 2)),
            feature(("nowhere", -1, 1)),
            feature(("nowhere", 1, 1), ("elsewhere", 1, 1)),
            feature(),
        ],
    ),
    "cluster": (
        (),
        [
            DescribeClusterRequest(),
            DescribeClusterRequest(include_cluster_authorized_operations=True),
            DescribeClusterRequest(endpoint_type=2),
            DescribeClusterRequest(endpoint_type=3),
        ],
    ),
    "directories": (
        [topic("pl-a", 2, 1)],
        [
            DescribeLogDirsRequest(
                topics=[
                    DescribableLogDirTopic(topic="pl-a", partitions=[0, 1, 9]),
                    DescribableLogDirTopic(topic="pl-nowhere", partitions=[0]),
                ]
            ),
            DescribeLogDirsRequest(topics=[]),
        ],
    ),
    "sasl": ((), [SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeRequest()]),
    "sasl tokens": ((), [SaslAuthenticateRequest(auth_bytes=b"\0user\0password")]),
}


async def led(connection: Connection, topics: Sequence[CreatableTopic]) -> None:
    """Kafka answers a creation before its partitions have a leader: ask until they have."""
    wanted = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=each.name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=-1)
                    for index in range(max(each.num_partitions, 1))
                ],
            )
            for each in topics
        ],
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        reply = await connection.request(wanted)
        if not any(p.error_code for t in reply.topics for p in t.partitions):
            return
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("story", STORIES)
def test_both_brokers_give_the_same_error_codes(
    story: str, kafka_broker: Kafka, oncelog_broker: oncelog.Broker
) -> None:
    topics, requests = STORIES[story]

    async def tell(bootstrap: str) -> list[tuple[int, Any, list[Any]]]:
        connection = await Connection.open(*parse_address(bootstrap))
        try:
            if topics:
                await connection.request(create(*topics))
                await led(connection, topics)
            return [
                (version, request, codes(await connection.request(request, version=version)))
                for version in requests[0].VERSIONS
                for request in requests
            ]
        finally:
            await connection.close()

    theirs = asyncio.run(tell(kafka_broker.bootstrap_servers))
    ours = asyncio.run(tell(oncelog_broker.bootstrap_servers))

    for expected, found in zip(theirs, ours, strict=True):
        assert found == expected


#: What tells one part of a response from another.
NAMES: Final = ("name", "topic", "partition_index", "partition_id", "resource_type", "feature")


def codes(reply: object) -> list[Any]:
    """Every error code in a response with what it belongs to, in an order of our own."""
    return sorted(_codes(reply, ()), key=repr)


def _codes(reply: object, path: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], int]]:
    if isinstance(reply, list | tuple):
        for item in reply:
            yield from _codes(item, path)
    if not dataclasses.is_dataclass(reply):
        return
    fields = {field.name: getattr(reply, field.name) for field in dataclasses.fields(reply)}
    here = (*path, *(str(fields[name]) for name in NAMES if name in fields))
    if "error_code" in fields:
        yield here, int(fields["error_code"])
    for value in fields.values():
        yield from _codes(value, here)


# --- more than codes ------------------------------------------------------------------------


def ask_both(
    kafka_broker: Kafka, oncelog_broker: oncelog.Broker, *requests: Any
) -> tuple[list[Any], list[Any]]:
    """The answers of Kafka, and ours."""
    return (
        ask(kafka_broker.bootstrap_servers, *requests),
        ask(oncelog_broker.bootstrap_servers, *requests),
    )


def ask(bootstrap: str, *requests: Any) -> list[Any]:
    async def asked() -> list[Any]:
        connection = await Connection.open(*parse_address(bootstrap))
        answers = []
        try:
            for request in requests:
                answers.append(await connection.request(request))
                if isinstance(request, CreateTopicsRequest):
                    await led(connection, request.topics)
            return answers
        finally:
            await connection.close()

    return asyncio.run(asked())


def test_settings_come_from_the_same_places(
    kafka_broker: Kafka, oncelog_broker: oncelog.Broker
) -> None:
    changes = [
        create(topic("pm-a", 1, 1, configs=[("max.message.bytes", "2000")])),
        alter(BROKER, "", (SET, "message.max.bytes", "3000"), (SET, "log.retention.ms", "4000")),
        alter(BROKER, "1", (SET, "message.max.bytes", "5000")),
        alter(TOPIC, "pm-a", (APPEND, "cleanup.policy", "compact"), (SET, "preallocate", "true")),
        alter(TOPIC, "pm-a", (APPEND, "leader.replication.throttled.replicas", "0:1, 1:1")),
    ]
    questions = [
        configs_of(
            TOPIC, "pm-a", "max.message.bytes", "retention.ms", "cleanup.policy", "preallocate",
            "leader.replication.throttled.replicas", "compression.type", "nonsense",
            "min.cleanable.dirty.ratio",
        ),
        configs_of(
            BROKER, "1", "message.max.bytes", "log.retention.ms", "log.retention.hours",
            "log.cleanup.policy", "producer.id.expiration.ms", "offsets.topic.num.partitions",
        ),
        configs_of(BROKER, "", "message.max.bytes", "log.retention.ms"),
    ]  # fmt: skip
    undone = [
        alter(BROKER, "", (DELETE, "message.max.bytes", ""), (DELETE, "log.retention.ms", "")),
        alter(BROKER, "1", (DELETE, "message.max.bytes", "")),
    ]

    ask_both(kafka_broker, oncelog_broker, *changes)
    ours = [seen(answer) for answer in ask(oncelog_broker.bootstrap_servers, *questions)]

    # Kafka's broker learns of a change a moment after its controller has answered.
    deadline = time.monotonic() + 10
    theirs: list[dict[str, object]] = []
    while theirs != ours and time.monotonic() < deadline:
        theirs = [seen(answer) for answer in ask(kafka_broker.bootstrap_servers, *questions)]
    ask(kafka_broker.bootstrap_servers, *undone)
    assert ours == theirs


def seen(response: DescribeConfigsResponse) -> dict[str, object]:
    return {
        config.name: (
            # We store a list with choices in one order, whichever way it was said.
            sorted((config.value or "").split(",")),
            config.config_source,
            config.read_only,
            config.config_type,
            [(said.name, said.source) for said in config.synonyms],
        )
        for result in response.results
        for config in result.configs
    }


PAGES: Final = [
    page("pn-a"),
    page("pn-b", "pn-a", limit=4),
    page("pn-a", "pn-b", limit=3),
    page("pn-a", "pn-b", limit=6),
    page("pn-a", "pn-b", limit=0),
    page("pn-a", "pn-b", limit=-5),
    page("pn-a", "pn-b", cursor=("pn-a", 2)),
    page("pn-a", "pn-b", cursor=("pn-b", 0)),
    page("pn-a", "pn-b", cursor=("pn-z", 0)),
    page("pn-a", "pn-b", cursor=("pn-a", -1)),
    page("pn-a", "pn-b", cursor=("pn-a", 3)),
    page("pn-a", "pn-b", cursor=("pn-a", 7)),
    page("pn-a", "pn-nowhere", "pn-a"),
    page("pn-a", "pn-nowhere", cursor=("pn-nowhere", 1)),
    page("not a name"),
    page(cursor=("pn-b", 1)),
]


def test_pages_of_topics_are_cut_at_the_same_places(
    kafka_broker: Kafka, oncelog_broker: oncelog.Broker
) -> None:
    made = create(topic("pn-a", 3, 1), topic("pn-b", 3, 1))

    theirs, ours = ask_both(kafka_broker, oncelog_broker, made, *PAGES)

    for asked, their, our in zip(PAGES, theirs[1:], ours[1:], strict=True):
        assert (asked, cut(our)) == (asked, cut(their))


def cut(response: DescribeTopicPartitionsResponse) -> object:
    topics = [
        (
            found.name,
            found.error_code,
            [partition.partition_index for partition in found.partitions],
            found.topic_authorized_operations,
        )
        for found in response.topics
        if found.name and not found.name > "pn-c"
    ]
    return topics, response.next_cursor
