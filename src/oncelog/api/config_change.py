"""How both alter APIs change settings.

Each says how the settings of a resource that stand become the new ones; here the outcome is checked
and submitted. Nothing is awaited between reading and submitting, so a change that somebody else
makes at the same time is not lost. Resources succeed or fail one by one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from oncelog.api.config_resources import Resource, broker_of, no_settings
from oncelog.core.errors import BrokerError, InvalidConfig, InvalidRequest
from oncelog.core.metadata.shard import SetBrokerConfigs, SetTopicConfigs, check_topic_name
from oncelog.core.topic_config import Setting, render, topic_setting
from oncelog.runtime.dynamic_config import check_layers, dynamic_setting
from oncelog.runtime.node import Node


class NamedConfig(Protocol):
    """One setting in a request."""

    name: str


class ConfigResource(Protocol):
    """One resource in a request of either API."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[NamedConfig]:
        """What is to be changed."""


#: What a resource says itself -> what it says from now on. The second argument reads the value in
#: force, defaults included, of a setting that must exist.
Current: TypeAlias = Callable[[str], tuple[Setting, str]]
Edit: TypeAlias = Callable[[dict[str, str], Current], dict[str, str]]

AnyResource = TypeVar("AnyResource", bound=ConfigResource)


async def change_all(
    node: Node,
    resources: Sequence[AnyResource],
    edit_of: Callable[[AnyResource], Edit],
    *,
    validate_only: bool,
) -> list[BrokerError | None]:
    """Change each resource, or say why not, in the order of the request."""
    counts = Counter((each.resource_type, each.resource_name) for each in resources)

    async def change(resource: AnyResource) -> BrokerError | None:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest("the resource stands in the request more than once")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise InvalidRequest("a setting stands in the request more than once")
            await _change(node, resource, edit_of(resource), validate_only=validate_only)
            return None
        except BrokerError as error:
            return error

    # All at once, so that they share one sync.
    return await asyncio.gather(*(change(resource) for resource in resources))


async def _change(node: Node, resource: ConfigResource, edit: Edit, *, validate_only: bool) -> None:
    command: SetTopicConfigs | SetBrokerConfigs
    if resource.resource_type == Resource.TOPIC:
        command = _topic_change(node, resource.resource_name, edit)
    elif resource.resource_type == Resource.BROKER:
        command = _broker_change(node, resource.resource_name, edit)
    else:
        raise no_settings(resource.resource_type)
    if not validate_only:
        await node.change(command)


def _topic_change(node: Node, name: str, edit: Edit) -> SetTopicConfigs:
    if not name:
        raise InvalidRequest(
            "there are no settings for all topics; the broker's are their defaults"
        )
    check_topic_name(name)
    topic = node.metadata.topic(name)
    current = _reader(topic_setting, node.metadata.topic_config(topic))
    command = SetTopicConfigs(name=name, configs=edit(dict(topic.configs), current))
    node.metadata.plan_configs(command)
    return command


def _broker_change(node: Node, name: str, edit: Edit) -> SetBrokerConfigs:
    node_id = broker_of(node, name)
    layers = node.metadata.broker_configs
    configs = edit(dict(layers.get(node_id, {})), _reader(dynamic_setting, node.config))
    for each in configs:
        dynamic_setting(each)
    try:
        topics = node.metadata.topics.values()
        check_layers(node.started_with, {**layers, node_id: configs}, topics)
    except InvalidConfig as error:
        # Kafka has this code for whatever is wrong with a broker's settings.
        raise InvalidRequest(str(error)) from None
    return SetBrokerConfigs(node_id=node_id, configs=configs)


def _reader(setting_of: Callable[[str], Setting], config: object) -> Current:
    def current(name: str) -> tuple[Setting, str]:
        setting = setting_of(name)
        return setting, render(getattr(config, setting.attribute)) or ""

    return current
