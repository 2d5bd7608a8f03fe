"""A client that hangs up before its request has begun leaves nothing behind."""

import asyncio
import gc
import warnings
from types import SimpleNamespace
from unittest.mock import MagicMock

from oncelog.client.frames import encode_request
from oncelog.runtime.config import BrokerConfig
from oncelog.server.connection import Connection
from oncelog.wire.messages.list_groups import ListGroupsRequest


def test_a_request_whose_client_is_gone_at_once_is_dropped_without_a_word() -> None:
    """A second request begins when the first is answered, and that may be when the end is seen."""
    frame = encode_request(ListGroupsRequest(), version=4, correlation_id=1, client_id="x")
    # The handler never runs, so it needs nothing of the node.
    node = SimpleNamespace(config=BrokerConfig(), metrics=SimpleNamespace(requests=MagicMock()))

    async def talk() -> None:
        connection = Connection(node, opened=lambda _: True, closed=lambda _: None)  # type: ignore[arg-type]
        connection.connection_made(MagicMock())
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))
        connection.connection_lost(None)
        await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        asyncio.run(talk())
        gc.collect()
    assert [str(each.message) for each in heard] == []
