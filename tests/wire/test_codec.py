"""Whatever a peer sends, the codec answers with a message or with DecodeError, and stays small."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.varints import uvarint
from oncelog.wire.codec import (
    DecodeError,
    decode,
    encode,
    encode_chunks,
    join_small,
    read_uvarint,
    skip_tags,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from oncelog.wire.messages.index import NAMES
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.wire.golden import Golden, all_goldens, goldens

REQUESTS = [golden for golden in all_goldens() if golden.cls.__name__.endswith("Request")]


def allocated_bytes(action: Callable[[], object]) -> int:
    """The most memory that was in use at once while something ran."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_refused(cls: Any, version: int, data: bytes, match: str | None = None) -> None:
    with pytest.raises(DecodeError, match=match):
        decode(cls, version, data)


# --- lengths that the frame cannot hold -----------------------------------------------------


@pytest.mark.parametrize("count", [1 << 30, (1 << 31) - 1])
def test_an_array_longer_than_its_frame_is_refused_before_anything_is_allocated(count: int) -> None:
    old = count.to_bytes(4) + bytes(36)
    flexible = uvarint(count + 1) + bytes(35)

    def both() -> None:
        assert_refused(MetadataRequest, 4, old, match="array of")
        assert_refused(MetadataRequest, 9, flexible, match="array of")

    both()  # compiled, so that only the refusal itself is measured
    assert allocated_bytes(both) < 100_000


def test_an_array_of_numbers_longer_than_its_frame_is_refused() -> None:
    # One topic whose one partition list claims as many numbers as there are bytes left.
    elements = 20
    data = (
        b"\x02"  # one topic
        + b"\x02t"  # its name
        + (7).to_bytes(4)  # the count of partitions to be
        + b"\x02"  # one assignment
        + uvarint(elements + 1)  # of 4-byte numbers
        + bytes(elements)
    )

    assert_refused(CreatePartitionsRequest, 2, data, match="length 80 with 20 bytes left")


@pytest.mark.parametrize("length", [-2, -1000, -(1 << 15)])
def test_a_negative_length_is_refused(length: int) -> None:
    transactional_id = length.to_bytes(2, signed=True)

    assert_refused(ProduceRequest, 3, transactional_id + bytes(30), match="length -")


def test_a_string_longer_than_its_frame_is_refused() -> None:
    assert_refused(ProduceRequest, 3, (32_000).to_bytes(2) + bytes(30), match="length 32000")
    assert_refused(ProduceRequest, 9, uvarint(1 << 31) + bytes(30), match="length 2147483647")


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    assert_refused(ApiVersionsRequest, 3, b"\x00\x02v\x00", match="client_software_name is null")
    assert_refused(MetadataRequest, 0, b"\xff\xff\xff\xff", match="topics is null")


def test_a_null_array_is_read_where_the_version_allows_it() -> None:
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None


# --- variable-length integers and tags ------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\xff\x01",
        b"\x80\x80\x80\x80\x80\x00",
        b"\x80" * 20,
        b"\x80",
        b"",
        b"\xff\xff\xff\xff\x10",
    ],
)
def test_a_varint_cut_short_or_beyond_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(memoryview(data), 0)
    assert_refused(ApiVersionsRequest, 3, data)


@given(st.integers(0, (1 << 32) - 1))
def test_every_varint_of_32_bits_is_read_as_it_was_written(value: int) -> None:
    data = uvarint(value)

    assert read_uvarint(memoryview(data), 0) == (value, len(data))


NAME_AND_VERSION = b"\x02n\x02v"


@pytest.mark.parametrize(
    ("tags", "match"),
    [
        (b"\x02\x05\x01a\x05\x01b", "repeated"),
        (b"\x02\x05\x01a\x04\x01b", "out of order"),
        (b"\x01\x05\x7fabc", "127 bytes with 3 left"),
        (b"\x01\x05\xff\xff\xff\xff\x0fabc", "4294967295 bytes with 3 left"),
        (b"\xff\xff\xff\xff\x0f\x00\x00", None),
        (b"\x01\x05", None),
    ],
)
def test_a_bad_tag_buffer_is_refused(tags: bytes, match: str | None) -> None:
    assert_refused(ApiVersionsRequest, 3, NAME_AND_VERSION + tags, match=match)
    with pytest.raises(DecodeError, match=match):
        skip_tags(memoryview(tags), 0)


def test_an_unknown_tag_is_stepped_over() -> None:
    message = decode(ApiVersionsRequest, 3, NAME_AND_VERSION + b"\x01\x63\x03abc")

    assert message == ApiVersionsRequest(client_software_name="n", client_software_version="v")


@pytest.mark.parametrize("size", [0, 4, 12, 14])
def test_a_known_tag_must_be_as_long_as_it_says(size: int) -> None:
    state = encode(ReplicaState(replica_id=1, replica_epoch=2), 15)
    assert len(state) == 13
    data = encode(FetchRequest(), 15)[:-1] + b"\x01\x01" + bytes([size]) + state + bytes(4)

    assert_refused(FetchRequest, 15, data, match="replica_state ends")


def test_an_empty_list_in_a_tagged_field_is_the_default_and_is_not_written() -> None:
    assert encode(FetchResponse(node_endpoints=[]), 16) == encode(FetchResponse(), 16)
    assert encode(ProduceResponse(node_endpoints=[]), 10) == encode(ProduceResponse(), 10)


def test_two_messages_do_not_share_a_default_struct() -> None:
    data = encode(FetchRequest(), 15)

    first, second = decode(FetchRequest, 15, data), decode(FetchRequest, 15, data)

    assert first.replica_state == second.replica_state
    assert first.replica_state is not second.replica_state


# --- other bad input ------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80"])
def test_a_string_that_is_not_utf_8_is_refused(text: bytes) -> None:
    assert_refused(ApiVersionsRequest, 3, bytes([len(text) + 1]) + text + b"\x02v\x00")


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    assert_refused(ProduceRequest, version, bytes(100), match="no version")


def test_null_is_not_written_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(ValueError, match="topics may not be null in version 0"):
        encode(MetadataRequest(topics=None), 0)


def test_bytes_after_the_message_are_ignored() -> None:
    data = encode(MetadataResponse(cluster_id="c"), 9)

    assert decode(MetadataResponse, 9, data + b"more").cluster_id == "c"


# --- every request, cut and changed ---------------------------------------------------------


@pytest.mark.parametrize("api_key", NAMES, ids=NAMES.values())
def test_a_message_cut_short_anywhere_is_refused(api_key: int) -> None:
    for golden in goldens(api_key):
        for end in range(len(golden.data)):
            with pytest.raises(DecodeError):
                decode(golden.cls, golden.version, golden.data[:end])


@settings(max_examples=1000)
@given(data=st.data(), golden=st.sampled_from(REQUESTS))
def test_a_changed_request_is_read_or_refused(data: st.DataObject, golden: Golden) -> None:
    changed = bytearray(golden.data)
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, max(0, len(changed) - 1)))
        match data.draw(st.sampled_from(["set", "insert", "delete", "repeat"])):
            case "set":
                changed[position : position + 1] = data.draw(st.binary(min_size=1, max_size=8))
            case "insert":
                changed[position:position] = data.draw(st.binary(min_size=1, max_size=8))
            case "delete":
                del changed[position : position + data.draw(st.integers(1, 8))]
            case "repeat":
                changed[position:position] = changed[position : position + 16]

    assert_read_or_refused(golden.cls, golden.version, bytes(changed))


@settings(max_examples=1000)
@given(data=st.binary(max_size=200), golden=st.sampled_from(REQUESTS))
def test_any_bytes_are_read_or_refused(data: bytes, golden: Golden) -> None:
    assert_read_or_refused(golden.cls, golden.version, data)


def assert_read_or_refused(cls: Any, version: int, data: bytes) -> None:
    try:
        message = decode(cls, version, data)
    except DecodeError:
        return
    again = decode(cls, version, encode(message, version))
    assert encode(again, version) == encode(message, version)


# --- record batches are not copied ----------------------------------------------------------


def test_a_record_batch_stays_a_view_of_the_frame_it_came_in() -> None:
    records = bytes(10_000)
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    frame = encode(ProduceRequest(topic_data=[topic]), 9)

    read = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records

    assert isinstance(read, memoryview)
    assert read.obj is frame


def test_a_large_record_batch_is_sent_from_where_it_lies() -> None:
    records = memoryview(bytes(10_000))
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(topic_data=[topic])

    chunks = join_small(encode_chunks(request, 9))

    assert len(chunks) == 3
    assert chunks[1] is records
    assert b"".join(chunks) == encode(request, 9)
