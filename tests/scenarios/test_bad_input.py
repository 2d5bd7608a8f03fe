"""Bad input and hostile clients: an error or a closed connection, and nobody else notices.

Frames, names, batches and greed; what single requests may ask for is in `test_o_requests.py`.
"""

import asyncio
import contextlib
import socket
import struct
import time
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

import oncelog
from oncelog.api.registry import APIS
from oncelog.client.frames import decode_response, encode_request
from oncelog.core.batch import CONTROL, TRANSACTIONAL
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.core.batches import a_batch, with_field
from tests.scenarios.victim import (
    MIB,
    Victim,
    answer_to,
    framed,
    header,
    read_frame,
    read_to_the_end,
)
from tests.scenarios.wire import OK, Wire, a_produce, now_ms

# --- frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, -2147483648, (1 << 31) - 1, 100 * MIB + 1])
def test_o193_o194_a_frame_of_an_impossible_size_closes_the_connection(
    victim: Victim, size: int
) -> None:
    """O193, O194: at once, and no memory is taken for it."""
    assert answer_to(victim, struct.pack(">i", size)) == b""


def test_o194_a_large_frame_takes_memory_only_as_it_arrives(victim: Victim) -> None:
    """O194: forty clients announce 100 MiB each and send a little of it."""
    before = victim.rss_bytes()
    sockets = [victim.socket() for _ in range(40)]
    for raw in sockets:
        raw.sendall(struct.pack(">i", 100 * MIB) + bytes(1000))

    for raw in sockets:
        assert read_to_the_end(raw) == b""  # after the time for half a frame
        raw.close()

    assert victim.rss_bytes() < before + 64 * MIB


@pytest.mark.parametrize("size", range(8))
def test_o195_a_frame_too_short_for_a_header_closes_the_connection(
    victim: Victim, size: int
) -> None:
    """O195."""
    assert answer_to(victim, framed(bytes(size))) == b""


@pytest.mark.parametrize("api_key", [0, 1, 2, 3, 8, 11])
def test_o195_a_header_without_a_body_closes_the_connection(victim: Victim, api_key: int) -> None:
    """O195."""
    assert answer_to(victim, framed(header(api_key, APIS[api_key].last))) == b""


@pytest.mark.parametrize(
    "hello",
    [
        pytest.param(bytes.fromhex("16030100c8010000c40303") + bytes(200), id="TLS"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="SSH"),
        *(pytest.param(Random(seed).randbytes(300), id=f"random {seed}") for seed in range(6)),
    ],
)
def test_o196_other_protocols_are_closed(victim: Victim, hello: bytes) -> None:
    """O196: at once, or when the time for half a frame is over."""
    assert answer_to(victim, hello) == b""


@pytest.mark.parametrize("api_key", [-1, -32768, 4, 99, 32767])
def test_o197_an_unknown_api_closes_the_connection(victim: Victim, api_key: int) -> None:
    """O197."""
    assert answer_to(victim, framed(header(api_key, 0) + bytes(20))) == b""


@pytest.mark.parametrize("version", [-1, 99, 32767])
def test_o198_an_unknown_version_closes_the_connection(victim: Victim, version: int) -> None:
    """O198, for every API but one."""
    for api_key in APIS.keys() - {18}:
        assert answer_to(victim, framed(header(api_key, version) + bytes(20))) == b"", api_key


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_o198_an_unknown_version_of_api_versions_is_answered(victim: Victim, version: int) -> None:
    """O198, KIP-511: in version 0, with the ranges that are served."""
    with victim.socket() as raw:
        raw.sendall(framed(header(18, version) + bytes(20)))
        answer = read_frame(raw)

    reply = decode_response(memoryview(answer), api_key=18, version=0)
    assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
    ranges = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
    assert ranges[18] == (0, 4)
    assert ranges.keys() == APIS.keys()


def test_o202_bytes_left_over_after_a_request_do_not_reach_the_next(victim: Victim) -> None:
    """O202."""
    first = encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="c")
    second = encode_request(ApiVersionsRequest(), version=0, correlation_id=2, client_id="c")
    with victim.socket() as raw:
        raw.sendall(framed(first[4:] + b"left over") + second)

        answers = [read_frame(raw), read_frame(raw)]

    assert [answer[:4] for answer in answers] == [b"\0\0\0\1", b"\0\0\0\2"]
    assert answers[0][4:] == answers[1][4:]


def test_o230_a_request_cut_at_any_byte_leaves_nothing_behind(victim: Victim) -> None:
    """O230: the client hangs up in the middle of a Produce."""
    request = encode_request(
        a_produce({0: a_batch(timestamp_ms=now_ms())}),
        version=9,
        correlation_id=1,
        client_id="c",
    )

    before = victim.digest()
    for size in range(len(request)):
        with victim.socket() as raw:
            raw.sendall(request[:size])

    victim.check_health()  # Whatever was sent before has been dealt with.
    assert victim.digest() == before


def test_o227_a_request_that_trickles_in_is_closed(victim: Victim) -> None:
    """O227: the time for a request begins with its first byte, not with its last."""
    is_closed = False

    with victim.socket() as raw:
        raw.sendall(framed(bytes(1000))[:4])
        raw.settimeout(0.05)
        for _ in range(100):
            try:
                raw.sendall(b"\0")
                is_closed = raw.recv(100) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                is_closed = True
            break

    assert is_closed


# --- names ----------------------------------------------------------------------------------

BAD_NAMES = [
    "", ".", "..", "../../etc/passwd", "a/b", "a\\b", "x" * 250, "a\0b", "a\nb", "ä", "a b", "/",
    "..a/../b", "%2e%2e", "a:b", "~", "\U0001f600",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_o204_a_name_that_no_topic_may_have_is_refused(victim: Victim, name: str) -> None:
    """O204: by CreateTopics, by the first use in Metadata, and by Produce; nothing is created."""
    before = names_around(victim.broker.data_dir)

    async def main(wire: Wire) -> list[int]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        metadata = await wire.ask(request, 9)
        answer = await wire.produce(wire.batch(), topic=name)
        return [await wire.create_topic(name), metadata.topics[0].error_code, answer.error_code]

    created, looked_up, produced = victim.talk(main)

    assert created == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert looked_up == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produced in (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert names_around(victim.broker.data_dir) == before


def names_around(data_dir: Path) -> set[str]:
    """Every path in the data directory and beside it."""
    return {str(path) for path in data_dir.parent.rglob("*") if "healthy" not in path.name}


@pytest.mark.parametrize("name", ["x" * 249, "a.b-c_d", "0", "-", "x.log", "x-0", "..."])
def test_o204_o205_every_other_name_works(victim: Victim, name: str) -> None:
    """O204, O205: and has a directory of its own."""

    async def main(wire: Wire) -> None:
        assert await wire.create_topic(name) == OK
        assert (await wire.produce(wire.batch(value=name.encode()), topic=name)).error_code == OK
        assert await wire.values(name) == [name.encode()]
        assert await wire.delete_topic(name) == OK

    victim.talk(main)


def test_o205_names_that_look_alike_are_kept_apart(victim: Victim) -> None:
    """O205."""
    groups = [("A", "a"), ("y", "y-0", "y-0-0"), ("z", "z.log"), ("d", f"d-0.{'0' * 32}-delete")]

    async def main(wire: Wire) -> None:
        for names in groups:
            for name in names:
                assert await wire.create_topic(name) == OK, name
                await wire.produce(wire.batch(value=name.encode()), topic=name)
            for name in names:
                assert await wire.values(name) == [name.encode()]
        # As in Kafka: in the names of metrics these two would be one.
        assert await wire.create_topic("m.n") == OK
        assert await wire.create_topic("m_n") == ErrorCode.INVALID_TOPIC_EXCEPTION

    victim.talk(main)


def test_o216_the_brokers_own_topics_are_not_for_clients(victim: Victim) -> None:
    """O216."""

    async def main(wire: Wire) -> list[tuple[int, int]]:
        names = ("__cluster_metadata", "__consumer_offsets", "__transaction_state")
        return [
            (
                await wire.create_topic(name),
                (await wire.produce(wire.batch(), topic=name)).error_code,
            )
            for name in names
        ]

    for created, produced in victim.talk(main):
        assert created != OK
        assert produced != OK


# --- produce --------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_o206_impossible_acks_are_refused(victim: Victim, acks: int) -> None:
    """O206."""

    async def main(wire: Wire) -> int:
        return (await wire.produce(wire.batch(), acks=acks)).error_code

    assert victim.talk(main) == ErrorCode.INVALID_REQUIRED_ACKS


def test_o207_an_error_without_acks_closes_the_connection(victim: Victim) -> None:
    """O207: there is no other way to tell."""
    batch = with_field(a_batch(timestamp_ms=now_ms()), 57, ">i", 9)
    request = encode_request(
        a_produce({0: batch}, acks=0), version=9, correlation_id=1, client_id="c"
    )

    assert answer_to(victim, request) == b""


GOOD = a_batch(count=2, timestamp_ms=now_ms())
INVALID, CORRUPT = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("batch", "codes"),
    [
        pytest.param(GOOD[:17] + b"\1\2\3\4" + GOOD[21:], {CORRUPT}, id="O208 checksum"),
        pytest.param(with_field(GOOD, 8, ">i", 48), {CORRUPT}, id="O209 length below a header"),
        pytest.param(with_field(GOOD, 8, ">i", len(GOOD)), {CORRUPT}, id="O209 length beyond"),
        pytest.param(with_field(GOOD, 8, ">i", -5), {CORRUPT, INVALID}, id="O209 length negative"),
        pytest.param(GOOD + GOOD, {INVALID}, id="O209 two batches"),
        pytest.param(b"", {INVALID}, id="O209 none"),
        pytest.param(None, {INVALID}, id="O209 null"),
        pytest.param(GOOD[:16] + b"\0" + GOOD[17:], {INVALID}, id="O209 magic 0"),
        pytest.param(GOOD[:16] + b"\1" + GOOD[17:], {INVALID}, id="O209 magic 1"),
        pytest.param(GOOD[:16] + b"\3" + GOOD[17:], {CORRUPT}, id="O209 magic 3"),
        pytest.param(with_field(GOOD, 57, ">i", 0), {INVALID}, id="O210 count 0"),
        pytest.param(with_field(GOOD, 57, ">i", -1), {INVALID}, id="O210 count -1"),
        pytest.param(with_field(GOOD, 57, ">i", (1 << 31) - 1), {INVALID}, id="O210 count 2^31-1"),
        pytest.param(with_field(GOOD, 57, ">i", 3), {INVALID}, id="O210 count too large"),
        pytest.param(with_field(GOOD, 23, ">i", 7), {INVALID}, id="O210 last offset delta"),
        pytest.param(with_field(GOOD, 0, ">q", 5), {INVALID}, id="base offset"),
        pytest.param(with_field(GOOD, 21, ">h", CONTROL), {INVALID}, id="O211 control"),
        pytest.param(with_field(GOOD, 21, ">h", 7), {INVALID}, id="codec 7"),
        pytest.param(with_field(GOOD, 43, ">q", 9), {INVALID}, id="O211 id without sequence"),
    ],
)
def test_o208_o209_a_bad_batch_is_refused_and_nothing_is_appended(
    victim: Victim, batch: bytes | None, codes: set[int]
) -> None:
    """O208-O211, checks 2-5."""

    async def main(wire: Wire) -> tuple[int, int]:
        return (await wire.produce(batch)).error_code, await wire.end_offset()

    code, end = victim.talk(main)

    assert code in codes
    assert end == 3


def test_o211_a_transactional_batch_without_a_transaction_is_refused(victim: Victim) -> None:
    """O211: without an identity, without a transactional id, and without a transaction."""
    nobody = a_batch(attributes=TRANSACTIONAL, timestamp_ms=now_ms())
    somebody = a_batch(
        attributes=TRANSACTIONAL, timestamp_ms=now_ms(), sequence=0, producer_id=4711
    )

    async def main(wire: Wire) -> list[int]:
        answers = [
            await wire.produce(batch, transactional_id=transactional_id, version=11)
            for batch in (nobody, somebody)
            for transactional_id in (None, "unheard of")
        ]
        assert await wire.end_offset() == 3
        return [answer.error_code for answer in answers]

    assert OK not in victim.talk(main)


def test_o208_every_flipped_bit_of_a_batch_is_noticed(victim: Victim) -> None:
    """O208, over the wire: bit 3 of each byte but those of the leader epoch, which is not read."""

    async def main(wire: Wire) -> None:
        for position in (p for p in range(len(GOOD)) if not 12 <= p < 16):
            flipped = bytearray(GOOD)
            flipped[position] ^= 8
            code = (await wire.produce(bytes(flipped))).error_code
            assert code in (INVALID, CORRUPT), f"byte {position}"
        assert await wire.end_offset() == 3

    victim.talk(main)


@pytest.mark.parametrize("partition", [-1, 1, (1 << 31) - 1, -(1 << 31)])
def test_o217_a_partition_that_does_not_exist_is_unknown(victim: Victim, partition: int) -> None:
    """O217."""

    async def main(wire: Wire) -> set[int]:
        return {
            (await wire.produce(wire.batch(), partition=partition)).error_code,
            (await wire.fetch(partition=partition)).error_code,
            (await wire.list_offset(-1, partition=partition)).error_code,
        }

    assert victim.talk(main) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("topic_id", [UUID(int=0), UUID(int=12345)])
def test_o217_a_topic_id_that_nobody_has_is_unknown(victim: Victim, topic_id: UUID) -> None:
    """O217."""

    async def main(wire: Wire) -> list[int]:
        produce = a_produce({0: wire.batch()})
        produce.topic_data[0].topic_id = topic_id
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic_id=topic_id, partitions=[part])]
        )
        produced = await wire.ask(produce, 13)
        fetched = await wire.ask(fetch, 13)
        return [
            produced.responses[0].partition_responses[0].error_code,
            fetched.error_code or fetched.responses[0].partitions[0].error_code,
        ]

    assert set(victim.talk(main)) == {ErrorCode.UNKNOWN_TOPIC_ID}


# --- clients that take too much ---------------------------------------------------------------


def a_big_fetch(correlation_id: int) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100 * MIB)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=100 * MIB,
        topics=[FetchTopic(topic="big", partitions=[part])],
    )
    return encode_request(request, version=11, correlation_id=correlation_id, client_id="c")


def test_o228_a_client_that_never_reads_is_closed_and_memory_is_bounded(victim: Victim) -> None:
    """O228: it asks for 20 MiB again and again, and takes none of it."""
    before, peak = victim.rss_bytes(), 0
    with victim.socket() as raw:
        raw.setblocking(False)
        deadline = time.monotonic() + 20
        number = 0
        is_closed = False
        while not is_closed and time.monotonic() < deadline:
            try:
                raw.send(a_big_fetch(number))
                number += 1
            except BlockingIOError:
                time.sleep(0.02)  # the broker reads no more; its patience is what we wait for
            except ConnectionError:
                is_closed = True
            peak = max(peak, victim.rss_bytes())

    assert is_closed
    assert peak < before + 128 * MIB


def test_o229_requests_sent_without_waiting_are_answered_in_order(victim: Victim) -> None:
    """O229: ten thousand of them on one connection."""
    count, before = 10_000, victim.rss_bytes()
    requests = b"".join(
        encode_request(ApiVersionsRequest(), version=0, correlation_id=n, client_id="c")
        for n in range(count)
    )

    async def main() -> list[int]:
        reader, writer = await asyncio.open_connection(victim.host, victim.port)
        sending = asyncio.create_task(send(writer))
        found = []
        for _ in range(count):
            size = int.from_bytes(await reader.readexactly(4), "big")
            found.append(int.from_bytes((await reader.readexactly(size))[:4], "big"))
        await sending
        writer.close()
        await writer.wait_closed()
        return found

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(requests)
        await writer.drain()

    assert asyncio.run(asyncio.wait_for(main(), 60)) == list(range(count))
    assert victim.rss_bytes() < before + 64 * MIB


def test_o226_connections_beyond_the_limit_are_closed_as_they_come() -> None:
    """O226: those that are open are served, and there is room again when one leaves."""
    with oncelog.Broker({"max.connections": "30"}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        request = encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="c")
        first = [socket.create_connection((host, int(port)), timeout=10) for _ in range(30)]
        for raw in first:
            raw.sendall(request)
            assert read_frame(raw)

        late = [socket.create_connection((host, int(port)), timeout=10) for _ in range(20)]

        for raw in late:
            assert read_to_the_end(raw) == b""
            raw.close()
        for raw in first:
            raw.sendall(request)
            assert read_frame(raw)
        first.pop().close()
        assert eventually_served(host, int(port), request)
        for raw in first:
            raw.close()


def eventually_served(host: str, port: int, request: bytes) -> bool:
    """The broker hears of a closed connection a moment after it was closed."""
    for _ in range(100):
        with (
            socket.create_connection((host, port), timeout=10) as raw,
            contextlib.suppress(ConnectionError, AssertionError),
        ):
            raw.sendall(request)
            return bool(read_frame(raw))
        time.sleep(0.02)
    return False
