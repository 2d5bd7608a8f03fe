"""Partitions become part of a transaction: AddPartitionsToTxn, and the first batch of a V2 client."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tests.txn.conftest import StartWorld
from tests.txn.producer import OK, TOPIC, Producer, add_codes
from tests.txn.reader import ends, read
from tests.txn.world import Disconnected, World

CLIENT_VERSIONS = range(4)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


def fenced(version: int) -> ErrorCode:
    """Before version 2 of these requests nobody knows PRODUCER_FENCED."""
    return FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH


# --- AddPartitionsToTxn ---------------------------------------------------------------------


@pytest.mark.parametrize("version", AddPartitionsToTxnRequest.VERSIONS)
def test_one_partition_that_does_not_exist_keeps_all_out(world: World, version: int) -> None:
    """Check 45."""
    producer = Producer(world).ready()
    wanted = {TOPIC: [0, 1, 3], "nowhere": [0]}

    codes = producer.add_all(wanted, version=version)

    unknown, not_tried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert codes == {
        (TOPIC, 0): not_tried,
        (TOPIC, 1): not_tried,
        (TOPIC, 3): unknown,
        ("nowhere", 0): unknown,
    }
    assert producer.state().transaction_state == "Empty"
    assert producer.partitions() == []


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_clients_do_not_add_internal_topics(world: World, version: int) -> None:
    """Check 46."""
    producer = Producer(world).ready()
    internal = ["__consumer_offsets", "__transaction_state"]
    wanted = {TOPIC: [0], **{name: [0] for name in internal}}

    codes = producer.add_all(wanted, version=version)

    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == {
        (TOPIC, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        **{(name, 0): refused for name in internal},
    }
    assert producer.partitions() == []


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_an_older_or_newer_epoch_is_fenced(world: World, version: int) -> None:
    """Checks 47 and 51."""
    Producer(world).ready()
    producer = Producer(world).ready()

    codes = [producer.add(0, version=version, epoch=epoch) for epoch in (0, 2)]
    offsets = [producer.add_offsets(version=version, epoch=epoch) for epoch in (0, 2)]

    assert codes == offsets == [fenced(version)] * 2
    assert producer.state().transaction_state == "Empty"


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_a_foreign_producer_id_or_an_unknown_id_has_no_transaction(
    world: World, version: int
) -> None:
    """Section 5.2, rows 3 and 5."""
    producer = Producer(world).ready()
    unknown = Producer(world, "unknown")
    unknown.take_over(*producer.identity)

    foreign = producer.add_all({TOPIC: [0]}, version=version, producer_id=producer.producer_id + 1)

    assert list(foreign.values()) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert unknown.add(0, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert Producer(world, "").add(0, version=version) == ErrorCode.INVALID_REQUEST


def test_what_was_added_is_not_written_down_again(world: World) -> None:
    """Check 48."""
    producer = Producer(world).ready()
    assert producer.add(0, 1) == OK
    before = world.log_bytes("__transaction_state")

    assert [producer.add(0), producer.add(1, 0)] == [OK, OK]
    assert world.log_bytes("__transaction_state") == before
    assert producer.partitions() == [(TOPIC, 0), (TOPIC, 1)]


def test_after_a_commit_a_new_transaction_begins_with_a_new_start(world: World) -> None:
    """Check 49."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    first = producer.state().transaction_start_time_ms
    producer.commit()
    world.pass_ms(5000)

    assert producer.add(1) == OK

    state = producer.state()
    assert (state.transaction_state, producer.partitions()) == ("Ongoing", [(TOPIC, 1)])
    assert state.transaction_start_time_ms >= first + 5000


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_while_markers_are_under_way_nothing_is_added(
    impatient: World, version: int, committed: bool
) -> None:
    """Check 50."""
    producer = Producer(impatient).ready().begin({0: [b"a"]})
    impatient.disk.full.add(f"{TOPIC}-0")
    assert producer.end(committed).error_code == OK

    assert producer.add(1, version=version) == BUSY
    assert producer.add_offsets(version=version) == BUSY
    impatient.disk.full.clear()
    impatient.pass_ms(1000)
    assert producer.add(1, version=version) == OK


def test_a_patient_broker_adds_as_soon_as_the_markers_are_there(world: World) -> None:
    """Check 50 without a back-off."""
    producer = Producer(world).ready()
    for number in range(20):
        assert producer.add(0) == OK
        assert producer.send(0, b"%d" % number).error_code == OK
        producer.decide(True)

    producer.settle()
    assert read(world) == [b"%d" % number for number in range(20)]


# --- verification ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_verification_says_what_is_part_of_the_transaction(world: World, version: int) -> None:
    """Check 52."""
    producer = Producer(world).ready()
    assert producer.add(0) == OK

    codes = producer.verify(0, 1, version=version)

    assert codes == [OK, ErrorCode.TRANSACTION_ABORTABLE]
    assert producer.partitions() == [(TOPIC, 0)]


def test_verification_is_not_disturbed_by_another_addition(world: World) -> None:
    """Check 52, KAFKA-14904: an addition whose record is not committed yet holds up nobody."""
    producer = Producer(world).ready()
    assert producer.add(0) == OK
    adding, asking = world.connect(), world.connect()

    begun = adding.begin(producer.an_add({TOPIC: [1]}), 3)
    verified = asking.ask(producer.an_add({TOPIC: [0]}, verify_only=True), 5)

    assert list(add_codes(verified).values()) == [OK]
    assert list(add_codes(adding.answer(begun)).values()) == [OK]


@pytest.mark.parametrize(("version", "code"), [(3, 48), (9, 48), (10, 48), (11, 120)])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_batch_for_a_partition_that_was_not_added_is_refused(
    world: World, version: int, code: int, is_open: bool
) -> None:
    """Check 53, flaw 10.1: nothing is appended."""
    producer = Producer(world).ready()
    if is_open:
        producer.begin({1: [b"a"]})

    refused = producer.send(0, b"x", version=version)

    assert refused.error_code == code
    assert ends(world) == (0, 0)


@pytest.mark.parametrize(("version", "code"), [(3, 48), (10, 48), (11, 120)])
@pytest.mark.parametrize("committed", [True, False])
def test_a_batch_that_comes_after_the_end_is_refused(
    world: World, version: int, code: int, committed: bool
) -> None:
    """Flaw 10.1 with a V1 client: a late batch leaves no transaction open that nobody ends."""
    producer = Producer(world).ready().begin({0: [b"a"]})
    producer.decide(committed)
    producer.settle()

    late = producer.send(0, b"late", version=version)

    assert late.error_code == code
    stable, end = ends(world)
    assert stable == end == 2


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_batch_that_comes_after_the_end_of_a_v2_transaction_is_fenced(
    world: World, version: int
) -> None:
    """Flaw 10.1 with a V2 client, appendix A row 8: markers carry the next epoch."""
    producer = Producer(world, is_v2=True).ready().begin({0: [b"a"]})
    late = producer.twin()
    producer.abort()

    assert late.send(0, b"late", version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    # A partition that never heard of the producer asks its coordinator.
    assert late.send(1, b"late", version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (ends(world), ends(world, partition=1)) == ((2, 2), (0, 0))


def test_the_first_batch_of_a_v2_client_adds_its_partition(world: World) -> None:
    """Check 54."""
    producer = Producer(world, is_v2=True).ready()

    assert producer.send(2, b"a").error_code == OK

    assert producer.state().transaction_state == "Ongoing"
    assert producer.partitions() == [(TOPIC, 2)]


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_transaction_of_a_v2_client_may_begin_at_once(
    world: World, committed: bool
) -> None:
    """Check 55, flaw 10.17 c: batches that are sent in the wake of the end are never refused."""
    line = world.connect()
    producer = Producer(line, is_v2=True).ready()
    for number in range(50):
        producer.begin({0: [b"%d" % number]})
        producer.decide(committed or number % 2 == 0)
    producer.settle()

    kept = [b"%d" % n for n in range(50) if committed or n % 2 == 0]
    assert read(world) == kept


def test_batches_that_are_sent_together_with_the_end_wait_for_its_markers(world: World) -> None:
    """Check 55: EndTxn and the next two batches in one go, on one connection."""
    line = world.connect()
    producer = Producer(line, is_v2=True).ready().begin({0: [b"a"]})
    following = producer.twin()
    following.take_over(producer.producer_id, producer.producer_epoch + 1)

    end = line.begin(producer.an_end(True), 5)
    batches = [
        line.begin(following.a_produce({(TOPIC, 0): following.batch(b"b%d" % n, sequence=n)}), 12)
        for n in range(2)
    ]

    assert line.answer(end).error_code == OK
    answers = [line.answer(b).responses[0].partition_responses[0] for b in batches]
    assert [answer.error_code for answer in answers] == [OK, OK]
    following.commit()
    assert read(world) == [b"a", b"b0", b"b1"]


def test_a_v2_batch_while_markers_last_is_told_so(impatient: World) -> None:
    """Check 55: 51, never 48; and 19 for older versions, which do not know 51 here."""
    producer = Producer(impatient, is_v2=True).ready().begin({0: [b"a"]})
    impatient.disk.full.add(f"{TOPIC}-0")
    producer.decide(True)

    codes = [producer.send(1, b"b", version=v).error_code for v in (12, 11, 9)]

    assert codes == [BUSY, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS]


@pytest.mark.parametrize("version", [9, 11, 12])
def test_without_a_coordinator_a_batch_is_to_be_sent_again(world: World, version: int) -> None:
    """Check 56, flaw 10.27: 19, which every producer retries, and nothing is appended."""
    producer = Producer(world).ready()
    world.damage_log("__transaction_state")
    producer = producer.twin(world)

    assert producer.send(0, b"a", version=version).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert producer.add(0) == ErrorCode.NOT_COORDINATOR
    assert producer.end(True).error_code == ErrorCode.NOT_COORDINATOR
    assert producer.init().error_code == ErrorCode.NOT_COORDINATOR
    assert ends(world) == (0, 0)


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_coordinator_without_room_is_to_be_asked_again(world: World, is_v2: bool) -> None:
    """Check 81: a failed append leaves the id as it was, and usable."""
    producer = Producer(world, is_v2=is_v2).ready()
    world.disk.full.add("__transaction_state")

    if is_v2:
        assert producer.send(0, b"a").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        assert producer.add(0) == ErrorCode.NOT_COORDINATOR
    assert producer.state().transaction_state == "Empty"
    assert producer.init(supplied=producer.identity).error_code == ErrorCode.NOT_COORDINATOR
    world.disk.full.clear()

    producer.begin({0: [b"a"]}).commit()
    assert read(world) == [b"a"]


@pytest.mark.parametrize("is_v2", [False, True])
def test_an_end_without_room_is_not_decided(world: World, is_v2: bool) -> None:
    """Check 81: the same request decides it later."""
    producer = Producer(world, is_v2=is_v2).ready().begin({0: [b"a"]})
    world.disk.full.add("__transaction_state")

    refused = producer.end(True)
    assert producer.state().transaction_state == "Ongoing"
    world.disk.full.clear()
    producer.commit()

    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert read(world) == [b"a"]


# --- connections that were left behind ------------------------------------------------------


def test_an_addition_on_a_connection_that_was_left_has_no_effect(world: World) -> None:
    """Flaw 10.2: AddPartitionsToTxn of a V1 producer, delivered late."""
    old, new = world.connect(), world.connect()
    producer = Producer(new).ready().begin({0: [b"a"]})

    with pytest.raises(Disconnected):
        old.ask(producer.an_add({TOPIC: [1]}), 3)

    assert not old.is_open
    assert producer.partitions() == [(TOPIC, 0)]


def test_a_stale_request_does_not_make_room_for_another(world: World) -> None:
    """Flaw 10.2: what an old epoch sends on an old connection does not count as speaking."""
    older, old, new = world.connect(), world.connect(), world.connect()
    zombie = Producer(older).ready()
    producer = Producer(new).ready().begin({0: [b"a"]})

    assert zombie.end(True).error_code == FENCED
    with pytest.raises(Disconnected):
        old.ask(producer.an_end(True), 4)

    assert producer.state().transaction_state == "Ongoing"


def test_verification_can_be_switched_off(start_world: StartWorld) -> None:
    """Section 5.4: then an older client's batch opens a transaction that nobody knows of."""
    world = start_world({"transaction.partition.verification.enable": "false"})
    producer = Producer(world).ready()

    assert producer.send(0, b"a").error_code == OK
    assert ends(world) == (0, 1)
    assert producer.state().transaction_state == "Empty"
