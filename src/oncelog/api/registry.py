"""Which APIs and versions this broker serves. `docs/protocol.md` is made from this table.

The module that serves an API is named after it and is imported when the API is first used. It has
one function, `handle(node, request, context)`, which returns the response or something to await.
"""

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from oncelog.runtime.node import Node
from oncelog.wire.messages import module_name
from oncelog.wire.messages.index import NAMES


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler may want to know beside the request itself."""

    api_key: int
    version: int
    client_id: str
    client_host: str
    #: Counts the connections in the order in which they were accepted.
    connection: int = 0


@dataclass(frozen=True, slots=True)
class Deferred:
    """A handler that acts at once could not: nothing is done yet, the next request has to wait."""

    work: Awaitable[Any]


@dataclass(frozen=True, slots=True)
class Api:
    """An API with the versions that we serve."""

    key: int
    first: int
    last: int
    #: What ApiVersions says is the first one, where clients need to read a lower number.
    advertised_first: int
    #: The handler has done all its work when it returns; only the reply may have to wait. So the
    #: next request of the same connection may begin, and still everything happens in order.
    acts_at_once: bool

    @property
    def name(self) -> str:
        """As in Kafka's documentation."""
        return NAMES[self.key]


def _api(
    key: int, first: int, last: int, *, advertised_first: int | None = None,
    acts_at_once: bool = False,
) -> Api:  # fmt: skip
    offered = first if advertised_first is None else advertised_first
    return Api(key, first, last, offered, acts_at_once)


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        # librdkafka reads from this range whether a codec is supported (KAFKA-18659).
        _api(0, 3, 13, advertised_first=0, acts_at_once=True),
        _api(1, 4, 18),
        _api(2, 1, 11),
        _api(3, 0, 13),
        _api(8, 2, 10),
        _api(9, 1, 10),
        _api(10, 0, 6),
        _api(11, 0, 9),
        _api(12, 0, 4),
        _api(13, 0, 5),
        _api(14, 0, 5),
        _api(15, 0, 6),
        _api(16, 0, 5),
        _api(17, 0, 1),
        _api(18, 0, 4),
        _api(19, 2, 7),
        _api(20, 1, 6),
        _api(21, 0, 2),
        _api(22, 0, 5),
        _api(23, 2, 4),
        _api(24, 0, 5),
        _api(25, 0, 4),
        _api(26, 0, 5),
        _api(27, 1, 2),
        _api(28, 0, 5),
        _api(32, 1, 4),
        _api(33, 0, 2),
        _api(35, 1, 5),
        _api(36, 0, 2),
        _api(37, 0, 3),
        _api(42, 0, 2),
        _api(43, 0, 2),
        _api(44, 0, 1),
        _api(45, 0, 1),
        _api(46, 0, 0),
        _api(47, 0, 0),
        _api(57, 0, 2),
        _api(60, 0, 2),
        _api(61, 0, 0),
        _api(65, 0, 0),
        _api(66, 0, 2),
        _api(74, 0, 1),
        _api(75, 0, 0),
    )
}

Handler: TypeAlias = Callable[[Node, Any, RequestContext], Any | Awaitable[Any]]


@cache
def handler(api_key: int) -> Handler:
    """The function that serves an API."""
    module = importlib.import_module(f"oncelog.api.{module_name(api_key)}")
    function: Handler = module.handle
    return function
