"""Seeing transactions: DescribeProducers, DescribeTransactions, ListTransactions, features."""

import time

import pytest

from oncelog.api.list_transactions import compile_pattern
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.txn.conftest import StartWorld
from tests.txn.markers import MarkerRequest, describe_producers
from tests.txn.producer import OK, TOPIC, Producer, describe, find_coordinator
from tests.txn.reader import ends, read
from tests.txn.world import World


def list_all(world: World, version: int = 2, **filters: object) -> ListTransactionsResponse:
    request = ListTransactionsRequest(
        **{"transactional_id_pattern": None, **filters}  # type: ignore[arg-type] # by their names
    )
    reply: ListTransactionsResponse = world.ask(request, version)
    return reply


def names(reply: ListTransactionsResponse) -> list[str]:
    return sorted(state.transactional_id for state in reply.transaction_states)


# --- producers ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_a_partition_says_who_has_a_transaction_open(
    world: World, is_v2: bool, committed: bool
) -> None:
    """Check 107."""
    producer = Producer(world, is_v2=is_v2).ready()
    producer.begin({0: [b"a"]}).commit()
    producer.begin({0: [b"b", b"c"]})

    (during,) = describe_producers(world)
    producer.decide(committed)
    producer.settle()
    (after,) = describe_producers(world)

    assert during.producer_id == after.producer_id == producer.producer_id
    assert during.current_txn_start_offset == 2
    assert during.last_sequence == (1 if is_v2 else 2)
    assert after.current_txn_start_offset == -1
    assert after.coordinator_epoch >= 0
    assert after.last_timestamp > 0


def test_a_partition_that_is_not_there_is_told(world: World) -> None:
    """Section 9.1."""
    wanted = [("nowhere", 0), (TOPIC, 9), ("bad name", 0), (TOPIC, 0)]
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[index]) for name, index in wanted]
    )

    reply = world.ask(request, 0)

    codes = [part.error_code for topic in reply.topics for part in topic.partitions]
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == [unknown, unknown, invalid, OK]


# --- transactions ---------------------------------------------------------------------------


def test_ids_are_described_one_by_one(world: World) -> None:
    """Check 108, section 9.2."""
    producer = Producer(world, timeout_ms=12_345).ready()
    empty = producer.state()
    producer.begin({2: [b"a"], 0: [b"a"]})
    opened = producer.state()

    request = DescribeTransactionsRequest(transactional_ids=["x", "unknown", ""])
    states = world.ask(request, 0).transaction_states

    assert (empty.transaction_state, empty.transaction_start_time_ms) == ("Empty", -1)
    assert (opened.transaction_state, opened.transaction_timeout_ms) == ("Ongoing", 12_345)
    assert (opened.producer_id, opened.producer_epoch) == producer.identity
    assert [(t.topic, list(t.partitions)) for t in opened.topics] == [(TOPIC, [0, 2])]
    assert [(s.transactional_id, s.error_code) for s in states] == [
        ("x", OK),
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]
    nothing = world.ask(DescribeTransactionsRequest(transactional_ids=[]), 0)
    assert list(nothing.transaction_states) == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_states_that_nobody_knows_are_named(world: World, version: int) -> None:
    """Check 110."""
    Producer(world, "empty").ready()
    Producer(world, "open").ready().begin({0: [b"a"]})

    all_of_them = list_all(world, version)
    some = list_all(world, version, state_filters=["Ongoing", "Sleeping"])
    none = list_all(world, version, state_filters=["Sleeping", "ongoing"])

    assert names(all_of_them) == ["empty", "open"]
    assert (names(some), list(some.unknown_state_filters)) == (["open"], ["Sleeping"])
    assert (names(none), list(none.unknown_state_filters)) == ([], ["Sleeping", "ongoing"])


def test_ids_are_listed_by_producer(world: World) -> None:
    """Section 9.3: filters are joined by and."""
    one, other = Producer(world, "one").ready(), Producer(world, "other").ready()
    other.begin({0: [b"a"]})

    found = list_all(world, producer_id_filters=[one.producer_id])
    neither = list_all(world, producer_id_filters=[one.producer_id], state_filters=["Ongoing"])
    (state,) = found.transaction_states

    assert (state.transactional_id, state.producer_id, state.transaction_state) == (
        "one", one.producer_id, "Empty",
    )  # fmt: skip
    assert names(neither) == []


def test_a_pattern_has_to_match_the_whole_id(world: World) -> None:
    """Check 111."""
    for name in ("txn-1", "txn-22", "my-txn-1"):
        Producer(world, name).ready()

    matching = list_all(world, transactional_id_pattern="txn-.*")
    exact = list_all(world, transactional_id_pattern="txn-1")
    everything = [list_all(world, transactional_id_pattern=text) for text in (None, "")]
    broken = list_all(world, transactional_id_pattern="[")

    assert names(matching) == ["txn-1", "txn-22"]
    assert names(exact) == ["txn-1"]
    assert [len(names(reply)) for reply in everything] == [3, 3]
    assert broken.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert names(broken) == []


@pytest.mark.parametrize("version", [1, 2])
def test_old_transactions_are_found_by_their_age(world: World, version: int) -> None:
    """Check 112."""
    Producer(world, "empty").ready()
    Producer(world, "old", timeout_ms=900_000).ready().begin({0: [b"a"]})
    world.pass_ms(10_000)
    Producer(world, "young").ready().begin({0: [b"a"]})
    world.pass_ms(1_000)

    def older_than(duration_ms: int) -> list[str]:
        reply = list_all(world, version, state_filters=["Ongoing"], duration_filter=duration_ms)
        return names(reply)

    assert older_than(-1) == older_than(0) == older_than(500) == ["old", "young"]
    assert older_than(5_000) == ["old"]
    assert older_than(60_000) == []


def test_c48_nobody_asks_a_coordinator_that_is_still_loading(start_world: StartWorld) -> None:
    """Check 113: the broker answers nobody before it has replayed its logs, so 14 is never told."""
    world = start_world({})
    Producer(world).ready().begin({0: [b"a"]})

    for _ in range(3):
        world.crash()
        reply = list_all(world)
        assert (reply.error_code, names(reply)) == (OK, ["x"])


# --- features -------------------------------------------------------------------------------


def api_versions(world: World, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    reply: ApiVersionsResponse = world.ask(request, version)
    return reply


def finalized(reply: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {
        feature.name: (feature.min_version_level, feature.max_version_level)
        for feature in reply.finalized_features
    }


@pytest.mark.parametrize("version", [3, 4])
def test_clients_are_told_to_use_v2(world: World, version: int) -> None:
    """Check 114; the clients themselves are tested with the clients."""
    reply = api_versions(world, version)

    assert finalized(reply)["transaction.version"] == (2, 2)
    assert reply.finalized_features_epoch >= 0
    ranges = {api.api_key: api.max_version for api in reply.api_keys}
    assert (ranges[26], ranges[0] >= 12, ranges[28]) == (5, True, 5)
    # KAFKA-17011: before version 4 no feature is told whose lowest level is 0.
    lowest = [feature.min_version for feature in reply.supported_features]
    assert version >= 4 or 0 not in lowest


@pytest.mark.parametrize("level", [0, 1])
def test_clients_are_told_to_go_back_to_v1(world: World, level: int) -> None:
    """Check 115: level 0 is left out, as Kafka does, and the epoch grows with each change."""
    before = api_versions(world, 4).finalized_features_epoch

    world.set_transaction_version(level)
    reply = api_versions(world, 4)

    told = finalized(reply).get("transaction.version")
    assert told == (None if level == 0 else (level, level))
    assert reply.finalized_features_epoch > before


def test_a_level_outlives_a_restart(world: World) -> None:
    """Check 115: nobody is told to use V2 again because the broker started again."""
    world.set_transaction_version(1)
    before = api_versions(world, 4).finalized_features_epoch
    world.crash()

    reply = api_versions(world, 4)

    assert finalized(reply)["transaction.version"] == (1, 1)
    assert reply.finalized_features_epoch >= before


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("is_v2", [False, True])
def test_every_client_is_served_at_every_level(world: World, level: int, is_v2: bool) -> None:
    """Section 0.1: the version of a request decides, not the level; the log is readable at each."""
    find_coordinator(world, "x")
    world.set_transaction_version(level)
    producer = Producer(world, is_v2=is_v2).ready()
    producer.begin({0: [b"a"]}).commit()
    producer.begin({0: [b"b"]}).abort()
    world.crash()
    producer = producer.twin(world)
    producer.begin({0: [b"c"]}).commit()

    assert read(world) == [b"a", b"c"]
    assert producer.state().producer_epoch == (3 if is_v2 else 0)


def test_transactions_of_both_generations_survive_a_change_of_level(world: World) -> None:
    """Check 115: an open transaction of V2 is ended by its client after the level went down."""
    producer = Producer(world, is_v2=True).ready().begin({0: [b"a"]})
    world.set_transaction_version(0)
    world.crash()
    producer = producer.twin(world)

    producer.commit()

    assert read(world) == [b"a"]
    world.set_transaction_version(2)
    producer.begin({0: [b"b"]}).commit()
    assert read(world) == [b"a", b"b"]


# --- what hangs -----------------------------------------------------------------------------


def test_h123_a_hanging_transaction_is_found_and_ended(start_world: StartWorld) -> None:
    """Check 116, scenario H123: by the steps of section 9.4, with one request at the end."""
    world = start_world({"transaction.partition.verification.enable": "false"})
    hanging = Producer(world, "hanging").ready()
    assert hanging.send(0, b"lost").error_code == OK
    Producer(world, "other").ready().begin({0: [b"held back"]}).commit()
    world.pass_ms(1_000_000)
    assert read(world) == []

    (candidate,) = [
        known
        for known in describe_producers(world)
        if known.current_txn_start_offset >= 0 and world.now_ms - known.last_timestamp > 900_000
    ]
    (owner,) = list_all(world, producer_id_filters=[candidate.producer_id]).transaction_states
    assert (TOPIC, 0) not in [
        (topic.topic, index)
        for topic in describe(world, owner.transactional_id).topics
        for index in topic.partitions
    ]
    code = MarkerRequest(
        producer_id=candidate.producer_id,
        producer_epoch=candidate.producer_epoch,
        committed=False,
        coordinator_epoch=max(candidate.coordinator_epoch, 0),
    ).send(world)

    assert code == OK
    assert read(world) == [b"held back"]
    stable, end = ends(world)
    assert stable == end


def test_what_hangs_is_ended_by_a_restart(start_world: StartWorld) -> None:
    """Check 116: an open transaction that no coordinator knows of does not outlive the broker."""
    world = start_world({"transaction.partition.verification.enable": "false"})
    hanging = Producer(world, "hanging").ready()
    assert hanging.send(0, b"lost").error_code == OK
    Producer(world, "other").ready().begin({0: [b"held back"]}).commit()

    world.crash()
    world.pass_ms(1_000)

    assert read(world) == [b"held back"]


def test_a_pattern_that_would_backtrack_for_ever_is_answered_at_once() -> None:
    """A client's pattern is matched in linear time (RE2): the broker goes on serving."""
    began = time.monotonic()

    matcher = compile_pattern("(a+)+")

    assert matcher is not None
    assert matcher.fullmatch("a" * 5_000 + "b") is None
    assert time.monotonic() - began < 1
