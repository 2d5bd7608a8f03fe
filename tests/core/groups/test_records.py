"""The records of `__consumer_offsets`, against bytes written by Kafka 4.3's own classes."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.groups.records import (
    GroupDeleted,
    GroupMetadata,
    MemberMetadata,
    OffsetCommitted,
    OffsetDeleted,
    UnreadableRecord,
    decode,
    encode,
)
from oncelog.core.types import TopicPartition

AT_MS = 1_700_000_000_000
PLACE = TopicPartition("in", 7)
TOPIC_ID = UUID("01234567-89ab-cdef-1122-334455667788")

OFFSET_KEY = bytes.fromhex("000100066f72646572730002696e00000007")
LEGACY_OFFSET_KEY = bytes.fromhex("000000066f72646572730002696e00000007")
GROUP_KEY = bytes.fromhex("000200066f7264657273")

OFFSETS = {
    0: "0000000000000000002a00036ec3a90000018bcfe56800",
    1: "0001000000000000002a00036ec3a90000018bcfe568000000018bcfe65260",
    2: "0002000000000000002a00036ec3a90000018bcfe56800",
    3: "0003000000000000002a0000000500036ec3a90000018bcfe56800",
    4: "0004000000000000002a00000005046ec3a90000018bcfe568000100100123456789abcdef1122334455667788",
}
V4_WITHOUT_TOPIC_ID = "0004000000000000002affffffff010000018bcfe5680000"
GROUPS = {
    0: "00000008636f6e73756d657200000003000572616e67650003612d31000000020003612d3100016100092f31302e30"
    "2e302e310000271000000002010200000001030003622d3200016200092f31302e302e302e3200004e200000000000"
    "000000",
    1: "00010008636f6e73756d657200000003000572616e67650003612d31000000020003612d3100016100092f31302e30"
    "2e302e310000ea600000271000000002010200000001030003622d3200016200092f31302e302e302e320001117000"
    "004e200000000000000000",
    2: "00020008636f6e73756d657200000003000572616e67650003612d310000018bcfe56800000000020003612d310001"
    "6100092f31302e302e302e310000ea600000271000000002010200000001030003622d3200016200092f31302e302e"
    "302e320001117000004e200000000000000000",
    3: "00030008636f6e73756d657200000003000572616e67650003612d310000018bcfe56800000000020003612d31ffff"
    "00016100092f31302e302e302e310000ea600000271000000002010200000001030003622d3200014200016200092f"
    "31302e302e302e320001117000004e200000000000000000",
    4: "000409636f6e73756d6572000000030672616e676504612d310000018bcfe568000304612d310002610a2f31302e30"
    "2e302e310000ea600000271003010202030004622d32024202620a2f31302e302e302e320001117000004e20010100"
    "00",
}
EMPTY_GROUP = "00030008636f6e73756d657200000004ffffffff0000018bcfe5680000000000"


def an_offset(
    *,
    leader_epoch: int | None = None,
    expires_at_ms: int | None = None,
    topic_id: UUID | None = None,
) -> OffsetCommitted:
    return OffsetCommitted(
        group_id="orders",
        partition=PLACE,
        offset=42,
        leader_epoch=leader_epoch,
        metadata="né",
        committed_at_ms=AT_MS,
        expires_at_ms=expires_at_ms,
        topic_id=topic_id,
    )


def a_group_record(version: int) -> GroupMetadata:
    return GroupMetadata(
        group_id="orders",
        protocol_type="consumer",
        generation_id=3,
        protocol_name="range",
        leader="a-1",
        state_since_ms=AT_MS if version >= 2 else None,
        members=(
            MemberMetadata(
                member_id="a-1",
                group_instance_id=None,
                client_id="a",
                client_host="/10.0.0.1",
                rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
                session_timeout_ms=10_000,
                subscription=b"\1\2",
                assignment=b"\3",
            ),
            MemberMetadata(
                member_id="b-2",
                group_instance_id="B" if version >= 3 else None,
                client_id="b",
                client_host="/10.0.0.2",
                rebalance_timeout_ms=70_000 if version >= 1 else 20_000,
                session_timeout_ms=20_000,
                subscription=b"",
                assignment=b"",
            ),
        ),
    )


OFFSET_RECORDS = {
    0: an_offset(),
    1: an_offset(expires_at_ms=AT_MS + 60_000),
    2: an_offset(),
    3: an_offset(leader_epoch=5),
    4: an_offset(leader_epoch=5, topic_id=TOPIC_ID),
}


@pytest.mark.parametrize("version", OFFSETS)
@pytest.mark.parametrize("key", [OFFSET_KEY, LEGACY_OFFSET_KEY])
def test_an_offset_is_read_in_every_version(version: int, key: bytes) -> None:
    assert decode(key, bytes.fromhex(OFFSETS[version]), AT_MS) == OFFSET_RECORDS[version]


@pytest.mark.parametrize("version", [1, 3, 4])
def test_an_offset_is_written_as_kafka_writes_it(version: int) -> None:
    key, value = encode(OFFSET_RECORDS[version])

    assert key == OFFSET_KEY
    assert value is not None
    assert value.hex() == OFFSETS[version]


def test_a_topic_id_may_be_missing() -> None:
    record = decode(OFFSET_KEY, bytes.fromhex(V4_WITHOUT_TOPIC_ID), AT_MS)

    assert isinstance(record, OffsetCommitted)
    assert (record.topic_id, record.leader_epoch, record.metadata) == (None, None, "")


@pytest.mark.parametrize("version", GROUPS)
def test_a_group_is_read_in_every_version(version: int) -> None:
    assert decode(GROUP_KEY, bytes.fromhex(GROUPS[version]), AT_MS) == a_group_record(version)


def test_a_group_is_written_as_kafka_writes_it() -> None:
    key, value = encode(a_group_record(3))

    assert key == GROUP_KEY
    assert value is not None
    assert value.hex() == GROUPS[3]


def test_a_group_without_members_is_written_as_kafka_writes_it() -> None:
    empty = GroupMetadata(
        group_id="orders",
        protocol_type="consumer",
        generation_id=4,
        protocol_name=None,
        leader=None,
        state_since_ms=AT_MS,
        members=(),
    )

    assert encode(empty) == (GROUP_KEY, bytes.fromhex(EMPTY_GROUP))
    assert decode(GROUP_KEY, bytes.fromhex(EMPTY_GROUP), AT_MS) == empty


def test_a_key_without_a_value_is_deleted() -> None:
    offset = OffsetDeleted(group_id="orders", partition=PLACE)
    group = GroupDeleted(group_id="orders")

    assert encode(offset) == (OFFSET_KEY, None)
    assert encode(group) == (GROUP_KEY, None)
    assert decode(OFFSET_KEY, None, AT_MS) == offset
    assert decode(GROUP_KEY, None, AT_MS) == group


@pytest.mark.parametrize("kind", [3, 8, 11, 17, -1])
def test_the_records_of_other_kinds_of_groups_are_passed_over(kind: int) -> None:
    key = kind.to_bytes(2, "big", signed=True) + GROUP_KEY[2:]

    assert decode(key, b"\0\0", AT_MS) is None


@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY])
def test_a_value_from_the_future_is_passed_over(key: bytes) -> None:
    assert decode(key, b"\0\x05whatever", AT_MS) is None


@pytest.mark.parametrize("value", [OFFSETS[1], OFFSETS[4], GROUPS[3], GROUPS[4]])
def test_a_value_that_is_cut_short_is_never_half_read(value: str) -> None:
    key = GROUP_KEY if value in GROUPS.values() else OFFSET_KEY
    whole = bytes.fromhex(value)

    for size in range(len(whole)):
        with pytest.raises(UnreadableRecord):
            decode(key, whole[:size], AT_MS)


@given(
    st.builds(
        OffsetCommitted,
        group_id=st.text(),
        partition=st.builds(TopicPartition, st.text(), st.integers(0, 2**31 - 1)),
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.none() | st.integers(0, 2**31 - 1),
        metadata=st.text(max_size=200),
        committed_at_ms=st.integers(0, 2**62),
        expires_at_ms=st.none(),
        topic_id=st.none() | st.uuids(),
    )
)
def test_an_offset_survives_writing_and_reading(record: OffsetCommitted) -> None:
    key, value = encode(record)

    assert decode(key, value, AT_MS) == record
