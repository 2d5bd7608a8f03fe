"""DeleteTopics (20), versions 1-6: remove topics with all their records.

3 TOPIC_DELETION_DISABLED; 4 flexible; 5 error messages; 6 topics by name or by id.

Each topic succeeds or fails by itself; one that stands in the request twice is refused. Kafka
deletes its internal topics too if it is told to. We do not: with them go all groups' offsets.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidRequest, InvalidTopic, TopicDeletionDisabled
from oncelog.core.metadata.records import Topic
from oncelog.core.types import INTERNAL_TOPICS
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

FIRST_BY_ID: Final = 6
KNOWS_DELETION_DISABLED: Final = 3


async def handle(
    node: Node, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Delete all of them."""
    wanted = request.topics
    if context.version < FIRST_BY_ID:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    named: dict[object, list[DeleteTopicState]] = {}
    for state in wanted:
        named.setdefault(_identity(node, state), []).append(state)
    results: list[DeletableTopicResult] = []
    found: list[tuple[Topic, DeletableTopicResult]] = []
    for state, *repeats in named.values():
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        results.append(result)
        try:
            if repeats:
                raise InvalidRequest("the topic stands in the request more than once")
            found.append((_find(node, state, context.version), result))
        except BrokerError as error:
            _refuse(result, await node.refusal(error))
    outcomes = await node.delete_topics([topic for topic, _ in found])
    for (topic, result), outcome in zip(found, outcomes, strict=True):
        result.name, result.topic_id = topic.name, topic.topic_id
        if outcome is not None:
            _refuse(result, outcome)
    return DeleteTopicsResponse(responses=results)


def _identity(node: Node, state: DeleteTopicState) -> object:
    """Equal for two that name the same topic, one by its name and one by its id."""
    topic = node.metadata.topics_by_id.get(state.topic_id)
    return state.name or (topic.name if topic else state.topic_id)


def _find(node: Node, state: DeleteTopicState, version: int) -> Topic:
    if not node.config.delete_topic_enable:
        refusal = TopicDeletionDisabled if version >= KNOWS_DELETION_DISABLED else InvalidRequest
        raise refusal("this broker does not delete topics (delete.topic.enable)")
    if state.topic_id.int and state.name is not None:
        raise InvalidRequest("a topic is named by its name or by its id, not by both")
    if state.topic_id.int:
        topic = node.metadata.topic_by_id(state.topic_id)
    elif state.name is not None:
        topic = node.metadata.topic(state.name)
    else:
        raise InvalidRequest("neither a name nor an id was given")
    if topic.name in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic.name} belongs to the broker and stays")
    return topic


def _refuse(result: DeletableTopicResult, error: BrokerError) -> None:
    result.error_code, result.error_message = error_code(error), str(error)
