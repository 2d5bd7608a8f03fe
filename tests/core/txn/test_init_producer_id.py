"""InitProducerId: who a producer is, who it replaces, and what a repeat of it gets."""

import pytest

from oncelog.core.txn.commands import (
    Busy,
    Completed,
    Identity,
    InitProducerId,
    ProducerIdNeeded,
    TransactionFenced,
    TxnConfig,
    WriteMarkers,
)
from oncelog.core.txn.machine import PREPARED, TxnState
from oncelog.core.txn.records import Txn
from oncelog.core.types import Now
from tests.core.txn.builders import (
    BUSY,
    FENCED,
    ID,
    INVALID,
    OK,
    P0,
    TIMEOUT,
    V1,
    V2,
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
IDLE_STATES = [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]


# --- the first time -----------------------------------------------------------------------------


def test_a_new_id_begins_at_epoch_0_and_keeps_its_producer_id() -> None:
    """Check 28."""
    coordinator = Coordinator()

    assert coordinator.identified(init()) == identity(1000, 0)
    assert coordinator.identified(init()) == identity(1000, 1)


def test_the_identity_is_in_the_log_before_it_is_answered() -> None:
    """Section 3.3: an Empty record without partitions and without a start."""
    coordinator = Coordinator()
    coordinator.ask(init(timeout_ms=1234))

    (written,) = coordinator.written()

    assert written.state is S.EMPTY
    assert (written.timeout_ms, written.partitions, written.started_at_ms) == (1234, (), None)


def test_a_fresh_producer_id_is_asked_for_and_not_made_up() -> None:
    """Section 3.2, 9: where none is to be had the host answers 14, and nothing has changed."""
    coordinator = Coordinator()

    with pytest.raises(ProducerIdNeeded):
        coordinator.shard.decide(init(), coordinator.now)

    assert len(coordinator.shard) == 0


def test_producer_ids_are_never_given_twice() -> None:
    """Check 27, as far as shards show it: two of them, each restarted, and one source of ids."""
    source = iter(range(100))
    shards = [Coordinator(), Coordinator()]
    given = []
    for number in range(20):
        shard = shards[number % 2]
        command = InitProducerId(
            transactional_id=f"id-{number}",
            timeout_ms=1,
            supplied=None,
            fresh_producer_id=next(source),
        )
        given.append(shard.identified(command).producer_id)
        shard.resumed()

    assert len(set(given)) == len(given)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1, -(2**31)])
def test_a_timeout_outside_the_limits_is_refused_and_leaves_nothing(timeout_ms: int) -> None:
    """Check 31."""
    coordinator = Coordinator()

    assert coordinator.code(init(timeout_ms=timeout_ms)) == TIMEOUT
    assert len(coordinator.shard) == 0


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_the_limits_themselves_are_timeouts(timeout_ms: int) -> None:
    assert Coordinator().code(init(timeout_ms=timeout_ms)) == OK


def test_the_highest_timeout_is_a_setting() -> None:
    coordinator = Coordinator(config=TxnConfig(transaction_max_timeout_ms=10))

    assert coordinator.code(init(timeout_ms=10)) == OK
    assert coordinator.code(init(timeout_ms=11)) == TIMEOUT


@pytest.mark.parametrize("name", ["", "x" * 32_768])
def test_an_id_that_no_record_can_hold_is_refused(name: str) -> None:
    """Check 29; an id of 32768 bytes fits into a flexible request and into no key."""
    assert Coordinator().code(init(name=name)) == INVALID


# --- the table of section 3.3 -------------------------------------------------------------------


@pytest.mark.parametrize("supplied", [None, identity(7, 3), identity(7, 32766), identity(99, 0)])
def test_an_unknown_id_gets_a_new_identity_whatever_is_supplied(supplied: Identity | None) -> None:
    """Section 3.3, row 1. Row 2 cannot occur: what was not written is not in memory either."""
    assert Coordinator().identified(init(supplied)) == identity(1000, 0)


@pytest.mark.parametrize("state", IDLE_STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("last_epoch", [None, E - 1])
def test_idle_and_nothing_supplied(state: TxnState, last_epoch: int | None) -> None:
    """Section 3.3: E+1, and whoever had E may not repeat anything."""
    coordinator = Coordinator(a_txn(state=state, epoch=E, last_epoch=last_epoch))

    assert coordinator.identified(init()) == identity(7, E + 1)
    assert coordinator.txn().last_epoch is None
    assert coordinator.code(init(identity(7, E))) == FENCED


@pytest.mark.parametrize("state", IDLE_STATES, ids=lambda state: state.name)
def test_idle_and_the_current_identity_supplied(state: TxnState) -> None:
    """Check 32; KIP-360: E+1, and E+1 again for the repeat."""
    coordinator = Coordinator(a_txn(state=state, epoch=E))

    assert coordinator.identified(init(identity(7, E))) == identity(7, E + 1)
    assert coordinator.identified(init(identity(7, E))) == identity(7, E + 1)
    assert coordinator.state() is S.EMPTY


@pytest.mark.parametrize("state", IDLE_STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("epoch", [0, E - 2, E + 1, 32766, 32767])
def test_idle_and_an_epoch_that_is_neither_current_nor_last(state: TxnState, epoch: int) -> None:
    """Check 33."""
    coordinator = Coordinator(a_txn(state=state, epoch=E, last_epoch=E - 1))

    assert coordinator.code(init(identity(7, epoch))) == FENCED


@pytest.mark.parametrize("state", [*IDLE_STATES, S.ONGOING], ids=lambda state: state.name)
@pytest.mark.parametrize("epoch", [E - 1, E, 32766])
def test_a_foreign_producer_id_is_fenced_and_does_no_harm(state: TxnState, epoch: int) -> None:
    """Check 34; flaw 10.20."""
    coordinator = Coordinator(a_txn(state=state, epoch=E, last_epoch=E - 1))

    assert coordinator.code(init(identity(99, epoch))) == FENCED
    assert coordinator.state() is state


@pytest.mark.parametrize("state", IDLE_STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("epoch", [32766, 32767])
def test_exhausted_and_nothing_supplied(state: TxnState, epoch: int) -> None:
    """Check 38: a new producer id; who had the old one may not take it."""
    coordinator = Coordinator(a_txn(state=state, epoch=epoch))

    assert coordinator.identified(init()) == identity(1000, 0)
    assert coordinator.txn().previous_producer_id == 7
    assert coordinator.code(init(identity(7, epoch))) == FENCED


@pytest.mark.parametrize("state", IDLE_STATES, ids=lambda state: state.name)
def test_exhausted_and_the_current_identity_supplied(state: TxnState) -> None:
    """Checks 38, 39: the repeat with the old identity gets the same new one."""
    coordinator = Coordinator(a_txn(state=state, epoch=32766))

    assert coordinator.identified(init(identity(7, 32766))) == identity(1000, 0)
    assert coordinator.identified(init(identity(7, 32766))) == identity(1000, 0)
    assert coordinator.code(init(identity(7, 32765))) == FENCED


@pytest.mark.parametrize("epoch", [0, 32765, 32767])
def test_exhausted_and_another_epoch_supplied(epoch: int) -> None:
    """Section 3.3: Kafka fails with -1 here (10.21); the client is simply not the current one."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=32766))

    assert coordinator.code(init(identity(7, epoch))) == FENCED


def test_a_repeat_at_the_edge_of_exhaustion_is_recognised() -> None:
    """Flaw 10.21: (7, 32765) leads to (7, 32766), and does so again."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=32765))

    assert coordinator.identified(init(identity(7, 32765))) == identity(7, 32766)
    assert coordinator.identified(init(identity(7, 32765))) == identity(7, 32766)


@pytest.mark.parametrize("supplied", [None, identity(7, E), identity(7, 1), identity(99, 5)])
@pytest.mark.parametrize("state", sorted(PREPARED, key=str), ids=lambda state: state.name)
def test_b28_while_markers_are_under_way_everybody_waits(
    state: TxnState, supplied: Identity | None
) -> None:
    """Check 37; scenario 28: the commit stands. The pending check comes before the producer id."""
    coordinator = Coordinator(a_txn(state=state, epoch=E))

    assert coordinator.code(init(supplied)) == BUSY
    assert coordinator.state() is state


# --- fencing an open transaction ----------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_open_transaction_is_aborted_first(level: int) -> None:
    """Check 35; scenario 18: two epochs above the fenced one."""
    coordinator = Coordinator(a_txn(epoch=E), level=level)

    assert coordinator.ask(init()) == Busy()

    prepared = coordinator.txn()
    assert (prepared.state, prepared.producer_epoch) == (S.PREPARE_ABORT, E + 1)
    assert coordinator.effects == [WriteMarkers(txn=prepared, committed=False)]
    assert coordinator.notes == [TransactionFenced(transactional_id=ID)]
    assert coordinator.code(init()) == BUSY
    coordinator.mark()
    assert coordinator.effects[-1] == Completed(transactional_id=ID)
    assert coordinator.identified(init()) == identity(7, E + 2)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("version", [V1, V2])
def test_the_fenced_producer_is_refused_at_every_moment(level: int, version: int) -> None:
    """Check 36: whatever it asks for, before and after the new instance has its identity."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=version), level=level)
    old = identity(7, E)

    def asks() -> list[int]:
        return [
            coordinator.code(command)
            for command in (
                commit(old, version=version),
                abort(old, version=version),
                add(old, P0, version=version),
                init(old),
            )
        ]

    coordinator.ask(init())
    if version == V1:
        assert asks() == [FENCED, FENCED, BUSY, BUSY]  # 90 for what is told apart by its epoch
    else:
        assert asks() == [BUSY, BUSY, BUSY, BUSY]
    coordinator.mark()
    assert asks() == [FENCED, FENCED, FENCED, FENCED]
    coordinator.ask(init())
    assert asks() == [FENCED, FENCED, FENCED, FENCED]
    assert coordinator.state() is S.EMPTY


def test_the_victim_of_a_newer_instance_does_not_get_the_raised_epoch() -> None:
    """Flaw 10.19, by EndTxn and by InitProducerId, also when a crash comes between."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    coordinator.ask(init())
    coordinator.mark()
    coordinator.resumed()

    assert coordinator.code(abort(identity(7, E), version=V2)) == FENCED
    assert coordinator.code(init(identity(7, E))) == FENCED
    assert coordinator.identified(init()) == identity(7, E + 2)


@pytest.mark.parametrize("epoch", [0, E - 1])
def test_a_stale_producer_does_not_abort_the_current_one(epoch: int) -> None:
    """Flaw 10.20: also with the epoch before the last bump, which began this transaction."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E, last_epoch=E - 1))
    coordinator.ask(add(identity(7, E), P0))

    assert coordinator.code(init(identity(7, epoch))) == FENCED
    assert coordinator.state() is S.ONGOING


def test_a_producer_that_ends_its_own_transaction_this_way_goes_on() -> None:
    """Appendix B, 4: with its own (pid, E) supplied the answer is E+1."""
    coordinator = Coordinator(a_txn(epoch=E))

    assert coordinator.ask(init(identity(7, E))) == Busy()
    coordinator.mark()
    assert coordinator.identified(init(identity(7, E))) == identity(7, E + 1)
    assert coordinator.code(add(identity(7, E + 1), P0)) == OK


def test_a_new_timeout_counts_even_where_the_identity_was_given_before() -> None:
    """Section 3.3: the new timeout is stored with the answer."""
    coordinator = Coordinator(a_txn(state=S.COMPLETE_ABORT, epoch=E, last_epoch=E - 1))

    assert coordinator.identified(init(identity(7, E - 1), timeout_ms=5)) == identity(7, E)
    assert coordinator.txn().timeout_ms == 5


def test_whoever_gets_its_identity_again_begins_anew() -> None:
    """Section 3.3: Empty, as after every InitProducerId; an end of the epoch before is too late."""
    coordinator = Coordinator(a_txn(state=S.COMPLETE_ABORT, epoch=E, last_epoch=E - 1))

    assert coordinator.identified(init(identity(7, E - 1))) == identity(7, E)

    assert coordinator.state() is S.EMPTY
    assert coordinator.txn().started_at_ms is None
    assert coordinator.code(abort(identity(7, E - 1), version=V2)) == FENCED
    assert coordinator.identified(init(identity(7, E - 1))) == identity(7, E)


def test_a_late_completion_is_recognised_after_the_identity_was_given_again() -> None:
    """Flaw 10.15: the epoch is the same, and the clock may have gone back."""
    aborted = a_txn(state=S.PREPARE_ABORT, epoch=E, last_epoch=E - 1)
    coordinator = Coordinator(aborted)
    coordinator.mark()
    who = coordinator.identified(init(identity(7, E - 1)))
    now = coordinator.now
    coordinator.now = Now(now.wall_ms - 60_000, now.monotonic_ms)
    coordinator.ask(add(who, P0))
    coordinator.ask(commit(who))

    coordinator.ask(marked(aborted))

    assert coordinator.state() is S.PREPARE_COMMIT


@pytest.mark.parametrize(
    ("level", "expected"),
    [(2, identity(1000, 1)), (1, identity(1000, 0)), (0, identity(1000, 0))],
)
def test_fencing_at_the_last_epoch(level: int, expected: Identity) -> None:
    """Flaw 10.14 b; section 3.3: markers at 32767, no overflow, a new producer id."""
    coordinator = Coordinator(a_txn(epoch=32766), level=level)

    assert coordinator.ask(init()) == Busy()
    (order,) = coordinator.marker_orders()
    assert (order.txn.producer_id, order.txn.producer_epoch) == (7, 32767)
    coordinator.mark()
    assert coordinator.identified(init()) == expected


def test_nobody_holds_the_epoch_that_only_fences() -> None:
    """32767 is never given out, so whoever sends it has made it up; nothing overflows."""
    coordinator = Coordinator(a_txn(state=S.COMPLETE_ABORT, epoch=32767), level=1)
    liar = identity(7, 32767)

    assert coordinator.code(add(liar, P0)) == FENCED
    assert coordinator.code(abort(liar, version=V2)) == FENCED
    assert coordinator.code(commit(liar)) == FENCED


def test_an_append_that_fails_raises_no_epoch() -> None:
    """Flaw 10.14 a; check 81: what was not applied has not happened, however often it is tried."""
    coordinator = Coordinator(a_txn(epoch=E))

    for _ in range(100):
        decision = coordinator.shard.decide(init(), coordinator.now)
        (record,) = decision.records
        assert isinstance(record, Txn)
        assert record.producer_epoch == E + 1

    assert coordinator.txn() == a_txn(epoch=E)
    assert coordinator.started() == identity(7, E + 2)


def test_a_first_append_that_fails_leaves_nothing_behind() -> None:
    """Check 81; flaw 10.25, third part: there is no half-made id with epoch -1."""
    coordinator = Coordinator()
    command = InitProducerId(transactional_id=ID, timeout_ms=1, supplied=None, fresh_producer_id=1)
    coordinator.shard.decide(command, coordinator.now)

    assert coordinator.shard.get(ID) is None
    assert coordinator.expire() == 0
    assert coordinator.identified(init()) == identity(1000, 0)


# --- several at once ----------------------------------------------------------------------------


def test_two_calls_for_one_id_never_get_the_same_epoch() -> None:
    """Check 118: both begin while a transaction is open, and both come again."""
    coordinator = Coordinator(a_txn(epoch=E))

    assert coordinator.code(init()) == BUSY
    assert coordinator.code(init()) == BUSY
    coordinator.mark()
    first, second = coordinator.identified(init()), coordinator.identified(init())

    assert (first, second) == (identity(7, E + 2), identity(7, E + 3))


def test_a_hundred_starts_in_a_row_leave_nothing_open() -> None:
    """Scenario 32: each producer opens a transaction and is gone."""
    coordinator = Coordinator()
    epochs = []
    for _ in range(100):
        who = coordinator.started()
        epochs.append(who.producer_epoch)
        coordinator.ask(add(who, P0))

    assert epochs == list(range(0, 200, 2))
    assert coordinator.state() is S.ONGOING
    coordinator.advance(ms=60_000)
    coordinator.time_out(coordinator.overdue()[-1])
    coordinator.mark()
    assert coordinator.state() is S.COMPLETE_ABORT
    assert coordinator.shard.next_deadline_ms() is None


def test_a11_two_epoch_raises_past_the_last_one() -> None:
    """Scenario 11: a new producer id, and the old identity is fenced."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=32765))

    got = [coordinator.identified(init()) for _ in range(3)]

    assert got == [identity(7, 32766), identity(1000, 0), identity(1000, 1)]
    assert coordinator.code(commit(identity(7, 32766))) == 49


def test_the_time_of_the_last_change_is_kept() -> None:
    coordinator = Coordinator()
    coordinator.ask(init())
    coordinator.now = Now(coordinator.now.wall_ms + 77, coordinator.now.monotonic_ms)

    coordinator.ask(init())

    assert coordinator.txn().updated_at_ms == coordinator.now.wall_ms
