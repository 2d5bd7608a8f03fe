"""Transactions that nobody ends, ids that nobody uses: what time does to them."""

import pytest

from oncelog.wire.errors import ErrorCode
from tests.txn.conftest import StartWorld
from tests.txn.markers import admin_marker, describe_producers
from tests.txn.producer import OK, TOPIC, Producer, describe
from tests.txn.reader import ends, markers, read
from tests.txn.world import World

FENCED = ErrorCode.PRODUCER_FENCED
STALE = ErrorCode.INVALID_PRODUCER_EPOCH
DAY_MS = 86_400_000


def an_open_one(world: World, *, is_v2: bool = False, timeout_ms: int = 10_000) -> Producer:
    producer = Producer(world, is_v2=is_v2, timeout_ms=timeout_ms).ready()
    return producer.begin({0: [b"a"], 1: [b"a"]})


# --- timeouts -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_transaction_lives_as_long_as_its_timeout_and_little_longer(
    world: World, is_v2: bool
) -> None:
    """Check 78: within a second, without a sweep to wait for."""
    producer = an_open_one(world, is_v2=is_v2)

    world.pass_ms(9_500)
    before = producer.state().transaction_state
    world.pass_ms(1_500)

    assert (before, producer.state().transaction_state) == ("Ongoing", "CompleteAbort")
    assert ends(world) == (2, 2)
    assert read(world) == read(world, partition=1) == []


@pytest.mark.parametrize("how", ["crash", "restart"])
def test_the_time_that_passed_before_a_restart_counts(world: World, how: str) -> None:
    """Check 78, across failovers."""
    producer = an_open_one(world)
    for _ in range(3):
        world.pass_ms(3_000)
        getattr(world, how)()
    producer = producer.twin(world)

    before = producer.state().transaction_state
    world.pass_ms(2_000)

    assert (before, producer.state().transaction_state) == ("Ongoing", "CompleteAbort")


def test_a_timeout_counts_from_the_first_partition(world: World) -> None:
    """Check 78: not from InitProducerId, and not anew with each partition."""
    producer = Producer(world, timeout_ms=10_000).ready()
    world.pass_ms(60_000)
    for partition in range(3):
        producer.begin({partition: [b"a"]})
        world.pass_ms(3_000)

    assert producer.state().transaction_state == "Ongoing"
    world.pass_ms(2_000)
    assert producer.state().transaction_state == "CompleteAbort"


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_timeout_raises_the_epoch(world: World, is_v2: bool) -> None:
    """Check 79, flaw 10.13; the markers carry the raised epoch."""
    producer = an_open_one(world, is_v2=is_v2)
    world.pass_ms(11_000)

    state = producer.state()

    assert state.producer_epoch == producer.producer_epoch + 1
    assert [m[1:4] for m in markers(world)] == [
        (producer.producer_id, producer.producer_epoch + 1, False)
    ]


def test_v2_goes_on_after_its_transaction_timed_out(world: World) -> None:
    """Check 80."""
    producer = an_open_one(world, is_v2=True)
    world.pass_ms(11_000)

    produced = producer.send(0, b"late").error_code
    aborted = producer.end(False)

    assert produced == STALE
    assert (aborted.error_code, aborted.producer_epoch) == (OK, 1)
    producer.begin({0: [b"b"]}).commit()
    assert read(world) == [b"b"]


def test_v2_that_commits_too_late_is_told_that_it_cannot(world: World) -> None:
    """Flaw 10.18: 48, as Kafka 4.3; and nothing is committed."""
    producer = an_open_one(world, is_v2=True)
    world.pass_ms(11_000)

    assert producer.end(True).error_code == ErrorCode.INVALID_TXN_STATE
    assert read(world) == []


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (4, 90)])
@pytest.mark.parametrize("committed", [True, False])
def test_b19_v1_is_fenced_after_its_transaction_timed_out(
    world: World, version: int, code: int, committed: bool
) -> None:
    """Check 80, scenario B19: paused past its timeout, it resumes, produces and commits."""
    producer = an_open_one(world)
    world.pass_ms(11_000)

    assert producer.send(0, b"late").error_code == STALE
    assert producer.send(2, b"late").error_code == STALE
    assert producer.end(committed, version).error_code == code
    assert producer.add(0) == FENCED
    assert [read(world, partition=n) for n in range(3)] == [[], [], []]


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_producer_recovers_its_identity_after_a_timeout(world: World, is_v2: bool) -> None:
    """Appendix B 4: (pid, E) is answered with the epoch that the timeout gave it."""
    producer = an_open_one(world, is_v2=is_v2)
    world.pass_ms(11_000)

    reply = producer.init(supplied=producer.identity)

    assert (reply.error_code, reply.producer_epoch) == (OK, 1)
    producer.begin({0: [b"b"]}).commit()
    assert read(world) == [b"b"]


@pytest.mark.parametrize("is_v2", [False, True])
def test_b20_a_batch_that_was_held_past_the_timeout_opens_nothing(
    world: World, is_v2: bool
) -> None:
    """Scenario B20: to a partition that was never written to; a V1 producer has added it."""
    producer = Producer(world, is_v2=is_v2, timeout_ms=10_000).ready().begin({1: [b"a"]})
    if not is_v2:
        assert producer.add(0) == OK
    held = producer.a_produce({(TOPIC, 0): producer.batch(b"held")})
    world.pass_ms(11_000)

    reply = world.ask(held, 12 if is_v2 else 11)

    assert reply.responses[0].partition_responses[0].error_code == STALE
    markers_only = 0 if is_v2 else 1
    assert ends(world) == (markers_only, markers_only)
    assert ends(world, partition=1) == (2, 2)


def test_b24_an_addition_that_was_held_past_the_timeout_is_refused(world: World) -> None:
    """Scenario B24."""
    producer = an_open_one(world)
    world.pass_ms(11_000)

    assert producer.add(2) == FENCED
    assert producer.state().transaction_state == "CompleteAbort"


@pytest.mark.parametrize("is_v2", [False, True])
def test_m186_a_producer_that_pauses_for_less_than_its_timeout_commits(
    world: World, is_v2: bool
) -> None:
    """Scenario M186."""
    producer = an_open_one(world, is_v2=is_v2)
    world.pass_ms(9_000)

    producer.commit()

    assert read(world) == read(world, partition=1) == [b"a"]


@pytest.mark.parametrize("level", [0, 1])
def test_below_v2_a_late_v2_client_is_fenced(world: World, level: int) -> None:
    """Section 5.6: aborts that no client asked for follow the cluster's level."""
    world.set_transaction_version(level)
    producer = an_open_one(world, is_v2=True)
    world.pass_ms(11_000)

    assert producer.end(False).error_code == FENCED


def test_a_timeout_waits_until_there_is_room_for_it(world: World) -> None:
    """Check 81, section 6.4: what could not be written is tried again, and the id is not stuck."""
    producer = an_open_one(world)
    world.disk.full.add("__transaction_state")
    world.pass_ms(20_000)
    assert producer.state().transaction_state == "Ongoing"
    world.disk.full.clear()
    world.pass_ms(5_000)

    assert producer.state().transaction_state == "CompleteAbort"
    producer.ready().begin({0: [b"b"]}).commit()
    assert read(world) == [b"b"]


def test_a_timeout_and_a_commit_at_the_same_moment_decide_once(world: World) -> None:
    """Check 119: all moments around the deadline."""
    outcomes = set()
    for number, early_ms in enumerate(range(-6, 12)):
        producer = Producer(world, f"x{number}", timeout_ms=1_000).ready()
        producer.begin({0: [b"%d" % number]})
        started = producer.state().transaction_start_time_ms
        world.pass_ms(started + 1_000 - world.now_ms - early_ms)
        code = producer.end(True).error_code
        world.pass_ms(100)
        state = producer.state().transaction_state
        outcomes.add((code, state))

    assert outcomes == {(OK, "CompleteCommit"), (FENCED, "CompleteAbort")}


# --- expiry ---------------------------------------------------------------------------------


def test_an_id_that_nobody_uses_is_forgotten(start_world: StartWorld) -> None:
    """Check 82, flaw 10.24: its old producer is refused and never brought back."""
    world = start_world({"transactional.id.expiration.ms": "10000000"})
    producer = Producer(world).ready().begin({0: [b"a"]})
    producer.commit()
    world.pass_ms(15_000_000)

    codes = [producer.add(0), producer.end(True).error_code, producer.send(0, b"b").error_code]
    described = producer.state().error_code
    old = producer.identity
    reply = producer.init(supplied=old)

    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2 + [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ]
    assert described == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (reply.error_code, reply.producer_epoch) == (OK, 0)
    assert reply.producer_id != old[0]


def test_a_forgotten_id_stays_forgotten_after_a_crash(start_world: StartWorld) -> None:
    """Check 82: the tombstone is what the log says."""
    world = start_world({"transactional.id.expiration.ms": "10000000"})
    Producer(world).ready()
    world.pass_ms(15_000_000)
    assert describe(world, "x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    world.crash()

    assert describe(world, "x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_f93_no_identity_expires_under_an_open_transaction(start_world: StartWorld) -> None:
    """Scenario F93, check 23: a wall clock that jumps over both expiries ends nothing."""
    world = start_world(
        {"transactional.id.expiration.ms": "10000000", "producer.id.expiration.ms": "1000000"}
    )
    producer = Producer(world, timeout_ms=900_000).ready().begin({0: [b"a"]})
    world.broker.clock.wall_shift_ms = 30 * DAY_MS
    world.pass_ms(800_000)  # Past a sweep of producers, within the timeout.

    assert producer.send(0, b"b").error_code == OK
    producer.commit()

    assert read(world) == [b"a", b"b"]


def test_a10_an_idle_producer_of_a_partition_is_forgotten_and_may_come_back(
    start_world: StartWorld,
) -> None:
    """Check 23."""
    world = start_world({"producer.id.expiration.ms": "1000000"})
    producer = Producer(world).ready().begin({0: [b"a"]})
    producer.commit()
    assert [p.producer_id for p in describe_producers(world)] == [producer.producer_id]
    world.pass_ms(2_000_000)

    assert describe_producers(world) == []
    producer.begin({0: [b"b"]}).commit()
    assert read(world) == [b"a", b"b"]


def test_a_marker_counts_as_a_sign_of_life(start_world: StartWorld) -> None:
    """Flaw 10.9 A (KAFKA-9144): after a timeout the fence stays for its full time."""
    world = start_world({"producer.id.expiration.ms": "1000000"})
    producer = Producer(world, timeout_ms=900_000).ready().begin({0: [b"a"]})
    world.pass_ms(1_300_000)

    (known,) = describe_producers(world)

    assert known.producer_epoch == producer.producer_epoch + 1
    late = admin_marker(producer.producer_id, producer.producer_epoch, committed=True)
    assert late.send(world) == STALE
