"""DescribeConfigs (32), versions 1-4: settings, their values, and where those come from.

1 sources and synonyms; 3 types and documentation; 4 flexible. A broker resource without a name asks
for what was set for all brokers while they ran.
"""

from collections.abc import Iterable
from typing import Final

from oncelog.api.config_resources import Resource, broker_of, no_settings
from oncelog.api.config_view import Entry, broker_entries, entries_of_all_brokers, topic_entries
from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError
from oncelog.core.metadata.shard import check_topic_name
from oncelog.core.topic_config import Kind
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TYPES: Final = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
}


def handle(
    node: Node, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe each resource, or say why not."""
    return DescribeConfigsResponse(
        results=[_describe(node, resource, request) for resource in request.resources]
    )


def _describe(
    node: Node, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        # No names, like null, asks for all; a name that nothing has is passed over.
        wanted = resource.configuration_keys
        result.configs = [
            _raise_entry(entry, request)
            for entry in _entries(node, resource)
            if not wanted or entry.name in wanted
        ]
    except BrokerError as error:
        result.error_code, result.error_message = error_code(error), str(error)
    return result


def _entries(node: Node, resource: DescribeConfigsResource) -> Iterable[Entry]:
    if resource.resource_type == Resource.TOPIC:
        check_topic_name(resource.resource_name)
        return topic_entries(node, node.metadata.topic(resource.resource_name))
    if resource.resource_type == Resource.BROKER:
        if broker_of(node, resource.resource_name) is None:
            return entries_of_all_brokers(node)
        return broker_entries(node)
    raise no_settings(resource.resource_type)


def _raise_entry(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        synonyms=[
            DescribeConfigsSynonym(name=said.name, value=said.value, source=said.source)
            for said in synonyms
        ],
        config_type=TYPES[entry.setting.kind],
        documentation=entry.setting.documentation if request.include_documentation else None,
    )
