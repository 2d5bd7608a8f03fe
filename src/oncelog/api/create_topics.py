"""CreateTopics (19), versions 2-7: make topics.

4 partitions and replicas may be left to the broker (-1); 5 flexible, answers with what the topic
got; 6 quota errors; 7 topic ids.

Each topic succeeds or fails by itself. A name that stands twice in the request is refused once.
A topic that exists is reported as such whatever else is wrong, since clients create with the
settings of some other cluster and go on when they hear that it is there.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

from oncelog.api.config_view import topic_entries
from oncelog.api.registry import RequestContext
from oncelog.api.replicas import check_replicas
from oncelog.core.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)
from oncelog.core.metadata.records import Topic
from oncelog.core.metadata.shard import CreateTopic
from oncelog.core.topic_config import TopicConfig
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(
    node: Node, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """Create all of them, or say what would happen."""
    counts = Counter(topic.name for topic in request.topics)
    # All at once, so that they share one sync.
    results = await asyncio.gather(
        *(
            _create(node, topic, validate_only=request.validate_only)
            for topic in request.topics
            if counts[topic.name] == 1
        )
    )
    twice = InvalidRequest("the topic stands in the request more than once")
    refused = [_failed(name, twice) for name, count in counts.items() if count > 1]
    return CreateTopicsResponse(topics=[*results, *refused])


async def _create(
    node: Node, wanted: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    try:
        command = _lower(node, wanted)
        topic = node.metadata.plan_topic(command)
        if not validate_only:
            await node.change(command)
        return _created(node, topic)
    except BrokerError as error:
        return _failed(wanted.name, await node.refusal(error))


def _lower(node: Node, wanted: CreatableTopic) -> CreateTopic:
    """One command; what is wrong is found in the order in which Kafka looks."""
    node.metadata.check_new_name(wanted.name)
    configs = {}
    for config in wanted.configs:
        if config.value is None:
            raise InvalidConfig(f"{config.name} has no value")
        configs[config.name] = config.value
    TopicConfig.from_overrides(node.metadata.topic_defaults, configs)
    return CreateTopic(
        name=wanted.name,
        partition_count=_partition_count(node, wanted),
        fresh_id=node.fresh_id(),
        configs=configs,
    )


def _partition_count(node: Node, wanted: CreatableTopic) -> int:
    count, replicas = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments:
        if count != -1 or replicas != -1:
            raise InvalidRequest("with replicas assigned by hand, both counts have to be -1")
        _check_assignments(node, wanted.assignments)
        return len(wanted.assignments)
    if replicas < 1 and replicas != -1:
        raise InvalidReplicationFactor(f"a topic needs at least one replica, not {replicas}")
    if count < 1 and count != -1:
        raise InvalidPartitions(f"a topic needs at least one partition, not {count}")
    if replicas > 1:
        raise InvalidReplicationFactor(
            f"{replicas} replicas were asked for, and this cluster has one broker"
        )
    return node.config.num_partitions if count == -1 else count


def _check_assignments(node: Node, assignments: Sequence[CreatableReplicaAssignment]) -> None:
    if sorted(a.partition_index for a in assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignment("partitions are numbered from 0, without gaps or repeats")
    for assignment in assignments:
        check_replicas(node, assignment.broker_ids)


def _created(node: Node, topic: Topic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source)
            for entry in topic_entries(node, topic)
        ],
    )


def _failed(name: str, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error_code(error), error_message=str(error))
