"""What settings belong to, as the config APIs number and name it."""

from enum import IntEnum

from oncelog.core.errors import InvalidRequest
from oncelog.runtime.node import Node


class Resource(IntEnum):
    """The kinds of things that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def broker_of(node: Node, name: str) -> int | None:
    """Which broker a resource names: this one, or all of them where the name is empty."""
    if not name:
        return None
    if name != str(node.config.node_id):
        raise InvalidRequest(f"this is broker {node.config.node_id}, not {name!r}")
    return node.config.node_id


def no_settings(kind: int) -> InvalidRequest:
    """Why a kind of resource is refused."""
    if kind in set(Resource):
        noun = Resource(kind).name.lower().replace("_", " ")
        return InvalidRequest(f"nothing can be set for a {noun} here")
    return InvalidRequest(f"there is no resource type {kind}")
