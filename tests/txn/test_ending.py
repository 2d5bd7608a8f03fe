"""EndTxn over the wire: what is decided, by whom, and what a repeat or a stray request is told."""

import pytest

from oncelog.wire.errors import ErrorCode
from tests.txn.producer import END_V1, OK, TOPIC, Producer
from tests.txn.reader import ends, markers, read
from tests.txn.world import Disconnected, World

V1_VERSIONS = range(5)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
WRONG = ErrorCode.INVALID_TXN_STATE


def v1(world: World) -> Producer:
    return Producer(world).ready()


def v2(world: World) -> Producer:
    return Producer(world, is_v2=True).ready()


def fenced(version: int) -> ErrorCode:
    return FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH


# --- V1 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", V1_VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_o221_v1_cannot_end_what_it_has_not_begun(
    world: World, version: int, committed: bool
) -> None:
    """Check 62."""
    assert v1(world).end(committed, version).error_code == WRONG


@pytest.mark.parametrize("version", V1_VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_o221_v1_may_repeat_its_decision_and_not_change_it(
    world: World, version: int, committed: bool
) -> None:
    """Checks 63 and 64, and the same for an abort."""
    producer = v1(world).begin({0: [b"a"]})

    codes = [producer.end(committed, version).error_code for _ in range(3)]
    producer.settle()

    assert codes == [OK, OK, OK]
    assert producer.end(not committed, version).error_code == WRONG
    assert read(world) == ([b"a"] if committed else [])
    assert len(markers(world)) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_v1_is_sent_away_while_markers_are_under_way(impatient: World, committed: bool) -> None:
    """Section 5.6: whatever it asks for, until the transaction is completed."""
    producer = v1(impatient).begin({0: [b"a"]})
    impatient.disk.full.add(f"{TOPIC}-0")
    producer.decide(committed)

    codes = [producer.end(again).error_code for again in (True, False)]
    wrong_epoch = producer.end(committed, epoch=7).error_code

    # A wrong epoch is told at once: only V2 clients can be ahead of their coordinator.
    assert (codes, wrong_epoch) == ([BUSY, BUSY], FENCED)


@pytest.mark.parametrize("version", range(6))
def test_o221_a_stranger_ends_nothing(world: World, version: int) -> None:
    """Check 72."""
    producer = v1(world).begin({0: [b"a"]})
    unknown = Producer(world, "unknown")
    unknown.take_over(*producer.identity)

    foreign = producer.end(True, version, producer_id=producer.producer_id + 1)

    assert foreign.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert unknown.end(True, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert Producer(world, "").end(True, version).error_code == ErrorCode.INVALID_REQUEST
    assert producer.state().transaction_state == "Ongoing"


@pytest.mark.parametrize("version", V1_VERSIONS)
def test_o221_v1_with_another_epoch_is_fenced(world: World, version: int) -> None:
    """Check 51 for EndTxn: older or newer."""
    producer = v1(world)
    assert producer.init(supplied=producer.identity).error_code == OK
    producer.begin({0: [b"a"]})

    codes = [producer.end(True, version, epoch=epoch).error_code for epoch in (0, 2)]

    assert codes == [fenced(version)] * 2
    assert producer.state().transaction_state == "Ongoing"


@pytest.mark.parametrize("committed", [True, False])
def test_h118_an_end_of_nothing_that_was_added_is_an_end(world: World, committed: bool) -> None:
    """Appendix B 15, scenario H118: no partition at all, or one that nothing was written to."""
    producer = v1(world)
    assert producer.add_all({}) == {}
    assert producer.state().transaction_state == "Ongoing"
    producer.decide(committed)
    producer.settle()

    assert producer.add(0) == OK
    producer.decide(committed)
    producer.settle()

    assert ends(world) == (1, 1)
    assert read(world) == []


# --- V2 -------------------------------------------------------------------------------------


def test_v2_is_told_its_next_epoch_again_and_again(world: World) -> None:
    """Checks 65 and 66."""
    producer = v2(world).begin({0: [b"a"]})
    old = producer.identity

    replies = [producer.end(True, epoch=old[1]) for _ in range(3)]

    assert {(r.error_code, r.producer_id, r.producer_epoch) for r in replies} == {
        (OK, old[0], old[1] + 1)
    }
    producer.settle()
    assert [m[1:4] for m in markers(world)] == [(old[0], old[1] + 1, True)]


def test_v2_may_abort_what_it_has_not_begun(world: World) -> None:
    """Checks 67 and 68; each abort raises the epoch once."""
    producer = v2(world)

    wrong = producer.end(True)
    aborted = producer.end(False)
    again = producer.end(False, epoch=0)
    later = producer.end(False)

    assert wrong.error_code == WRONG
    assert (wrong.producer_id, wrong.producer_epoch) == (-1, -1)
    assert [(r.error_code, r.producer_epoch) for r in (aborted, again, later)] == [
        (OK, 1), (OK, 1), (OK, 2),
    ]  # fmt: skip
    assert ends(world) == (0, 0)


@pytest.mark.parametrize("stale", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_b22_v2_cannot_end_the_next_transaction_with_the_last_epoch(
    world: World, stale: bool, committed: bool
) -> None:
    """Check 69, flaws 10.2 and 10.3, scenario B22: a copy of EndTxn arrives in the next one."""
    producer = v2(world).begin({0: [b"a"]})
    copy = producer.an_end(stale)
    producer.decide(stale)
    producer.begin({0: [b"b"], 1: [b"b"]})

    refused = world.connect().ask(copy, 5)

    assert refused.error_code == FENCED
    assert producer.state().transaction_state == "Ongoing"
    assert producer.partitions() == [(TOPIC, 0), (TOPIC, 1)]
    producer.decide(committed)
    producer.settle()
    kept = ([b"a"] if stale else []) + ([b"b"] if committed else [])
    assert read(world) == kept


def test_v2_cannot_turn_a_commit_into_an_abort(world: World) -> None:
    """Check 70, and the reverse: flaw 10.18."""
    producer = v2(world).begin({0: [b"a"]})
    old = producer.producer_epoch
    producer.commit()
    refused = producer.end(False, epoch=old)
    producer.begin({0: [b"b"]}).abort()

    reverse = producer.end(True, epoch=old + 1)

    assert (refused.error_code, reverse.error_code) == (WRONG, WRONG)
    assert read(world) == [b"a"]


def test_v2_that_is_ahead_of_its_coordinator_does_not_fence_itself(impatient: World) -> None:
    """Flaw 10.17 a (KAFKA-18464): 51 while the commit is carried out, then one more bump."""
    producer = v2(impatient).begin({0: [b"a"]})
    impatient.disk.full.add(f"{TOPIC}-0")
    producer.decide(True)

    waiting = [producer.end(committed).error_code for committed in (False, True)]
    impatient.disk.full.clear()
    impatient.pass_ms(1000)
    done = producer.end(False)

    assert waiting == [BUSY, BUSY]
    assert (done.error_code, done.producer_epoch) == (OK, 2)
    assert read(impatient) == [b"a"]


def test_v2_that_is_ahead_waits_a_moment_where_the_broker_is_patient(world: World) -> None:
    """Flaw 10.17 a: commit, and at once an abort of nothing."""
    producer = v2(world).begin({0: [b"a"]})

    producer.decide(True)
    done = producer.end(False)

    assert (done.error_code, done.producer_epoch) == (OK, 2)
    producer.settle()
    assert read(world) == [b"a"]


def test_a_client_that_moves_from_v1_to_v2_begins_anew(world: World) -> None:
    """Flaw 10.17 b (KAFKA-18227): partitions of the V1 transaction do not count as added."""
    old = v1(world).begin({0: [b"a"]})
    old.commit()
    new = Producer(world, is_v2=True)
    new.take_over(*old.identity)
    assert new.init(supplied=old.identity).error_code == OK

    assert new.send(0, b"b").error_code == OK

    assert new.partitions() == [(TOPIC, 0)]
    new.commit()
    assert read(world) == [b"a", b"b"]


# --- durability -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("acks", [-1, 1])
def test_b23_c39_what_was_decided_outlives_a_power_cut(
    world: World, is_v2: bool, committed: bool, acks: int
) -> None:
    """Check 73: the power goes right after the answer; scenario B23 on one node."""
    producer = Producer(world, is_v2=is_v2).ready()
    if not is_v2:
        assert producer.add(0, 1) == OK
    for partition in (0, 1):
        assert producer.send(partition, b"a", acks=acks).error_code == OK
    epoch = producer.producer_epoch
    producer.decide(committed)

    world.crash()
    producer = producer.twin(world)
    again = producer.end(committed, epoch=epoch)

    assert again.error_code == OK
    assert again.producer_epoch == (epoch + 1 if is_v2 else -1)
    producer.settle()
    assert [read(world, partition=n) for n in (0, 1)] == [[b"a"] if committed else []] * 2


@pytest.mark.parametrize("is_v2", [False, True])
def test_c37_what_was_not_decided_ends_with_the_timeout_after_a_power_cut(
    world: World, is_v2: bool
) -> None:
    """Check 73, the other half: nothing decided, nothing visible, nothing left open."""
    producer = Producer(world, is_v2=is_v2).ready().begin({0: [b"a"], 1: [b"a"]})

    world.crash()
    assert producer.twin(world).state().transaction_state == "Ongoing"
    world.pass_ms(producer.timeout_ms + 1000)

    assert producer.twin(world).state().transaction_state == "CompleteAbort"
    assert read(world) == read(world, partition=1) == []


# --- connections that were left behind ------------------------------------------------------


@pytest.mark.parametrize("version", V1_VERSIONS)
@pytest.mark.parametrize("stray", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_b22_a_stray_end_of_v1_decides_nothing(
    world: World, version: int, stray: bool, committed: bool
) -> None:
    """Check 74, flaws 10.2 and 10.3 (KAFKA-17754), scenario B22."""
    old, new = world.connect(), world.connect()
    producer = Producer(old).ready().begin({0: [b"a"]})
    producer = producer.twin(new)
    assert producer.end(stray).error_code == OK
    producer.begin({0: [b"b"], 1: [b"b"]})

    with pytest.raises(Disconnected):
        old.ask(producer.an_end(stray), version)

    assert not old.is_open
    assert producer.state().transaction_state == "Ongoing"
    assert producer.partitions() == [(TOPIC, 0), (TOPIC, 1)]
    producer.decide(committed)
    producer.settle()
    assert read(world) == ([b"a"] if stray else []) + ([b"b"] if committed else [])
    assert read(world, partition=1) == ([b"b"] if committed else [])


def test_a_stray_end_that_arrives_between_two_writes_tears_nothing(world: World) -> None:
    """Flaw 10.3: half of a transaction would be visible."""
    old, new = world.connect(), world.connect()
    Producer(old).ready().begin({0: [b"a"]}).commit()
    producer = Producer(new)
    assert producer.init().error_code == OK
    stale = producer.twin(old)
    producer.begin({0: [b"b"]})

    with pytest.raises(Disconnected):
        stale.end(True)
    producer.begin({1: [b"b"]}).abort()

    assert (read(world), read(world, partition=1)) == ([b"a"], [])


@pytest.mark.parametrize("version", [9, 11])
def test_b21_a_stray_batch_of_v1_does_not_join_the_next_transaction(
    world: World, version: int
) -> None:
    """Flaw 10.4, scenario B21: it would be committed, and the real one taken for a repeat."""
    old, new = world.connect(), world.connect()
    producer = Producer(old).ready().begin({0: [b"a"]})
    stray = producer.a_produce({(TOPIC, 0): producer.batch(b"stray", sequence=2)})
    producer = producer.twin(new)
    assert producer.send(0, b"b").error_code == OK
    producer.abort()
    assert producer.add(0) == OK

    with pytest.raises(Disconnected):
        old.ask(stray, version)
    assert producer.send(0, b"c").error_code == OK
    producer.commit()

    assert read(world) == [b"c"]


@pytest.mark.parametrize("version", [9, 11, 12])
def test_b21_a_late_batch_of_v2_does_not_join_the_next_transaction(
    world: World, version: int
) -> None:
    """Its epoch is that of the transaction it was sent for."""
    producer = v2(world).begin({0: [b"a"]})
    late = producer.a_produce({(TOPIC, 0): producer.batch(b"late", sequence=1)})
    producer.abort()
    producer.begin({0: [b"b"], 1: [b"b"]})

    reply = world.connect().ask(late, version)
    producer.commit()

    answer = reply.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (read(world), read(world, partition=1)) == ([b"b"], [b"b"])


def test_a_stale_batch_does_not_make_room_for_another(world: World) -> None:
    """Flaw 10.4: a batch of an older epoch does not count as speaking, even where it is news."""
    older, old, new = world.connect(), world.connect(), world.connect()
    zombie = Producer(older).ready().begin({0: [b"a"]})
    zombie.commit()
    producer = zombie.twin(new)
    assert producer.init(supplied=zombie.identity).error_code == OK
    assert producer.add(0) == OK
    assert producer.send(0, b"x", sequence=5).error_code == 45  # The partition knows epoch 0 only.

    assert zombie.send(0, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(Disconnected):
        producer.twin(old).send(0, b"stray", sequence=0)

    producer.begin({0: [b"b"]}).commit()
    assert read(world) == [b"a", b"b"]


def test_a_producer_on_its_newest_connection_is_not_disturbed(world: World) -> None:
    """Flaw 10.2: each new connection takes over, for requests and for batches by themselves."""
    lines = [world.connect() for _ in range(4)]
    producer = Producer(lines[0]).ready()
    for number, line in enumerate(lines):
        producer = producer.twin(line)
        producer.begin({0: [b"%d" % number]}).commit()

    assert read(world) == [b"0", b"1", b"2", b"3"]


def test_batches_and_requests_to_the_coordinator_may_take_different_connections(
    world: World,
) -> None:
    """Flaw 10.2: franz-go keeps Produce on a connection of its own, which may be the older one."""
    batches, requests = world.connect(), world.connect()
    producer = Producer(requests).ready()
    assert producer.add(0) == OK

    assert producer.twin(batches).send(0, b"a").error_code == OK
    assert producer.end(True, END_V1).error_code == OK

    producer.settle()
    assert read(world) == [b"a"]
