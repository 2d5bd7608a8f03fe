"""A transaction that outlives its timeout is aborted with a raised epoch, by whatever clock."""

import pytest

from oncelog.core.txn.commands import (
    Overdue,
    ProducerIdNeeded,
    TimeOut,
    TransactionTimedOut,
)
from oncelog.core.txn.machine import TxnState
from oncelog.core.txn.shard import (
    OVERDUE_AGAIN_MS,
    OVERDUE_AT_ONCE,
)
from oncelog.core.types import Now
from tests.core.shard_properties import digest
from tests.core.txn.builders import (
    BUSY,
    FENCED,
    ID,
    OK,
    P0,
    P1,
    TIMEOUT_MS,
    V1,
    V2,
    WRONG,
    Coordinator,
    a_txn,
    abort,
    add,
    commit,
    identity,
    init,
    marked,
)

S = TxnState
E = 3
WHO, NEXT_WHO = identity(7, E), identity(7, E + 1)


def an_open_one(*, version: int = V1, level: int = 2, epoch: int = E) -> Coordinator:
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=epoch), level=level)
    coordinator.ask(add(identity(7, epoch), P0, version=version))
    return coordinator


def timed_out(*, version: int = V1, level: int = 2, epoch: int = E) -> Coordinator:
    coordinator = an_open_one(version=version, level=level, epoch=epoch)
    coordinator.advance(ms=TIMEOUT_MS)
    coordinator.time_out(coordinator.overdue()[0])
    return coordinator


def test_a_transaction_is_overdue_when_its_timeout_has_passed() -> None:
    """Check 78: from its first partition on, and not a millisecond earlier."""
    coordinator = an_open_one()
    start = coordinator.txn().started_at_ms
    assert start is not None

    coordinator.advance(ms=TIMEOUT_MS - 1)
    assert coordinator.overdue() == []
    coordinator.advance(ms=1)
    assert coordinator.overdue() == [Overdue(transactional_id=ID, started_at_ms=start)]


def test_later_partitions_give_no_more_time() -> None:
    coordinator = an_open_one()
    coordinator.advance(ms=TIMEOUT_MS - 1)
    coordinator.ask(add(WHO, P1))

    coordinator.advance(ms=1)

    assert len(coordinator.overdue()) == 1


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("version", [V1, V2])
def test_the_abort_raises_the_epoch_and_the_markers_carry_it(version: int, level: int) -> None:
    """Check 79; flaw 10.13 (KAFKA-6119). The cluster's level says how the markers are checked."""
    coordinator = timed_out(version=version, level=level)

    prepared = coordinator.txn()
    assert (prepared.state, prepared.producer_epoch) == (S.PREPARE_ABORT, E + 1)
    (order,) = coordinator.marker_orders()
    assert (order.txn, order.committed) == (prepared, False)
    assert order.txn.client_version == level
    assert coordinator.notes == [TransactionTimedOut(transactional_id=ID, after_ms=TIMEOUT_MS)]


@pytest.mark.parametrize("version", [V1, V2])
def test_what_the_producer_still_sends_is_refused(version: int) -> None:
    """Flaw 10.13: it may not add to, or commit, what was aborted."""
    coordinator = timed_out(version=version)
    coordinator.mark()

    assert coordinator.code(add(WHO, P0, version=version)) == FENCED
    assert coordinator.code(commit(WHO, version=version)) == (FENCED if version == V1 else WRONG)
    assert coordinator.state() is S.COMPLETE_ABORT


def test_a_v2_client_goes_on_with_an_abort() -> None:
    """Check 80: 51 while the markers are under way, then 0 and the epoch that was raised."""
    coordinator = timed_out(version=V2)

    assert coordinator.code(abort(WHO, version=V2)) == BUSY
    coordinator.mark()
    assert coordinator.identified(abort(WHO, version=V2)) == NEXT_WHO
    assert coordinator.code(add(NEXT_WHO, P0, version=V2)) == OK


def test_an_old_client_is_fenced() -> None:
    """Check 80."""
    coordinator = timed_out(version=V1)
    assert coordinator.code(abort(WHO)) == FENCED
    coordinator.mark()

    assert coordinator.code(abort(WHO)) == FENCED


def test_an_old_client_that_supplies_its_identity_goes_on() -> None:
    """Appendix B, 4: InitProducerId with (pid, E) is answered with E+1 after a timeout too."""
    coordinator = timed_out(version=V1)
    coordinator.mark()

    assert coordinator.identified(init(WHO)) == NEXT_WHO
    assert coordinator.code(add(NEXT_WHO, P0)) == OK


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_that_comes_first_stands(committed: bool) -> None:
    """Check 119: the sweeper finds that somebody else has acted."""
    coordinator = an_open_one()
    coordinator.advance(ms=TIMEOUT_MS)
    coordinator.ask(commit(WHO) if committed else abort(WHO))
    size = len(coordinator.log)

    coordinator.time_out(coordinator.overdue()[0])

    assert len(coordinator.log) == size


def test_the_timeout_of_one_transaction_does_not_hit_the_next() -> None:
    """An old client's next one has the same epoch, and may begin in the same millisecond."""
    coordinator = an_open_one()
    coordinator.advance(ms=TIMEOUT_MS)
    coordinator.ask(commit(WHO))
    coordinator.mark()
    now = coordinator.now
    coordinator.now = Now(now.wall_ms - TIMEOUT_MS, now.monotonic_ms)  # an hour is given back
    coordinator.ask(add(WHO, P0))

    coordinator.time_out(coordinator.overdue()[0])

    assert coordinator.state() is S.ONGOING
    assert coordinator.shard.next_deadline_ms() == now.monotonic_ms + TIMEOUT_MS


def test_a_timeout_that_could_not_be_carried_out_comes_again() -> None:
    """Section 6.4: errors are retried. The disk may be full, or no producer id to be had."""
    coordinator = an_open_one(epoch=32766)
    coordinator.advance(ms=TIMEOUT_MS)
    (overdue,) = coordinator.overdue()
    command = TimeOut(
        transactional_id=overdue.transactional_id, started_at_ms=overdue.started_at_ms
    )
    with pytest.raises(ProducerIdNeeded):
        coordinator.shard.decide(command, coordinator.now)

    coordinator.advance(ms=OVERDUE_AGAIN_MS)

    assert coordinator.overdue() == [overdue, overdue]


def test_a_timeout_at_the_last_epoch_and_a_late_abort() -> None:
    """Flaw 10.14 d: a new producer id is reserved, and the abort of a V2 client gets it."""
    coordinator = timed_out(version=V2, epoch=32766)
    (order,) = coordinator.marker_orders()
    assert (order.txn.producer_id, order.txn.producer_epoch) == (7, 32767)
    coordinator.mark()

    assert coordinator.identified(abort(identity(7, 32766), version=V2)) == identity(1000, 0)
    assert coordinator.code(add(identity(1000, 0), P0, version=V2)) == OK


def test_a_timeout_at_the_last_epoch_below_level_2() -> None:
    """Section 3.3: the abort is at 32767, and the next start gets a new producer id."""
    coordinator = timed_out(level=1, epoch=32766)
    coordinator.mark()

    assert (coordinator.txn().producer_id, coordinator.txn().producer_epoch) == (7, 32767)
    assert coordinator.identified(init()) == identity(1000, 0)


# --- clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_jump_of_the_wall_clock_changes_no_running_timeout(jump_ms: int) -> None:
    coordinator = an_open_one()
    now = coordinator.now
    coordinator.now = Now(now.wall_ms + jump_ms, now.monotonic_ms)

    coordinator.advance(ms=TIMEOUT_MS - 1)
    assert coordinator.overdue() == []
    coordinator.advance(ms=1)
    assert len(coordinator.overdue()) == 1


@pytest.mark.parametrize(
    ("passed_ms", "left_ms"),
    [(0, TIMEOUT_MS), (45_000, 15_000), (TIMEOUT_MS, 0), (10**9, 0), (-5_000, TIMEOUT_MS)],
)
def test_the_time_that_has_passed_counts_after_a_restart(passed_ms: int, left_ms: int) -> None:
    """Check 78, across failovers; a wall clock that went back adds nothing."""
    coordinator = an_open_one()
    coordinator.now = Now(coordinator.now.wall_ms + passed_ms, monotonic_ms=77)

    coordinator.resumed()

    assert coordinator.shard.next_deadline_ms() == 77 + left_ms


# --- many ---------------------------------------------------------------------------------------


def test_open_transactions_are_named_in_the_order_of_their_names() -> None:
    """One seed, one history: neither a heap's nor a set's order gets out."""
    names = [f"t{number}" for number in range(20)]
    coordinator = Coordinator(*(a_txn(name=name) for name in reversed(names)))

    coordinator.advance(ms=TIMEOUT_MS)

    assert [effect.transactional_id for effect in coordinator.overdue()] == sorted(names)


def test_a_thousand_abandoned_transactions_are_named_at_once_and_the_rest_right_after() -> None:
    count = OVERDUE_AT_ONCE + 1
    coordinator = Coordinator(*(a_txn(name=f"t{number:04}") for number in range(count)))

    coordinator.advance(ms=TIMEOUT_MS)

    assert len({effect.transactional_id for effect in coordinator.overdue()}) == count


def test_what_has_ended_is_not_waited_for() -> None:
    coordinator = an_open_one()
    coordinator.ask(commit(WHO))

    assert coordinator.shard.next_deadline_ms() is None


def test_short_transactions_with_long_timeouts_leave_nothing_behind() -> None:
    """A deadline for each of them, kept for 15 minutes, would be a million at 1000 a second."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E, timeout_ms=900_000))
    shard = coordinator.shard
    for _ in range(5 * OVERDUE_AT_ONCE):
        for command in (add(WHO, P0), commit(WHO)):
            for record in shard.decide(command, coordinator.now).records:
                shard.apply(record)
        for record in shard.decide(marked(coordinator.txn()), coordinator.now).records:
            shard.apply(record)

    assert len(repr(digest(shard))) < 50 * OVERDUE_AT_ONCE
