"""Logging in at a broker of a few lines: what is sent, in which order, and what a refusal means."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from oncelog.client.cluster import Cluster
from oncelog.client.connection import Connection
from oncelog.client.errors import AuthenticationFailed, Disconnected
from oncelog.client.security import Credentials, Mechanism, Security
from oncelog.client.settings import ClientSettings
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.fake_broker import FakeBroker, running

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
LIST_GROUPS = 16

ALICE = Credentials(mechanism=Mechanism.PLAIN, username="alice", password="hunter2")


def a_broker(*, session_lifetime_ms: int = 0) -> FakeBroker:
    """One that lets everybody in."""
    broker = FakeBroker()
    broker.answers[SASL_HANDSHAKE] = lambda *_: SaslHandshakeResponse(mechanisms=["PLAIN"])
    broker.answers[SASL_AUTHENTICATE] = lambda *_: SaslAuthenticateResponse(
        session_lifetime_ms=session_lifetime_ms
    )
    broker.answers[LIST_GROUPS] = lambda *_: ListGroupsResponse()
    return broker


def names_of(broker: FakeBroker) -> list[str]:
    return [type(message).__name__.removesuffix("Request") for message, _ in broker.seen]


def connected(broker: FakeBroker, credentials: Credentials = ALICE) -> Any:
    security = Security(credentials=credentials)
    return Cluster.connect(
        ClientSettings(bootstrap_servers=broker.bootstrap, security=security, timeout_s=5)
    )


@running
async def test_the_login_comes_after_the_versions_and_before_everything_else() -> None:
    async with a_broker() as broker, await connected(broker) as cluster:
        await cluster.ask(ListGroupsRequest())

    assert names_of(broker) == [
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
        "Metadata",
        "ListGroups",
    ]
    (_, handshake_version), (login, _) = broker.seen[1:3]
    assert handshake_version == 1  # in version 0 bare tokens would follow
    assert bytes(login.auth_bytes) == b"\0alice\0hunter2"


@running
async def test_a_broker_of_kafka_1_is_logged_in_to_in_its_own_version() -> None:
    async with a_broker() as broker:
        broker.versions[SASL_AUTHENTICATE] = range(0, 1)
        async with await connected(broker):
            pass

    assert broker.seen[2][1] == 0


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256", "GSSAPI"]),
            r"does not take PLAIN \(it takes SCRAM-SHA-256, GSSAPI\): set sasl\.mechanism",
        ),
        (SaslHandshakeResponse(error_code=34), r"wants no user: set security\.protocol"),
        (SaslHandshakeResponse(error_code=87), "to let anybody log in"),
    ],
)
@running
async def test_a_broker_without_our_mechanism_says_what_it_has(answer: Any, problem: str) -> None:
    async with a_broker() as broker:
        broker.answers[SASL_HANDSHAKE] = lambda *_: answer

        with pytest.raises(AuthenticationFailed, match=problem):
            await connected(broker)

    assert "SaslAuthenticate" not in names_of(broker)


@running
async def test_a_refused_login_is_not_tried_again() -> None:
    async with a_broker() as broker, await connected(broker) as cluster:
        broker.answers[SASL_AUTHENTICATE] = lambda *_: SaslAuthenticateResponse(
            error_code=58, error_message="Invalid username or password"
        )
        (await cluster.any()).abort()

        with pytest.raises(
            AuthenticationFailed,
            match=r"^The broker did not let in the user 'alice' with PLAIN: Invalid username or",
        ) as caught:
            await cluster.ask(ListGroupsRequest())

    assert names_of(broker).count("SaslAuthenticate") == 2
    assert "hunter2" not in str(caught.value)


@running
async def test_an_impostor_is_found_out() -> None:
    scram = Credentials(mechanism=Mechanism.SCRAM_SHA_512, username="alice", password="hunter2")

    def lie(request: Any, version: int) -> Any:
        sent = bytes(request.auth_bytes).decode()
        nonce = sent.partition("r=")[2]
        first = f"r={nonce}server,s=c2FsdA==,i=4096".encode()
        return SaslAuthenticateResponse(auth_bytes=b"v=bGll" if ",p=" in sent else first)

    async with a_broker() as broker:
        broker.answers[SASL_AUTHENTICATE] = lie

        with pytest.raises(AuthenticationFailed, match="it may be an impostor"):
            await connected(broker, scram)

    assert "Metadata" not in names_of(broker)


# --- sessions ---


@running
async def test_a_login_without_an_end_happens_once() -> None:
    for lifetime_ms in (0, -1, 2**62):
        broker = a_broker(session_lifetime_ms=lifetime_ms)
        async with broker, await connected(broker) as cluster:
            for _ in range(3):
                await cluster.ask(ListGroupsRequest())

        assert names_of(broker).count("SaslHandshake") == 1


@running
async def test_a_session_is_renewed_on_its_connection_and_nothing_comes_between() -> None:
    async with a_broker(session_lifetime_ms=1) as broker, await connected(broker) as cluster:
        await asyncio.sleep(0.005)
        await asyncio.gather(*(cluster.ask(ListGroupsRequest()) for _ in range(20)))

    names = names_of(broker)
    assert broker.connection_count == 1
    assert names.count("SaslHandshake") >= 2
    assert names.count("ListGroups") == 20
    followers = {after for name, after in pairwise(names) if name == "SaslHandshake"}
    assert followers == {"SaslAuthenticate"}


@running
async def test_a_renewal_that_stops_halfway_ends_the_connection() -> None:
    came = asyncio.Event()

    def stay_silent(request: Any, version: int) -> None:
        came.set()

    async with a_broker(session_lifetime_ms=1) as broker:
        connection = await Connection.open("127.0.0.1", broker.port, credentials=ALICE)
        broker.answers[SASL_AUTHENTICATE] = stay_silent
        await asyncio.sleep(0.005)

        first = asyncio.create_task(connection.request(ListGroupsRequest()))
        second = asyncio.create_task(connection.request(ListGroupsRequest()))
        await came.wait()
        first.cancel()

        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(Disconnected):
            await second
        assert not connection.is_open


@running
async def test_giving_up_while_another_logs_in_disturbs_nobody() -> None:
    came, release = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, version: int) -> Any:
        came.set()
        await release.wait()
        return SaslAuthenticateResponse(session_lifetime_ms=0)

    async with a_broker(session_lifetime_ms=1) as broker:
        connection = await Connection.open("127.0.0.1", broker.port, credentials=ALICE)
        broker.answers[SASL_AUTHENTICATE] = slow
        await asyncio.sleep(0.005)

        first = asyncio.create_task(connection.request(ListGroupsRequest()))
        second = asyncio.create_task(connection.request(ListGroupsRequest()))
        await came.wait()
        second.cancel()
        release.set()

        assert (await first).error_code == 0
        await connection.close()
