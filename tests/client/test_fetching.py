"""A range is read as a consumer reads it: gaps are none, losses are named, and it always ends."""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer

import oncelog
from oncelog.client.cluster import Cluster
from oncelog.client.errors import BadReply, Refused
from oncelog.client.fetching import (
    FIRST_FETCH_BYTES,
    Batch,
    Isolation,
    NotReadable,
    OffsetsGone,
    Range,
    TopicGone,
    fetch,
    visible,
)
from oncelog.core.errors import CorruptMessage
from oncelog.core.markers import Marker, encode_marker
from oncelog.core.packing import encode_batch, unpack
from oncelog.core.records import Record
from oncelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.client.fake_broker import FakeBroker, running

FETCH = 1
LIST_OFFSETS = 2
ID = UUID(int=7)


# --- what an answer brings ------------------------------------------------------------------------


def data(offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    """A batch; one with a producer id is part of a transaction."""
    is_transactional = producer_id >= 0
    return encode_batch(
        [Record(0, 5, None, value) for value in values],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    batch = bytearray(
        encode_marker(
            Marker(
                producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0
            ),
            timestamp_ms=5,
        )
    )
    struct.pack_into(">q", batch, 0, offset)
    return bytes(batch)


def values(found: Sequence[Batch]) -> list[bytes | None]:
    return [record.value for header, batch in found for record in unpack(header, batch[61:])]


def aborted(producer_id: int, first_offset: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id=producer_id, first_offset=first_offset)


def test_aborted_transactions_and_markers_are_left_out() -> None:
    records = b"".join(
        (
            data(0, b"plain"),
            data(1, b"aborted", producer_id=1),
            data(2, b"committed", producer_id=2),
            marker(3, 1, committed=False),
            data(4, b"next of the same producer", producer_id=1),
            marker(5, 2, committed=True),
            marker(6, 1, committed=True),
        )
    )

    found, following = visible(records, [aborted(1, 1)], 0, 100)

    assert values(found) == [b"plain", b"committed", b"next of the same producer"]
    assert following == 7


def test_whoever_replays_a_log_sees_the_markers() -> None:
    records = data(0, b"a", producer_id=1) + marker(1, 1, committed=True)

    found, _ = visible(records, [], 0, 100, with_markers=True)

    assert [header.is_control for header, _ in found] == [False, True]


def test_a_transaction_that_began_before_the_answer_is_left_out_too() -> None:
    records = data(10, b"aborted", producer_id=1) + marker(11, 1, committed=False)

    assert visible(records, [aborted(1, 3)], 10, 100) == ([], 12)


def test_one_producer_may_abort_twice() -> None:
    records = b"".join(
        (
            data(0, b"a", producer_id=1),
            marker(1, 1, committed=False),
            data(2, b"b", producer_id=1),
            marker(3, 1, committed=True),
            data(4, b"c", producer_id=1),
            marker(5, 1, committed=False),
        )
    )

    found, _ = visible(records, [aborted(1, 4), aborted(1, 0)], 0, 100)

    assert values(found) == [b"b"]


def test_the_answer_is_read_up_to_the_end_and_no_further() -> None:
    records = data(0, b"a", b"b") + data(2, b"c", b"d") + data(9, b"e")

    assert visible(records[:-1], [], 1, 4)[1] == 4
    assert values(visible(records, [], 2, 5)[0]) == [b"c", b"d"]
    assert visible(records, [], 2, 5)[1] == 5


def test_a_last_batch_that_is_cut_is_left_for_the_next_answer() -> None:
    records = data(0, b"a") + data(1, b"b")[:-1]

    assert visible(records, [], 0, 5)[1] == 1


def with_field(batch: bytes, position: int, layout: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("records", "problem", "reason"),
    [
        (data(0, b"a")[:-1], BadReply, "no whole batch"),
        (with_field(data(0, b"a"), 60, ">b", 9), CorruptMessage, "checksum"),
        (with_field(data(0, b"a"), 16, ">b", 1), CorruptMessage, "message format 1"),
        (data(0, b"a") + with_field(data(1, b"a"), 16, ">b", 3), CorruptMessage, "cannot be"),
        (with_field(data(0, b"a"), 0, ">q", -4), CorruptMessage, "cannot be"),
        (with_field(data(0, b"a"), 0, ">q", (1 << 63) - 1), CorruptMessage, "cannot be"),
    ],
)
def test_bytes_that_are_no_batches_are_refused(
    records: bytes, problem: type[Exception], reason: str
) -> None:
    with pytest.raises(problem, match=reason):
        visible(records, [], 0, 100)


# --- a broker that says what it is told -------------------------------------------------------------


def answer(records: bytes = b"", *, end: int = 100, error: int = 0, **more: Any) -> FetchResponse:
    partition = PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=end,
        last_stable_offset=more.pop("stable_end", end),
        records=records,
        **more,
    )
    topic = FetchableTopicResponse(topic="t", topic_id=ID, partitions=[partition])
    return FetchResponse(responses=[topic])


def listed(offset: int) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


def leading(topic_id: UUID = ID) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(partition_index=0, leader_id=1)
    return MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])


def in_turn(*answers: Any) -> Callable[..., Any]:
    left = iter(answers)
    return lambda *_: next(left)


async def read(broker: FakeBroker, start: int, end: int, **options: Any) -> list[bytes | None]:
    wanted = Range(
        topic="t", partition=0, start=start, end=end, topic_id=options.pop("topic_id", ID)
    )
    async with await Cluster.open(broker.bootstrap) as cluster:
        return [
            value async for found in fetch(cluster, wanted, **options) for value in values(found)
        ]


def fetches(broker: FakeBroker) -> list[tuple[FetchRequest, int]]:
    return [(each, version) for each, version in broker.seen if isinstance(each, FetchRequest)]


@running
async def test_answers_are_asked_for_until_the_end_is_passed() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = in_turn(
            answer(data(3, b"a", b"b")), answer(end=5), answer(marker(5, 1, committed=True))
        )

        assert await read(broker, 3, 6) == [b"a", b"b"]

    asked = [each.topics[0].partitions[0].fetch_offset for each, _ in fetches(broker)]
    assert asked == [3, 5, 5]
    assert fetches(broker)[0][0].topics[0].topic_id == ID


@running
async def test_no_more_is_asked_for_than_the_rest_will_take() -> None:
    large, small = data(0, bytes(400_000)), data(1, b"b")
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = in_turn(answer(large), answer(small), answer(data(2, b"c")))

        await read(broker, 0, 3)

    asked = [request.topics[0].partitions[0].partition_max_bytes for request, _ in fetches(broker)]
    assert asked[0] == FIRST_FETCH_BYTES
    each = (len(large) + len(small)) // 2
    assert asked[1:] == [2 * len(large) + len(large) // 4, each + each // 8]


@running
async def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading(UUID(int=0))]
        broker.answers[FETCH] = lambda *_: answer(data(0, b"a"))

        assert await read(broker, 0, 1) == [b"a"]

    request, version = fetches(broker)[0]
    assert (request.topics[0].topic, version) == ("t", 12)


@running
async def test_a_leader_that_moved_is_found_again() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = in_turn(
            answer(error=6), ConnectionError(), answer(error=100), answer(data(0, b"a"))
        )

        assert await read(broker, 0, 1) == [b"a"]


@running
async def test_offsets_that_are_gone_are_named() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = lambda *_: answer(error=1)
        broker.answers[LIST_OFFSETS] = in_turn(listed(7), listed(20))

        with pytest.raises(OffsetsGone, match=r"t-0: the offsets from 2 on and before 9 .* from 7"):
            await read(broker, 2, 9)


@running
async def test_offsets_beyond_the_log_are_gone_for_good() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = lambda *_: answer(error=1)
        broker.answers[LIST_OFFSETS] = in_turn(listed(0), listed(4))

        with pytest.raises(OffsetsGone, match="cut or made anew"):
            await read(broker, 6, 9)


@running
async def test_another_topic_of_the_same_name_is_not_read() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading(UUID(int=8))]

        with pytest.raises(TopicGone, match="deleted and created again"):
            await read(broker, 0, 5)
    assert not fetches(broker)


@running
async def test_a_partition_that_is_not_there_is_gone() -> None:
    async with FakeBroker() as broker:
        broker.topics = [MetadataResponseTopic(name="t", error_code=3)]

        with pytest.raises(TopicGone, match="t-0 does not exist"):
            await read(broker, 0, 5)


@running
async def test_what_the_broker_forbids_is_said() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = lambda *_: answer(error=29)

        with pytest.raises(Refused, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
            await read(broker, 0, 5)


@running
async def test_an_open_transaction_is_waited_for_and_then_given_up() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = lambda *_: answer(stable_end=3)

        with pytest.raises(NotReadable, match="up to offset 3 and was to be read up to 5"):
            await read(broker, 3, 5, wait_s=0.1)


@running
async def test_a_range_that_compaction_emptied_before_an_open_transaction_ends() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]

        def reply(request: FetchRequest, _: int) -> FetchResponse:
            is_committed_only = request.isolation_level == Isolation.READ_COMMITTED
            return answer(b"" if is_committed_only else data(5, b"open", producer_id=1), end=5)

        broker.answers[FETCH] = reply

        assert await read(broker, 3, 5) == []


@running
async def test_a_log_that_compaction_emptied_to_its_end_ends_if_all_of_it_is_here() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = lambda *_: answer(end=5)
        broker.answers[LIST_OFFSETS] = lambda *_: listed(0)

        assert await read(broker, 3, 5) == []

        broker.answers[LIST_OFFSETS] = lambda *_: listed(5)
        with pytest.raises(NotReadable, match="nothing has come at offset 3"):
            await read(broker, 3, 5, wait_s=0.1)


@running
async def test_a_broker_that_slows_us_down_is_asked_again() -> None:
    async with FakeBroker() as broker:
        broker.topics = [leading()]
        broker.answers[FETCH] = in_turn(FetchResponse(throttle_time_ms=1), answer(data(0, b"a")))

        assert await read(broker, 0, 1) == [b"a"]


# --- a real one -------------------------------------------------------------------------------------


def read_all(
    servers: str, wanted: Range, isolation: Isolation = Isolation.READ_COMMITTED, **options: Any
) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        async with await Cluster.open(servers) as cluster:
            return [
                value
                async for found in fetch(cluster, wanted, isolation=isolation, **options)
                for value in values(found)
            ]

    return asyncio.run(read())


def test_a_range_with_aborts_is_read_in_many_answers() -> None:
    kept = []
    with oncelog.Broker() as broker:
        servers = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "x"})
        producer.init_transactions(10)
        for number in range(20):
            producer.begin_transaction()
            content = b"%d" % number * 500
            producer.produce("t", content, partition=0)
            producer.flush(10)
            if number % 3:
                producer.commit_transaction(10)
                kept.append(content)
            else:
                producer.abort_transaction(10)

        wanted = Range(topic="t", partition=0, start=0, end=40)
        committed = read_all(servers, wanted, max_bytes=1500)
        everything = read_all(servers, wanted, Isolation.READ_UNCOMMITTED)
        beyond = Range(topic="t", partition=0, start=0, end=41)
        with pytest.raises(NotReadable, match="readable up to 40"):
            read_all(servers, beyond, Isolation.READ_UNCOMMITTED, wait_s=0.1)

    assert committed == kept
    assert len(everything) == 20
