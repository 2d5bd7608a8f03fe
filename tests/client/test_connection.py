"""One connection: versions, overlapping requests, and every way in which it can end."""

import asyncio
import socket
from typing import Any

import pytest

from oncelog.client.connection import Connection
from oncelog.client.errors import (
    BadReply,
    Disconnected,
    NoCommonVersion,
    NoReply,
    Unreachable,
)
from oncelog.wire.codec import encode
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.client.fake_broker import FakeBroker, running

HEARTBEAT = 12
LIST_GROUPS = 16


@running
async def test_a_request_goes_out_in_the_highest_version_that_both_sides_know() -> None:
    async with FakeBroker() as broker:
        broker.versions[LIST_GROUPS] = range(0, 4)
        broker.answers[LIST_GROUPS] = lambda *_: ListGroupsResponse(error_code=14)
        connection = await Connection.open("127.0.0.1", broker.port, client_id="cli")

        reply = await connection.request(ListGroupsRequest())
        await connection.request(ListGroupsRequest(), version=1)
        await connection.close()

    assert reply.error_code == 14
    assert [version for _, version in broker.seen] == [3, 3, 1]
    assert broker.client_ids == {"cli"}


@running
async def test_a_broker_that_knows_no_version_3_is_asked_again_in_its_own() -> None:
    def old(request: Any, version: int) -> Any:
        offer = [ApiVersion(api_key=18, min_version=0, max_version=2)]
        if version > 2:
            # Kafka answers what it does not know in version 0, error 35 first.
            return encode(ApiVersionsResponse(error_code=35, api_keys=offer), 0)
        return ApiVersionsResponse(api_keys=[*offer, ApiVersion(api_key=0, max_version=5)])

    async with FakeBroker() as broker:
        broker.answers[18] = old
        connection = await Connection.open("127.0.0.1", broker.port)
        await connection.close()

    assert [version for _, version in broker.seen] == [3, 2]
    assert connection.offered == {18: range(0, 3), 0: range(0, 6)}


@running
async def test_requests_overlap_and_answers_find_their_way_back() -> None:
    def answer(request: Any, version: int) -> Any:
        return HeartbeatResponse(error_code=request.generation_id)

    async with FakeBroker() as broker:
        broker.answers[HEARTBEAT] = answer
        connection = await Connection.open("127.0.0.1", broker.port)
        requests = [HeartbeatRequest(generation_id=number) for number in range(20)]

        replies = await asyncio.gather(*(connection.request(r) for r in requests))
        await connection.close()

    assert [reply.error_code for reply in replies] == list(range(20))


@running
async def test_an_answer_that_comes_too_late_disturbs_nobody() -> None:
    release = asyncio.Event()

    async def slow(request: Any, version: int) -> Any:
        await release.wait()
        return HeartbeatResponse(error_code=1)

    async with FakeBroker() as broker:
        broker.answers[HEARTBEAT] = slow
        broker.answers[LIST_GROUPS] = lambda *_: ListGroupsResponse(error_code=2)
        connection = await Connection.open("127.0.0.1", broker.port)

        with pytest.raises(NoReply, match="Heartbeat was not answered within"):
            await connection.request(HeartbeatRequest(), timeout=0.01)
        release.set()
        reply = await connection.request(ListGroupsRequest())
        await connection.close()

    assert reply.error_code == 2


@running
async def test_a_broker_that_hangs_up_leaves_no_one_waiting() -> None:
    async with FakeBroker() as broker:
        broker.answers[HEARTBEAT] = lambda *_: ConnectionError()
        connection = await Connection.open("127.0.0.1", broker.port)

        with pytest.raises(Disconnected):
            await connection.request(HeartbeatRequest())
        with pytest.raises(Disconnected):
            await connection.request(HeartbeatRequest())

        assert not connection.is_open


@running
async def test_closing_tells_those_who_wait() -> None:
    async with FakeBroker() as broker:
        broker.answers[HEARTBEAT] = lambda *_: None
        connection = await Connection.open("127.0.0.1", broker.port)
        waiting = asyncio.create_task(connection.request(HeartbeatRequest()))
        await asyncio.sleep(0)

        await connection.close()

        with pytest.raises(Disconnected):
            await waiting


@running
async def test_an_answer_that_cannot_be_read_ends_the_connection() -> None:
    async with FakeBroker() as broker:
        broker.answers[HEARTBEAT] = lambda *_: b"\0"
        connection = await Connection.open("127.0.0.1", broker.port)

        with pytest.raises(BadReply, match="cannot be read"):
            await connection.request(HeartbeatRequest())

        assert not connection.is_open


@running
async def test_an_api_that_the_broker_lacks_is_not_sent() -> None:
    async with FakeBroker() as broker:
        del broker.versions[LIST_GROUPS]
        broker.versions[HEARTBEAT] = range(9, 12)
        connection = await Connection.open("127.0.0.1", broker.port)

        with pytest.raises(NoCommonVersion, match="does not offer ListGroups"):
            await connection.request(ListGroupsRequest())
        with pytest.raises(NoCommonVersion, match="versions 9-11, we speak 0-4"):
            await connection.request(HeartbeatRequest())
        await connection.close()

    assert len(broker.seen) == 1


@running
async def test_nobody_at_the_address_is_a_sentence() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]

        with pytest.raises(Unreachable, match=f"^127.0.0.1:{port} cannot be reached: .*refused"):
            await Connection.open("127.0.0.1", port)


@running
async def test_a_peer_that_speaks_something_else_is_found_out() -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(http, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        with pytest.raises(BadReply, match="does not speak Kafka"):
            await Connection.open("127.0.0.1", port)
