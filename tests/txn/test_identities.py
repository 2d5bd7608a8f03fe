"""InitProducerId and FindCoordinator over the wire: who a producer is, and whom it replaces."""

import pytest

from oncelog.core.packing import encode_batch
from oncelog.core.records import Record
from oncelog.core.txn.machine import TxnState
from oncelog.core.txn.records import Txn, encode_key, encode_value
from oncelog.core.types import partition_for
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.txn.conftest import StartWorld
from tests.txn.producer import OK, TOPIC, Producer, describe, find_coordinator
from tests.txn.reader import ends, markers, read
from tests.txn.world import World

#: Version 6 is unstable: Kafka 4.3 does not offer it either.
VERSIONS = range(6)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
LAST_EPOCH = 32_766


def put_epoch(world: World, producer: Producer, epoch: int) -> None:
    """Let a producer's log say that it has reached an epoch, and that nothing is open."""
    txn = Txn(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        timeout_ms=producer.timeout_ms,
        state=TxnState.EMPTY,
        updated_at_ms=world.now_ms,
    )
    key, value = encode_key(txn.transactional_id), encode_value(txn, flexible=True)
    record = Record(0, world.now_ms, key, value, ())
    index = partition_for(txn.transactional_id, 2)
    world.crash_with(
        f"__transaction_state-{index}", lambda offset: encode_batch([record], base_offset=offset)
    )
    producer.take_over(producer.producer_id, epoch)


# --- asking for one -------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_instance_has_the_same_id_and_the_next_epoch(world: World, version: int) -> None:
    """Check 28."""
    first, second = Producer(world).init(version), Producer(world).init(version)

    assert (first.error_code, first.producer_epoch) == (OK, 0)
    assert (second.error_code, second.producer_epoch) == (OK, 1)
    assert first.producer_id == second.producer_id


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_transactional_id_every_answer_is_a_new_producer(
    world: World, version: int
) -> None:
    """Check 26."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

    replies = [world.ask(request, version) for _ in range(20)]

    assert {(r.error_code, r.producer_epoch) for r in replies} == {(OK, 0)}
    assert len({r.producer_id for r in replies}) == 20


@pytest.mark.parametrize("version", VERSIONS)
def test_o220_an_empty_transactional_id_is_refused(world: World, version: int) -> None:
    """Check 29."""
    reply = Producer(world, "").init(version)

    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert (reply.producer_id, reply.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("supplied", [(7, -1), (-1, 7)])
def test_half_an_identity_is_refused(world: World, version: int, supplied: tuple[int, int]) -> None:
    """Check 30."""
    assert Producer(world).init(version, supplied=supplied).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2147483647])
def test_o220_a_timeout_out_of_bounds_creates_nothing(
    world: World, version: int, timeout_ms: int
) -> None:
    """Check 31."""
    producer = Producer(world)

    reply = producer.init(version, timeout_ms=timeout_ms)

    assert reply.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert producer.state().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_the_longest_timeout_is_allowed(world: World) -> None:
    """Check 31, the bound itself."""
    assert Producer(world).init(timeout_ms=900_000).error_code == OK


# --- recovering one (KIP-360) ---------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
def test_an_end_that_comes_after_the_recovery_is_fenced(world: World, is_v2: bool) -> None:
    """Section 3.3: the answer to a recovery begins anew; it was taken for a repeat of the abort."""
    producer = Producer(world, is_v2=is_v2).ready().begin({0: [b"a"]})
    old = producer.identity
    assert producer.init(supplied=old).producer_epoch == old[1] + 1

    late = [producer.end(committed, 5, epoch=old[1]).error_code for committed in (True, False)]

    assert late == [FENCED, FENCED]
    assert producer.state().transaction_state == "Empty"
    assert producer.init(supplied=old).producer_epoch == old[1] + 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_b27_a_bump_that_is_asked_for_twice_happens_once(world: World, version: int) -> None:
    """Checks 32-34, scenario B27; across a crash too, where Kafka fences."""
    producer = Producer(world).ready()
    old = producer.identity

    bumped, repeated = (producer.init(version, supplied=old) for _ in range(2))
    world.crash()
    after_crash = producer.twin(world).init(version, supplied=old)
    foreign = Producer(world).init(version, supplied=(old[0] + 1, 0))
    newer = Producer(world).init(version, supplied=(old[0], 7))

    assert [r.producer_epoch for r in (bumped, repeated, after_crash)] == [1, 1, 1]
    fenced = FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (foreign.error_code, newer.error_code) == (fenced, fenced)


def test_a11_at_the_last_epoch_a_new_producer_id_takes_over(world: World) -> None:
    """Checks 38 and 39, flaw 10.21: retries get the answer that was lost."""
    producer = Producer(world).ready()
    put_epoch(world, producer, LAST_EPOCH - 1)
    old_id = producer.producer_id

    before = producer.identity
    last = [producer.init(supplied=before).producer_epoch for _ in range(2)]
    at_last = producer.identity
    rotated = [producer.init(supplied=at_last) for _ in range(2)]
    unsupplied = producer.init()

    assert last == [LAST_EPOCH, LAST_EPOCH]
    assert {(r.producer_id != old_id, r.producer_epoch) for r in rotated} == {(True, 0)}
    assert rotated[0].producer_id == rotated[1].producer_id == unsupplied.producer_id
    assert unsupplied.producer_epoch == 1


# --- replacing one --------------------------------------------------------------------------


def test_a_new_instance_is_sent_away_and_then_two_epochs_higher(impatient: World) -> None:
    """Check 35."""
    old = Producer(impatient).ready().begin({0: [b"a"]})
    new = Producer(impatient)

    sent_away = new.init()
    impatient.pass_ms(100)
    again = new.init()

    assert sent_away.error_code == BUSY
    assert (sent_away.producer_id, sent_away.producer_epoch) == (-1, -1)
    assert new.identity == (old.producer_id, old.producer_epoch + 2)
    assert again.error_code == OK


def test_a_producer_that_recovers_is_one_epoch_higher(impatient: World) -> None:
    """Appendix B 4: with its own identity supplied the abort's bump is the one it gets."""
    producer = Producer(impatient).ready().begin({0: [b"a"]})
    old = producer.identity

    sent_away = producer.init(supplied=old)
    impatient.pass_ms(100)

    assert sent_away.error_code == BUSY
    assert producer.init(supplied=old).producer_epoch == old[1] + 1


def test_a_patient_broker_answers_a_new_instance_at_once(world: World) -> None:
    """Check 35 without a back-off: the answer waits for the markers."""
    old = Producer(world).ready().begin({0: [b"a"]})

    new = Producer(world)
    reply = new.init()

    assert (reply.error_code, reply.producer_epoch) == (OK, old.producer_epoch + 2)
    assert read(world) == []


@pytest.mark.parametrize("is_v2", [False, True])
def test_b18_whoever_is_replaced_is_refused_everywhere(world: World, is_v2: bool) -> None:
    """Check 36, scenario B18: three partitions, none of them visible."""
    old = Producer(world, is_v2=is_v2).ready().begin({n: [b"x"] for n in range(3)})
    new = Producer(world, is_v2=is_v2).ready()

    produced = old.send(0, b"y").error_code
    elsewhere = [old.end(committed).error_code for committed in (True, False)]
    added = old.add(1)

    assert produced == ErrorCode.INVALID_PRODUCER_EPOCH
    assert elsewhere == [FENCED, FENCED]
    assert added == FENCED
    assert [read(world, partition=n) for n in range(3)] == [[], [], []]
    new.begin({0: [b"z"]}).commit()
    assert read(world) == [b"z"]


def test_b28_while_a_commit_is_carried_out_nobody_replaces_its_producer(impatient: World) -> None:
    """Check 37, scenario B28: the commit stands."""
    old = Producer(impatient).ready().begin({0: [b"a"]})
    impatient.disk.full.add(f"{TOPIC}-0")
    old.decide(True)
    new = Producer(impatient)

    sent_away = [new.init().error_code, new.init(supplied=old.identity).error_code]
    impatient.disk.full.clear()
    impatient.pass_ms(1000)

    assert sent_away == [BUSY, BUSY]
    assert new.init().producer_epoch == old.producer_epoch + 1
    assert read(impatient) == [b"a"]


def test_a_patient_broker_waits_only_so_long(world: World) -> None:
    """Check 37: what lasts longer than the wait is answered 51, not for ever."""
    old = Producer(world).ready().begin({0: [b"a"]})
    world.disk.full.add(f"{TOPIC}-0")
    old.decide(True)

    assert Producer(world).init().error_code == BUSY


def test_a_victim_does_not_get_the_epoch_that_was_raised_against_it(impatient: World) -> None:
    """Flaw 10.19: Kafka lets it go on at E+1, and whoever replaced it has to start over."""
    old = Producer(impatient, is_v2=True).ready().begin({0: [b"a"]})
    new = Producer(impatient, is_v2=True)
    assert new.init().error_code == BUSY
    impatient.pass_ms(100)

    assert old.end(False).error_code == FENCED
    assert old.init(supplied=old.identity).error_code == FENCED
    assert new.init().producer_epoch == old.producer_epoch + 2


def test_a_zombie_does_not_abort_its_successor(world: World) -> None:
    """Flaw 10.20: Kafka looks at the producer id alone."""
    zombie = Producer(world).ready()
    successor = Producer(world).ready().begin({0: [b"a"]})

    refused = zombie.init(supplied=zombie.identity)

    assert refused.error_code == FENCED
    assert successor.state().transaction_state == "Ongoing"
    successor.commit()
    assert read(world) == [b"a"]


def test_b32_a_hundred_instances_in_a_row_leave_nothing_open(world: World) -> None:
    """Scenario B32."""
    epochs = []
    for number in range(100):
        instance = Producer(world).ready()
        epochs.append(instance.producer_epoch)
        instance.begin({0: [b"%d" % number]})
    last = Producer(world).ready()

    assert epochs == sorted(set(epochs))
    assert last.state().transaction_state == "Empty"
    stable, end = ends(world)
    assert stable == end == 200
    assert read(world) == []


def test_instances_that_fight_commit_in_the_order_of_their_epochs(world: World) -> None:
    """Scenario B26, check 118: of eight at once each gets an epoch of its own."""
    find_coordinator(world, "x")
    lines = [world.connect() for _ in range(8)]
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    begun = [line.begin(request, 5) for line in lines]
    replies = [line.answer(task) for line, task in zip(lines, begun, strict=True)]
    rivals = []
    for line, reply in zip(lines, replies, strict=True):
        rival = Producer(line)
        rival.take_over(reply.producer_id, reply.producer_epoch)
        rivals.append(rival)
    newest = max(rivals, key=lambda rival: rival.producer_epoch)

    codes = {rival.producer_epoch: rival.add(0) for rival in rivals}
    newest.begin({0: [b"newest"]}).commit()

    assert len({rival.identity for rival in rivals}) == 8
    assert {epoch for epoch, code in codes.items() if code == OK} == {newest.producer_epoch}
    assert read(world) == [b"newest"]


def test_rivals_with_open_transactions_never_share_an_epoch(impatient: World) -> None:
    """Check 118: who comes while the abort is carried out is sent away, and comes back higher."""
    Producer(impatient).ready().begin({0: [b"a"]})
    lines = [impatient.connect() for _ in range(5)]
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)

    begun = [line.begin(request, 5) for line in lines]
    replies = [line.answer(task) for line, task in zip(lines, begun, strict=True)]
    impatient.pass_ms(100)
    replies += [line.ask(request, 5) for line in lines]

    granted = [reply.producer_epoch for reply in replies if reply.error_code == OK]
    assert {reply.error_code for reply in replies} == {OK, BUSY}
    assert sorted(granted) == list(range(2, 2 + len(granted)))


# --- finding the coordinator ----------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5, 6])
def test_several_ids_are_looked_up_at_once(world: World, version: int) -> None:
    """Check 43."""
    keys = ["a", "b", ""]

    reply = world.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=keys), version)

    assert [(c.key, c.error_code, c.node_id) for c in reply.coordinators] == [
        (key, OK, 1) for key in keys
    ]


def test_a_kind_of_coordinator_that_nobody_knows_is_refused_for_each_key(world: World) -> None:
    """Check 43, appendix B 20: each key has an error of its own."""
    reply = world.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["a", "b"]), 4)

    assert [c.error_code for c in reply.coordinators] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_first_one_to_look_finds_a_coordinator_on_an_empty_broker(
    start_world: StartWorld, version: int
) -> None:
    """Check 44: Kafka answers 15 until the topic is there; here it is there before the answer."""
    world = start_world({})

    reply = world.ask(FindCoordinatorRequest(key="x", key_type=1), version)

    assert (reply.error_code, reply.node_id) == (OK, 1)
    assert Producer(world).init().error_code == OK


def test_nobody_has_to_look_for_the_coordinator_of_one_node(world: World) -> None:
    """Check 44: InitProducerId may come first; other requests are told to look."""
    early = Producer(world)
    early.take_over(1, 0)

    assert describe(world, "x").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert early.end(True).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert early.init().error_code == OK


def test_a_rotation_in_v2_is_answered_with_the_new_identity(world: World) -> None:
    """Check 71, flaw 10.14 c: the marker on disk has the old id, one epoch above the last."""
    producer = Producer(world, is_v2=True).ready()
    put_epoch(world, producer, LAST_EPOCH)
    producer = producer.twin(world)
    old_id = producer.producer_id
    producer.begin({0: [b"a"]})

    first = producer.end(True)
    again = producer.end(True, epoch=LAST_EPOCH, producer_id=old_id)

    assert (first.error_code, first.producer_epoch) == (OK, 0)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (
        OK, first.producer_id, 0,
    )  # fmt: skip
    assert first.producer_id != old_id
    assert [(m[1], m[2], m[3]) for m in markers(world)] == [(old_id, LAST_EPOCH + 1, True)]
    producer.begin({0: [b"b"]}).commit()
    assert read(world) == [b"a", b"b"]
