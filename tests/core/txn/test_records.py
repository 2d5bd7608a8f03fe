"""`__transaction_state`: Kafka's bytes, what we add to them, and what others may have added."""

import struct
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.txn.commands import (
    TxnConfig,
)
from oncelog.core.txn.machine import TxnState
from oncelog.core.txn.records import (
    BadTxnRecord,
    Forgotten,
    Txn,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    fits,
)
from oncelog.core.txn.shard import (
    TxnShard,
)
from oncelog.core.types import TopicPartition
from tests.core.txn.builders import a_txn

# The example of section 6.1: `my-txn`, Ongoing, t1-{0,1}.
KEY = bytes.fromhex("00000006 6d792d74786e")
HEAD = "00000000000003e8 0005 0000ea60 01"
TIMES = "0000018bcfe56864 0000018bcfe56800"
V0 = bytes.fromhex(f"0000 {HEAD} 00000001 0002 7431 00000002 00000000 00000001 {TIMES}")
V1_BODY = f"0001 {HEAD} 02 03 7431 03 00000000 00000001 00 {TIMES}"
V1 = bytes.fromhex(f"{V1_BODY} 02 00 08 00000000000003e8 02 02 0002")

EXAMPLE = Txn(
    transactional_id="my-txn",
    producer_id=1000,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TxnState.ONGOING,
    updated_at_ms=1_700_000_000_100,
    started_at_ms=1_700_000_000_000,
    partitions=((TopicPartition("t1", 0), None), (TopicPartition("t1", 1), None)),
    previous_producer_id=1000,
    client_version=2,
)
#: Version 0 has no tags: what they say is lost.
EXAMPLE_V0 = replace(EXAMPLE, previous_producer_id=None, client_version=0)
TOPIC_ID = UUID("01234567-89ab-cdef-1122-334455667788")


def test_a_key_has_kafkas_bytes() -> None:
    assert encode_key("my-txn") == KEY
    assert decode_key(KEY) == "my-txn"


def test_a_value_has_kafkas_bytes() -> None:
    """Section 6.1: version 0 below feature level 1, version 1 from there on."""
    assert encode_value(EXAMPLE, flexible=False) == V0
    assert encode_value(EXAMPLE, flexible=True) == V1


def test_both_versions_are_read() -> None:
    """Check 75: AK 3.9 writes version 0, AK 4.x version 1."""
    assert decode_value("my-txn", V0) == EXAMPLE_V0
    assert decode_value("my-txn", V1) == EXAMPLE


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_feature_level_decides_about_the_version(level: int, version: int) -> None:
    shard = TxnShard(TxnConfig(), transaction_version=level)

    value = shard.encode(EXAMPLE).value

    assert value is not None
    assert struct.unpack_from(">h", value) == (version,)


def test_tags_of_others_are_skipped() -> None:
    """Check 75: tag 3 (KIP-939) and one from a later day, in any place."""
    value = bytes.fromhex(
        f"{V1_BODY} 04 00 08 00000000000003e8 02 02 0002 03 02 0007 b960 03 abcdef"
    )

    assert decode_value("my-txn", value) == EXAMPLE


def test_tags_inside_a_topic_are_skipped() -> None:
    value = bytes.fromhex(f"0001 {HEAD} 02 03 7431 03 00000000 00000001 01 05 02 ffff {TIMES} 00")

    assert decode_value("my-txn", value) == EXAMPLE_V0


def test_producer_ids_of_minus_one_mean_none() -> None:
    value = bytes.fromhex(f"{V1_BODY} 02 00 08 ffffffffffffffff 01 08 ffffffffffffffff")

    assert decode_value("my-txn", value) == EXAMPLE_V0


def test_a_reserved_producer_id_has_kafkas_tag() -> None:
    """Section 6.1: tag 1, written since AK 4.3 (KAFKA-20310)."""
    value = encode_value(replace(EXAMPLE, next_producer_id=1001, client_version=0), flexible=True)

    assert value == bytes.fromhex(f"{V1_BODY} 02 00 08 00000000000003e8 01 08 00000000000003e9")


def test_our_own_tags_stand_behind_kafkas() -> None:
    """A tag buffer is in ascending order; Kafka's readers skip 10000 to 10002."""
    txn = replace(
        EXAMPLE,
        last_epoch=4,
        is_fenced=True,
        partitions=tuple((place, TOPIC_ID) for place, _ in EXAMPLE.partitions),
    )

    value = encode_value(txn, flexible=True)

    assert value == bytes.fromhex(
        f"{V1_BODY} 05 00 08 00000000000003e8 02 02 0002 904e 02 0004 914e 01 01 924e 10"
        f"{TOPIC_ID.hex}"
    )
    assert decode_value("my-txn", value) == txn


def test_partitions_are_null_in_empty_alone() -> None:
    """Section 6.1: a completed transaction has an empty list."""
    empty = a_txn(state=TxnState.EMPTY, partitions=())
    complete = a_txn(state=TxnState.COMPLETE_COMMIT, partitions=())
    at = struct.calcsize(">hqhib")

    assert encode_value(empty, flexible=False)[at : at + 4] == b"\xff\xff\xff\xff"
    assert encode_value(complete, flexible=False)[at : at + 4] == bytes(4)
    assert encode_value(empty, flexible=True)[at : at + 1] == b"\0"
    assert encode_value(complete, flexible=True)[at : at + 1] == b"\1"


@pytest.mark.parametrize("key", [bytes.fromhex("0001 0001 61"), bytes.fromhex("7fff"), b""])
def test_a_kind_of_key_that_we_do_not_know_is_skipped(key: bytes) -> None:
    """KIP-915."""
    shard = TxnShard(TxnConfig(), transaction_version=2)

    assert shard.decode(key, V1, 0) is None


@pytest.mark.parametrize("version", [2, 3, 32767, -1])
def test_a_version_that_we_do_not_know_is_skipped(version: int) -> None:
    """KIP-915: a downgrade must be able to load what a newer release wrote."""
    shard = TxnShard(TxnConfig(), transaction_version=2)

    assert shard.decode(KEY, struct.pack(">h", version) + V1[2:], 0) is None


def test_a_null_value_forgets_the_id() -> None:
    shard = TxnShard(TxnConfig(), transaction_version=2)
    forgotten = Forgotten(transactional_id="my-txn")

    assert shard.encode(forgotten) == (KEY, None)
    assert shard.decode(KEY, None, 0) == forgotten


@pytest.mark.parametrize(
    "key", ["0000", "000000", "0000 0007 6d792d74786e", "0000 ffff 61", "0000 0001 ff"]
)
def test_a_damaged_key_is_noticed(key: str) -> None:
    with pytest.raises(BadTxnRecord):
        decode_key(bytes.fromhex(key))


@pytest.mark.parametrize("size", range(len(V0)))
def test_a_cut_value_of_version_0_is_noticed(size: int) -> None:
    with pytest.raises(BadTxnRecord):
        decode_value("my-txn", V0[:size])


@pytest.mark.parametrize("size", range(len(V1)))
def test_a_cut_value_of_version_1_is_noticed(size: int) -> None:
    with pytest.raises(BadTxnRecord):
        decode_value("my-txn", V1[:size])


@pytest.mark.parametrize("status", [6, 7, 99, 255])
def test_a_state_that_is_never_stored_is_noticed(status: int) -> None:
    """Dead and PrepareEpochFence exist in Kafka's memory only."""
    at = struct.calcsize(">hqhi")

    with pytest.raises(BadTxnRecord):
        decode_value("my-txn", V1[:at] + bytes([status]) + V1[at + 1 :])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    try:
        found = decode_value("my-txn", value)
    except BadTxnRecord:
        return
    assert found is None or decode_value("my-txn", encode_value(found, flexible=True)) == found


def test_an_id_has_to_fit_into_a_key() -> None:
    assert fits("é" * 16_383)
    assert not fits("é" * 16_384)


IDS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 32_767)
TOPICS = st.dictionaries(
    st.text("abé", min_size=1, max_size=4),
    st.tuples(st.none() | st.uuids(), st.sets(st.integers(0, 99), min_size=1, max_size=4)),
    max_size=4,
)


@st.composite
def txns(draw: st.DrawFn) -> Txn:
    state = draw(st.sampled_from(TxnState))
    topics = draw(TOPICS) if state is not TxnState.EMPTY else {}
    return Txn(
        transactional_id=draw(st.text(min_size=1, max_size=20)),
        producer_id=draw(IDS),
        producer_epoch=draw(EPOCHS),
        timeout_ms=draw(st.integers(1, 2**31 - 1)),
        state=state,
        updated_at_ms=draw(IDS),
        started_at_ms=draw(st.none() | IDS),
        partitions=tuple(
            (TopicPartition(topic, partition), topic_id)
            for topic, (topic_id, partitions) in sorted(topics.items())
            for partition in sorted(partitions)
        ),
        last_epoch=draw(st.none() | EPOCHS),
        previous_producer_id=draw(st.none() | IDS),
        next_producer_id=draw(st.none() | IDS),
        client_version=draw(st.integers(0, 2)),
        is_fenced=draw(st.booleans()),
    )


@given(txns())
def test_whatever_is_written_is_read(txn: Txn) -> None:
    shard = TxnShard(TxnConfig(), transaction_version=2)
    key, value = shard.encode(txn)

    assert shard.decode(key, value, 0) == txn


@given(txns())
def test_without_tags_the_rest_is_read(txn: Txn) -> None:
    """Level 0 keeps what Kafka kept before 4.0."""
    shard = TxnShard(TxnConfig(), transaction_version=0)
    key, value = shard.encode(txn)

    assert shard.decode(key, value, 0) == replace(
        txn,
        partitions=tuple((place, None) for place, _ in txn.partitions),
        last_epoch=None,
        previous_producer_id=None,
        next_producer_id=None,
        client_version=0,
        is_fenced=False,
    )
