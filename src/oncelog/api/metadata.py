"""Metadata (3), versions 0-13: brokers, topics, partitions.

0 an empty list asks for all topics; from 1 on null does. 1 controller, internal flag; 2 cluster id;
4 auto-create switch; 7 leader epoch; 8 authorised operations; 9 flexible; 10 topic ids; 12 asks by
id; 13 a top-level error code.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest, UnknownTopicOrPartition
from oncelog.core.metadata.records import Topic
from oncelog.core.types import INTERNAL_TOPICS, TopicPartition
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_BY_ID: Final = 12
#: What an unsecured listener allows on a topic, as Kafka's bit field: read, write, create, delete,
#: alter, describe, describe configs, alter configs.
TOPIC_OPERATIONS = 0b110111111000
#: And on the cluster: create, alter, describe, act for the cluster, describe configs, alter configs,
#: idempotent write.
CLUSTER_OPERATIONS = 0b1111110100000


async def handle(node: Node, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the topics that were asked for, or all of them."""
    host, port = node.advertised
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    with_operations = request.include_topic_authorized_operations
    if wants_all:
        topics = [
            describe(node, topic, with_operations)
            for _, topic in sorted(node.metadata.topics.items())
        ]
    else:
        # Before version 4 there was no switch, and asking meant creating.
        create = request.allow_auto_topic_creation if context.version >= 4 else True
        topics = [
            await _wanted(node, wanted, context.version, create, with_operations)
            for wanted in request.topics or ()
        ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.config.node_id, host=host, port=port)],
        cluster_id=node.cluster_id,
        controller_id=node.config.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else -(1 << 31),
    )


async def _wanted(
    node: Node, wanted: MetadataRequestTopic, version: int, create: bool, with_operations: bool
) -> MetadataResponseTopic:
    try:
        if version < FIRST_BY_ID and (wanted.name is None or wanted.topic_id.int):
            raise InvalidRequest(f"before version {FIRST_BY_ID} topics are asked for by name")
        if wanted.topic_id.int:
            topic = node.metadata.topic_by_id(wanted.topic_id)
        elif wanted.name is None:
            raise UnknownTopicOrPartition("neither a name nor an id was given")
        elif create:
            topic = await node.ensure_topic(wanted.name)
        else:
            topic = node.metadata.topic(wanted.name)
        return describe(node, topic, with_operations)
    except BrokerError as error:
        # A version that does not take ids has room for one in its request, and none for a null name.
        name = wanted.name if version >= FIRST_BY_ID else wanted.name or ""
        return MetadataResponseTopic(
            error_code=error_code(error), name=name, topic_id=wanted.topic_id
        )


def describe(node: Node, topic: Topic, with_operations: bool) -> MetadataResponseTopic:
    """A topic with its partitions."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[describe_partition(node, topic, i) for i in range(topic.partition_count)],
        topic_authorized_operations=TOPIC_OPERATIONS if with_operations else -(1 << 31),
    )


def describe_partition(node: Node, topic: Topic, index: int) -> MetadataResponsePartition:
    """A partition: this broker leads it, unless its log failed."""
    node_id = node.config.node_id
    partition = node.logs.find(TopicPartition(topic.name, index))
    is_online = partition is not None and partition.offline is None
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if is_online else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=node_id if is_online else -1,
        leader_epoch=node.logs.leader_epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id] if is_online else [],
        offline_replicas=[] if is_online else [node_id],
    )
