"""ElectLeaders (43), versions 0-2: let the preferred, or any, replica lead.

1 unclean elections, a top-level error code; 2 flexible. On one node the only replica leads already,
unless its log is offline; then nobody can. Null asks for all partitions, and the answer names only
those for which there was something to do, under each topic.
"""

from collections.abc import Sequence
from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import (
    BrokerError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
)
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode, error_code
from oncelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1


def handle(
    node: Node, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    """Say for each partition why there is no election."""
    wanted = request.topic_partitions
    if wanted is None:
        wanted = _all(node)
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                _elect(node, topic.topic, index, request.election_type)
                for index in topic.partitions
            ],
        )
        for topic in wanted
    ]
    if request.topic_partitions is None:
        for result in results:
            result.partition_result = [
                partition
                for partition in result.partition_result
                if partition.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    known = request.election_type in (PREFERRED, UNCLEAN)
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST,
        replica_election_results=results,
    )


def _all(node: Node) -> Sequence[TopicPartitions]:
    return [
        TopicPartitions(topic=name, partitions=range(topic.partition_count))
        for name, topic in sorted(node.metadata.topics.items())
    ]


def _elect(node: Node, name: str, index: int, election_type: int) -> PartitionResult:
    error = _outcome(node, name, index, election_type)
    return PartitionResult(
        partition_id=index, error_code=error_code(error), error_message=str(error)
    )


def _outcome(node: Node, name: str, index: int, election_type: int) -> BrokerError:
    if election_type not in (PREFERRED, UNCLEAN):
        return InvalidRequest(f"there is no election type {election_type}")
    try:
        partition = node.partition(name, index)
    except BrokerError as error:
        return error
    if partition.offline is None:
        return ElectionNotNeeded(f"broker {node.config.node_id} leads already")
    if election_type == PREFERRED:
        return PreferredLeaderNotAvailable(f"the log is offline: {partition.offline}")
    return EligibleLeadersNotAvailable(f"the log is offline: {partition.offline}")
