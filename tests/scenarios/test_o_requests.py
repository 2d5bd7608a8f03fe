"""Group O, request by request: lengths that lie, strings that are no text, numbers out of range."""

import socket
import struct
from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

import pytest

import oncelog
from oncelog.core.packing import Codec, encode_batch
from oncelog.core.records import Record
from oncelog.core.varints import uvarint
from oncelog.testing.sim.world import SimConnection
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.client.fake_broker import running
from tests.scenarios.groups import Member
from tests.scenarios.simulated import Machine
from tests.scenarios.victim import (
    MIB,
    Victim,
    answer_to,
    framed,
    header,
    read_frame,
    read_to_the_end,
)
from tests.scenarios.wire import OK, TOPIC, Wire, connect, hang_up, now_ms
from tests.storage.opened import simulated

PRODUCE, METADATA, HEARTBEAT, API_VERSIONS = 0, 3, 12, 18
MAX_INT, MAX_LONG = (1 << 31) - 1, (1 << 63) - 1
#: A Metadata request of version 9 for all topics, but for its tags.
ALL_TOPICS = b"\0\0\0\0"
#: A Produce request of version 3 up to the size of its records.
UP_TO_RECORDS = struct.pack(">hhiih1sii", -1, -1, 1000, 1, 1, b"t", 1, 0)


# --- lengths, integers, tags ------------------------------------------------------------------


def flexible(api_key: int, version: int, body: bytes) -> bytes:
    return framed(header(api_key, version) + b"\0" + body)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(framed(header(METADATA, 0) + struct.pack(">i", 1 << 30) + bytes(26)), id="array"),
        pytest.param(flexible(METADATA, 9, uvarint(1 << 30) + bytes(20)), id="compact array"),
        pytest.param(framed(header(METADATA, 0) + struct.pack(">i", -2)), id="array of -2"),
        pytest.param(framed(header(PRODUCE, 3) + struct.pack(">h", 32_000) + bytes(9)), id="string"),
        pytest.param(framed(header(PRODUCE, 3) + struct.pack(">h", -2) + bytes(9)), id="string of -2"),
        pytest.param(flexible(HEARTBEAT, 4, uvarint(1 << 31) + bytes(20)), id="compact string"),
        pytest.param(flexible(HEARTBEAT, 4, b"\0" + bytes(20)), id="null without leave"),
        pytest.param(flexible(API_VERSIONS, 3, b"\0\2v\0"), id="null name"),
        pytest.param(
            framed(header(PRODUCE, 3) + UP_TO_RECORDS + struct.pack(">i", MAX_INT)), id="bytes"
        ),
        pytest.param(
            framed(header(PRODUCE, 3) + UP_TO_RECORDS + struct.pack(">i", -2)), id="bytes of -2"
        ),
        pytest.param(framed(struct.pack(">hhih", METADATA, 0, 7, 300) + b"c"), id="client id"),
        pytest.param(framed(struct.pack(">hhih", METADATA, 0, 7, -2)), id="client id of -2"),
    ],
)  # fmt: skip
def test_o199_a_length_that_lies_closes_the_connection(victim: Victim, frame: bytes) -> None:
    """Whatever it claims, no memory is taken for it: the fixture looks."""
    assert answer_to(victim, frame) == b""


@pytest.mark.parametrize("size", [6, 11, 3000])
@pytest.mark.parametrize("place", ["tags of the header", "length of a string", "count of an array"])
def test_o200_an_integer_that_does_not_end_closes_the_connection(
    victim: Victim, place: str, size: int
) -> None:
    endless = b"\x80" * size
    frame = {
        "tags of the header": framed(header(METADATA, 9) + endless),
        "length of a string": flexible(HEARTBEAT, 4, endless),
        "count of an array": flexible(METADATA, 9, endless),
    }[place]

    assert answer_to(victim, frame) == b""


@pytest.mark.parametrize("tags", [b"\0", b"\x01\x63\x03abc", b"\x02\x05\x00\x63\x03abc"])
def test_o201_tags_that_nobody_knows_are_skipped(victim: Victim, tags: bytes) -> None:
    """In the header as in the body."""
    with victim.socket() as raw:
        raw.sendall(framed(header(METADATA, 9) + tags + ALL_TOPICS + tags))

        assert read_frame(raw)[:4] == b"\0\0\0\7"


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x02\x63\x01a\x63\x01b", id="repeated"),
        pytest.param(uvarint(1 << 31), id="2^31 of them"),
        pytest.param(b"\x01\x63\x7fabc", id="beyond the frame"),
        pytest.param(b"\x01\x63" + uvarint((1 << 32) - 1) + b"abc", id="4 GiB long"),
    ],
)
def test_o201_tags_that_cannot_be_are_closed(victim: Victim, tags: bytes) -> None:
    assert answer_to(victim, framed(header(METADATA, 9) + tags + ALL_TOPICS + b"\0")) == b""
    assert answer_to(victim, flexible(METADATA, 9, ALL_TOPICS + tags)) == b""


# --- strings ----------------------------------------------------------------------------------

STRANGE = [
    pytest.param("a\0b", id="NUL"),
    pytest.param("a\n2026-01-01T00:00:00.000Z ERROR all is lost", id="line break"),
    pytest.param("../../../x", id="path"),
    pytest.param("\U0001f600" * 100, id="beyond the first plane"),
    pytest.param("x" * 32_767, id="32767"),
]


@pytest.mark.parametrize("text", STRANGE)
def test_o203_strings_of_clients_are_data_or_refused(victim: Victim, text: str) -> None:
    """As a group, a member, an id of transactions, a client and the metadata of an offset."""
    paths = set(victim.broker.data_dir.parent.rglob("*"))

    async def main(wire: Wire) -> None:
        group = Member(wire, text)
        await group.find_coordinator()
        committed = await group.commit({0: 3})
        assert await group.committed([0]) == {0: 3 if committed == OK else -1}
        stranger = HeartbeatRequest(group_id="g", generation_id=1, member_id=text)
        assert (await wire.ask(stranger, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        init = InitProducerIdRequest(transactional_id=text, transaction_timeout_ms=60_000)
        opened = (await wire.ask(init, 4)).error_code
        described = await wire.ask(DescribeTransactionsRequest(transactional_ids=[text]), 0)
        (state,) = described.transaction_states
        assert state.transactional_id == text
        assert (state.error_code == OK) == (opened == OK)
        noted = await commit_with_metadata(wire, text)
        assert noted == (OK if len(text.encode()) <= 4096 else ErrorCode.OFFSET_METADATA_TOO_LARGE)

    victim.talk(main)

    made = {path.name for path in set(victim.broker.data_dir.parent.rglob("*")) - paths}
    assert not any(text[:5] in name or "x" == name for name in made)


@pytest.mark.parametrize("client_id", [b"\xff\xfe", b"a\0b", b"a\nb", b"x" * 32_767])
def test_o203_a_client_may_call_itself_anything(victim: Victim, client_id: bytes) -> None:
    with victim.socket() as raw:
        raw.sendall(framed(header(METADATA, 0, client_id=client_id) + bytes(4)))

        assert read_frame(raw)[:4] == b"\0\0\0\7"


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80"])
def test_o203_a_string_that_is_no_text_closes_the_connection(victim: Victim, text: bytes) -> None:
    """As a group, in front of its generation, member and instance."""
    body = bytes([len(text) + 1]) + text + struct.pack(">i", 1) + b"\2m\0\0"

    assert answer_to(victim, flexible(HEARTBEAT, 4, body)) == b""


# --- produce ----------------------------------------------------------------------------------


def compressed(codec: Codec, values: list[bytes]) -> bytes:
    return encode_batch([Record(0, now_ms(), b"k", value, ()) for value in values], codec=codec)


def test_o214_the_limit_counts_the_batch_as_it_is_sent(victim: Victim) -> None:
    """As in Kafka: what is small when it is compressed may be large before."""
    noise, shrinking = [Random(214).randbytes(1000)], [b"." * 5000]

    async def main(wire: Wire) -> list[int]:
        assert await wire.create_topic("small", configs={"max.message.bytes": "700"}) == OK
        batches = [
            compressed(Codec.NONE, noise),
            compressed(Codec.NONE, shrinking),
            compressed(Codec.GZIP, noise),
            compressed(Codec.GZIP, shrinking),
        ]
        assert len(batches[2]) > 700 > len(batches[3])
        codes = [(await wire.produce(batch, topic="small")).error_code for batch in batches]
        assert await wire.values("small") == shrinking
        assert await wire.delete_topic("small") == OK
        return codes

    too_large = ErrorCode.MESSAGE_TOO_LARGE
    assert victim.talk(main) == [too_large, too_large, too_large, OK]


# --- fetch ------------------------------------------------------------------------------------


def a_fetch(
    offsets: Mapping[int, int],
    *,
    topic: str = TOPIC,
    partition_max_bytes: int = 1 << 20,
    **settings: Any,
) -> FetchRequest:
    partitions = [
        FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for index, offset in offsets.items()
    ]
    wanted: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **settings}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=partitions)], **wanted)


async def ask_for(
    wire: Wire, offsets: Mapping[int, int] | None = None, **settings: Any
) -> FetchResponse:
    reply: FetchResponse = await wire.ask(a_fetch(offsets or {0: 0}, **settings), 12)
    return reply


@pytest.mark.parametrize("offset", [-5, -(1 << 63), 4, MAX_LONG])
def test_o218_an_absurd_offset_is_out_of_range(victim: Victim, offset: int) -> None:
    async def main(wire: Wire) -> int:
        return (await wire.fetch(offset)).error_code

    assert victim.talk(main) == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("max_bytes", [0, -1, -(1 << 31), 1, MAX_INT])
def test_o218_the_first_batch_is_delivered_whatever_the_limit(
    victim: Victim, max_bytes: int
) -> None:
    async def main(wire: Wire) -> list[int]:
        replies = [
            await ask_for(wire, max_bytes=max_bytes),
            await ask_for(wire, partition_max_bytes=max_bytes),
            await ask_for(wire, topic="big", max_bytes=max_bytes, partition_max_bytes=max_bytes),
        ]
        return [len(reply.responses[0].partitions[0].records or b"") for reply in replies]

    first, second, big = victim.talk(main)

    assert first == second > 0
    assert 900_000 < big <= 100 << 20


@pytest.mark.parametrize("wait_ms", [-1, -(1 << 31), MAX_INT])
def test_o218_an_absurd_wait_ends(wait_ms: int) -> None:
    """At once where it is negative, after five minutes where it would last for weeks."""

    async def main() -> float:
        machine = Machine()
        wire = await machine.start()
        assert await wire.create_topic() == OK
        began = machine.broker.clock.now().monotonic_ms
        patient = SimConnection(machine.broker, "patient")
        reply = await patient.request(a_fetch({0: 0}, max_wait_ms=wait_ms), 12, timeout_s=1000)
        assert reply.error_code == OK
        return machine.broker.clock.now().monotonic_ms - began

    waited_ms = simulated(main)

    assert waited_ms < 1000 if wait_ms < 0 else 299_000 < waited_ms < 301_000


def test_o218_a_hundred_thousand_partitions_are_answered_one_by_one(a_victim: Victim) -> None:
    """The first such fetch makes room for all others: memory does not grow with their number."""

    async def main(wire: Wire) -> list[tuple[int, int]]:
        reply = await ask_for(wire, dict.fromkeys(range(100_000), 0))
        return [(part.partition_index, part.error_code) for part in reply.responses[0].partitions]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert a_victim.talk(main) == [(0, OK), *((index, unknown) for index in range(1, 100_000))]
    before = a_victim.rss_bytes()
    for _ in range(3):
        a_victim.talk(main)
    assert a_victim.rss_bytes() < before + 64 * MIB
    a_victim.check_health()


def test_o218_a_partition_that_is_named_twice_is_read_once(victim: Victim) -> None:
    async def main(wire: Wire) -> list[int]:
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topics = [FetchTopic(topic=TOPIC, partitions=[part, part])] * 2
        reply = await wire.ask(FetchRequest(min_bytes=1, max_bytes=1000, topics=topics), 12)
        return [part.error_code for topic in reply.responses for part in topic.partitions]

    assert victim.talk(main) == [OK]


@running
async def test_o219_sessions_that_are_too_many_make_room_for_newer_ones() -> None:
    """A session that nobody has, an epoch that is not the next, and three times the limit."""
    async with oncelog.Broker({"max.incremental.fetch.session.cache.slots": "10"}) as broker:
        wire = await connect(broker.bootstrap_servers)
        await wire.create_topic()
        ids = [(await ask_for(wire, session_epoch=0)).session_id for _ in range(30)]

        async def resume(session_id: int, epoch: int) -> int:
            request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=[])
            return int((await wire.ask(request, 12)).error_code)

        unknown, wrong = (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        )
        assert len(set(ids)) == 30
        assert [await resume(session_id, 1) for session_id in ids] == [unknown] * 20 + [OK] * 10
        assert [await resume(ids[-1], epoch) for epoch in (1, 3, MAX_INT, -7)] == [wrong] * 4
        assert [await resume(session_id, 1) for session_id in (4711, -1, MAX_INT)] == [unknown] * 3
        assert await resume(ids[-1], 2) == OK
        await hang_up(wire)


# --- groups -----------------------------------------------------------------------------------


def a_join(**wanted: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0")]
    usual = {
        "group_id": "joined",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    return JoinGroupRequest(**{**usual, **wanted})


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 0}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": MAX_INT}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_o223_a_join_that_cannot_be_is_refused(
    victim: Victim, wanted: Mapping[str, Any], code: ErrorCode
) -> None:
    async def main(wire: Wire) -> int:
        await Member(wire, "joined").find_coordinator()
        return int((await wire.ask(a_join(**wanted), 7)).error_code)

    assert victim.talk(main) == code


def test_o223_a_join_of_ten_mebibytes_costs_what_it_weighs(victim: Victim) -> None:
    """Again and again: it takes its own place, and the fixture looks at the memory."""
    heavy = [JoinGroupRequestProtocol(name="range", metadata=bytes(10 << 20))]

    async def main(wire: Wire) -> set[int]:
        member = Member(wire, "heavy")
        await member.find_coordinator()
        codes = set()
        for _ in range(5):
            request = a_join(group_id="heavy", group_instance_id="i", protocols=heavy)
            codes.add(int((await wire.ask(request, 7)).error_code))
        return codes

    assert victim.talk(main) <= {OK, ErrorCode.INVALID_REQUEST, ErrorCode.MESSAGE_TOO_LARGE}


async def commit_with_metadata(wire: Wire, metadata: str, offset: int = 5) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id="noted",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    await wire.ask(FindCoordinatorRequest(key="noted", key_type=0), 3)
    return int((await wire.ask(request, 8)).topics[0].partitions[0].error_code)


@pytest.mark.parametrize(
    ("size", "code"), [(4096, OK), (4097, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_o224_the_metadata_of_an_offset_is_bounded(
    victim: Victim, size: int, code: ErrorCode
) -> None:
    async def main(wire: Wire) -> int:
        return await commit_with_metadata(wire, "m" * size)

    assert victim.talk(main) == code


def test_o224_a_negative_offset_is_stored_as_it_is_given(victim: Victim) -> None:
    """As in Kafka, where it means that there is none."""

    async def main(wire: Wire) -> tuple[int, dict[int, int]]:
        return await commit_with_metadata(wire, "", -1), await Member(wire, "noted").committed([0])

    assert victim.talk(main) == (OK, {0: -1})


# --- topics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        ({"num_partitions": 0}, {ErrorCode.INVALID_PARTITIONS}),
        ({"num_partitions": -7}, {ErrorCode.INVALID_PARTITIONS}),
        ({"num_partitions": 10**6}, {ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION}),
        ({"num_partitions": MAX_INT}, {ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION}),
        ({"replication_factor": 0}, {ErrorCode.INVALID_REPLICATION_FACTOR}),
        ({"replication_factor": 9}, {ErrorCode.INVALID_REPLICATION_FACTOR}),
        ({"configs": [CreatableTopicConfig(name="colour", value="red")]}, {ErrorCode.INVALID_CONFIG}),
    ],
)  # fmt: skip
def test_o225_a_topic_that_cannot_be_is_not_made(
    victim: Victim, wanted: Mapping[str, Any], codes: set[ErrorCode]
) -> None:
    topic = CreatableTopic(**{"name": "n", "num_partitions": 1, "replication_factor": 1, **wanted})

    async def main(wire: Wire) -> tuple[int, int | None]:
        reply = await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        return reply.topics[0].error_code, await wire.partition_count("n")

    code, count = victim.talk(main)

    assert code in codes
    assert count is None


def test_o225_a_name_that_stands_twice_is_made_not_even_once(victim: Victim) -> None:
    topic = CreatableTopic(name="n", num_partitions=1, replication_factor=1)

    async def main(wire: Wire) -> tuple[list[int], int | None]:
        reply = await wire.ask(CreateTopicsRequest(topics=[topic, topic], timeout_ms=10_000), 5)
        return [each.error_code for each in reply.topics], await wire.partition_count("n")

    codes, count = victim.talk(main)

    assert set(codes) == {ErrorCode.INVALID_REQUEST}
    assert count is None


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("wanted", [{"name": None}, {"name": None, "topic_id": UUID(int=7)}])
def test_o217_a_topic_without_a_name_is_refused_by_versions_that_need_one(
    victim: Victim, version: int, wanted: Mapping[str, Any]
) -> None:
    """Their requests have room for an id, and their replies none for a null name."""

    async def main(wire: Wire) -> list[tuple[str, int]]:
        reply = await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(**wanted)]), version)
        return [(topic.name, topic.error_code) for topic in reply.topics]

    assert victim.talk(main) == [("", ErrorCode.INVALID_REQUEST)]


# --- replies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("resets", [True, False])
def test_o230_a_reply_cut_at_any_byte_leaves_nothing_behind(victim: Victim, resets: bool) -> None:
    """The client hangs up in the middle of what it is told; the fixture counts handles."""
    request = framed(header(METADATA, 0) + bytes(4))
    with victim.socket() as raw:
        raw.sendall(request)
        size = 4 + len(read_frame(raw))

    for count in range(size):
        with victim.socket() as raw:
            if resets:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.sendall(request * 3)
            assert len(raw.recv(count, socket.MSG_WAITALL)) == count if count else True

    with victim.socket() as raw:
        raw.sendall(request)
        assert len(read_frame(raw)) == size - 4
        raw.shutdown(socket.SHUT_WR)
        assert read_to_the_end(raw) == b""
