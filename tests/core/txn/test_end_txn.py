"""EndTxn: the outcome is recorded once, and neither a repeat nor a straggler changes it."""

from itertools import permutations

import pytest

from oncelog.core.txn.commands import (
    Command,
    Completed,
    TimeOut,
    WriteMarkers,
)
from oncelog.core.txn.machine import PREPARED, TxnState
from oncelog.core.txn.records import Txn
from tests.core.txn.builders import (
    BUSY,
    FENCED,
    ID,
    INVALID,
    MAPPING,
    OFFSETS,
    OK,
    P0,
    P1,
    V1,
    V2,
    WRONG,
    Coordinator,
    a_txn,
    abort,
    add,
    commit,
    end,
    identity,
    init,
    marked,
)

S = TxnState
E = 3
WHO, NEXT_WHO = identity(7, E), identity(7, E + 1)


# --- two phases ---------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [V1, V2])
def test_the_outcome_is_recorded_before_any_marker(committed: bool, version: int) -> None:
    """Section 5.6: the PREPARE record is the commit point; markers are its effect."""
    coordinator = Coordinator(a_txn(epoch=E, partitions=(OFFSETS, P0, P1)))

    decision = coordinator.shard.decide(
        end(WHO, committed=committed, version=version), coordinator.now
    )

    (prepared,) = decision.records
    assert isinstance(prepared, Txn)
    assert prepared.state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
    assert decision.effects == (WriteMarkers(txn=prepared, committed=committed),)


@pytest.mark.parametrize("version", [V1, V2])
def test_the_markers_go_to_every_partition_in_order(version: int) -> None:
    """Section 6.2: the PREPARE record has the full set, the COMPLETE record an empty one."""
    coordinator = Coordinator(a_txn(epoch=E, partitions=(OFFSETS, P0, P1)))

    coordinator.ask(commit(WHO, version=version))
    (order,) = coordinator.marker_orders()
    assert order.txn.topic_partitions() == (OFFSETS, P0, P1)
    coordinator.mark()

    assert coordinator.state() is S.COMPLETE_COMMIT
    assert coordinator.txn().partitions == ()
    assert coordinator.effects[-1] == Completed(transactional_id=ID)


def test_the_start_is_kept_when_the_transaction_is_over() -> None:
    """Section 6.2: it is not reset by CompleteX."""
    coordinator = Coordinator(a_txn(epoch=E))
    start = coordinator.txn().started_at_ms
    coordinator.ask(commit(WHO))
    coordinator.mark()

    assert coordinator.txn().started_at_ms == start


def test_an_old_clients_markers_have_its_epoch_and_no_strict_check() -> None:
    """Appendix A, TV0: 7/0 throughout. Strict markers need a new epoch, which v4 does not bring."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))

    coordinator.ask(commit(WHO, version=V1))

    (order,) = coordinator.marker_orders()
    assert (order.txn.producer_epoch, order.txn.client_version) == (E, V1)


# --- repeats ------------------------------------------------------------------------------------


def test_an_old_clients_commit_repeated_succeeds() -> None:
    """Check 63."""
    coordinator = Coordinator(a_txn(epoch=E))

    codes = [coordinator.code(commit(WHO)), coordinator.code(commit(WHO))]
    coordinator.mark()
    codes.append(coordinator.code(commit(WHO)))

    assert codes == [OK, BUSY, OK]
    assert coordinator.states_written() == [S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_contradiction_is_refused_when_the_outcome_stands(committed: bool) -> None:
    """Check 64, and the reverse."""
    coordinator = Coordinator(a_txn(epoch=E))
    coordinator.ask(end(WHO, committed=committed))

    assert coordinator.code(end(WHO, committed=not committed)) == BUSY
    coordinator.mark()
    assert coordinator.code(end(WHO, committed=not committed)) == WRONG


def test_nothing_to_end_for_an_old_client() -> None:
    """Check 62."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))

    assert coordinator.code(commit(WHO)) == WRONG
    assert coordinator.code(abort(WHO)) == WRONG


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_every_end_of_a_v2_client_raises_the_epoch(committed: bool) -> None:
    """Checks 65, 66: the repeat gets the same, after a crash too (lastEpoch is in the log)."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    command = end(WHO, committed=committed, version=V2)

    assert coordinator.identified(command) == NEXT_WHO
    (order,) = coordinator.marker_orders()
    assert (order.txn.producer_epoch, order.txn.client_version) == (E + 1, V2)
    coordinator.mark()
    assert coordinator.identified(command) == NEXT_WHO
    coordinator.resumed()
    assert coordinator.identified(command) == NEXT_WHO


def test_the_identity_of_the_answer_begins_the_next_transaction() -> None:
    """Appendix A, TV2, steps 4-7."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    following = coordinator.identified(commit(WHO, version=V2))

    assert coordinator.code(add(following, P0, version=V2)) == BUSY
    coordinator.mark()
    assert coordinator.code(add(following, P0, version=V2)) == OK
    assert coordinator.code(add(WHO, P0, version=V2)) == FENCED


def test_nothing_to_abort_succeeds_for_a_v2_client() -> None:
    """Check 67: from Empty, and again from there; without partitions, the start is the abort."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))

    assert coordinator.identified(abort(WHO, version=V2)) == NEXT_WHO
    assert coordinator.txn().partitions == ()
    assert coordinator.txn().started_at_ms == coordinator.now.wall_ms
    coordinator.mark()
    assert coordinator.identified(abort(WHO, version=V2)) == NEXT_WHO
    assert coordinator.identified(abort(NEXT_WHO, version=V2)) == identity(7, E + 2)


def test_nothing_to_commit_is_refused_for_a_v2_client() -> None:
    """Check 68."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))

    assert coordinator.code(commit(WHO, version=V2)) == WRONG


def test_an_abort_after_the_commit_is_refused() -> None:
    """Check 70."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    coordinator.ask(commit(WHO, version=V2))
    coordinator.mark()

    assert coordinator.code(abort(WHO, version=V2)) == WRONG


@pytest.mark.parametrize("version", [V1, V2])
def test_unknown_ids_and_foreign_producers_are_refused(version: int) -> None:
    """Check 72."""
    coordinator = Coordinator(a_txn(epoch=E))

    assert coordinator.code(commit(WHO, name="other", version=version)) == MAPPING
    assert coordinator.code(commit(identity(8, E), version=version)) == MAPPING
    assert coordinator.code(commit(WHO, name="", version=version)) == INVALID
    assert coordinator.state() is S.ONGOING


# --- stragglers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [True, False], ids=["late commit", "late abort"])
def test_a_late_end_does_not_decide_the_next_transaction(late: bool) -> None:
    """Check 69; flaw 10.2 for V2; scenario 22: the next one is open, with all it has."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    coordinator.ask(end(WHO, committed=late, version=V2))
    coordinator.mark()
    coordinator.ask(add(NEXT_WHO, P0, version=V2))

    assert coordinator.code(end(WHO, committed=late, version=V2)) == FENCED
    assert coordinator.code(end(WHO, committed=not late, version=V2)) == FENCED

    assert coordinator.state() is S.ONGOING
    assert coordinator.code(end(NEXT_WHO, committed=not late, version=V2)) == OK


def test_a_late_end_does_not_tear_a_transaction() -> None:
    """Flaw 10.3: it comes between two partitions of the next one."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    coordinator.ask(commit(WHO, version=V2))
    coordinator.mark()
    coordinator.ask(add(NEXT_WHO, P0, version=V2))

    assert coordinator.code(commit(WHO, version=V2)) == FENCED
    coordinator.ask(add(NEXT_WHO, P1, version=V2))

    assert coordinator.state() is S.ONGOING
    assert coordinator.txn().topic_partitions() == (P0, P1)


def test_a_late_end_of_two_transactions_ago_is_fenced() -> None:
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    coordinator.ask(commit(WHO, version=V2))
    coordinator.mark()
    coordinator.ask(add(NEXT_WHO, P0, version=V2))
    coordinator.ask(abort(NEXT_WHO, version=V2))
    coordinator.mark()

    assert coordinator.code(commit(WHO, version=V2)) == FENCED
    assert coordinator.code(abort(WHO, version=V2)) == FENCED


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_replaced_producer_does_not_learn_its_successors_identity(committed: bool) -> None:
    """The successor speaks V1 and has not raised the epoch: E-1 is nobody's repeat then."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))
    successor = coordinator.started()
    coordinator.ask(add(successor, P0))
    coordinator.ask(end(successor, committed=committed))
    coordinator.mark()

    assert coordinator.code(commit(WHO, version=V2)) == FENCED
    assert coordinator.code(abort(WHO, version=V2)) == FENCED


def test_an_end_at_the_epoch_before_a_start_is_no_repeat() -> None:
    """The epoch was raised by InitProducerId, and a V1 commit has followed: whose would it be?"""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))
    coordinator.ask(init(WHO))
    coordinator.ask(add(NEXT_WHO, P0))
    coordinator.ask(commit(NEXT_WHO))
    coordinator.mark()

    assert coordinator.code(commit(WHO, version=V2)) == FENCED
    assert coordinator.code(init(WHO)) == FENCED


def test_a_client_that_is_ahead_of_its_markers_does_not_fence_itself() -> None:
    """Flaw 10.17 a (KAFKA-18464): 51 while CompleteCommit is pending, then one more bump."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    following = coordinator.identified(commit(WHO, version=V2))

    assert coordinator.code(abort(following, version=V2)) == BUSY
    coordinator.mark()
    assert coordinator.identified(abort(following, version=V2)) == identity(7, E + 2)


def test_a_client_may_move_from_v1_to_v2() -> None:
    """KAFKA-18227: it ends its last transaction as before and gets a fresh epoch."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V1))
    coordinator.ask(commit(WHO, version=V1))
    coordinator.mark()

    assert coordinator.identified(init(WHO)) == NEXT_WHO
    assert coordinator.code(add(NEXT_WHO, P0, version=V2)) == OK
    assert coordinator.identified(commit(NEXT_WHO, version=V2)) == identity(7, E + 2)


# --- the last epoch -----------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_the_last_epoch_leads_to_a_new_producer_id(committed: bool) -> None:
    """Check 71; flaw 10.14 c: markers have (old, 32767), the answer and its repeat (new, 0)."""
    last = identity(7, 32766)
    coordinator = Coordinator(a_txn(epoch=32766, client_version=V2))
    command = end(last, committed=committed, version=V2)

    assert coordinator.identified(command) == identity(1000, 0)
    (order,) = coordinator.marker_orders()
    assert (order.txn.producer_id, order.txn.producer_epoch) == (7, 32767)
    coordinator.mark()

    assert coordinator.identified(command) == identity(1000, 0)
    assert coordinator.txn().previous_producer_id == 7
    assert coordinator.code(end(last, committed=not committed, version=V2)) == WRONG


def test_the_repeat_at_the_last_epoch_ends_with_the_next_transaction() -> None:
    """Appendix A: (7, 32766) is answered with (1000, 0) until then, and is unknown afterwards."""
    last, first = identity(7, 32766), identity(1000, 0)
    coordinator = Coordinator(a_txn(epoch=32766, client_version=V2))
    coordinator.ask(commit(last, version=V2))
    coordinator.mark()
    coordinator.ask(add(first, P0, version=V2))

    assert coordinator.code(commit(last, version=V2)) == MAPPING
    assert coordinator.state() is S.ONGOING


def test_a_rotation_by_init_producer_id_is_not_taken_for_an_end() -> None:
    """Section 5.6: an overflow retry needs CompleteX."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=32766))
    coordinator.ask(init(identity(7, 32766)))

    assert coordinator.code(abort(identity(7, 32766), version=V2)) == MAPPING


# --- races --------------------------------------------------------------------------------------


def test_a_commit_after_the_timeout_is_refused() -> None:
    """Flaw 10.18: 48, as Kafka 4.3 answers; an abort is the way on (check 80)."""
    coordinator = Coordinator(
        a_txn(state=S.COMPLETE_ABORT, epoch=E + 1, last_epoch=E, client_version=V2)
    )

    assert coordinator.code(commit(WHO, version=V2)) == WRONG
    assert coordinator.identified(abort(WHO, version=V2)) == NEXT_WHO


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_commit_an_abort_and_the_timeout_leave_one_outcome(
    order: tuple[int, ...], version: int
) -> None:
    """Check 119: exactly one of PrepareCommit and PrepareAbort is ever written."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=version))
    started_at_ms = coordinator.txn().started_at_ms
    assert started_at_ms is not None
    commands: list[Command] = [
        commit(WHO, version=version),
        abort(WHO, version=version),
        TimeOut(transactional_id=ID, started_at_ms=started_at_ms),
    ]

    for index in order:
        coordinator.code(commands[index])

    prepared = [state for state in coordinator.states_written() if state in PREPARED]
    assert prepared == [S.PREPARE_COMMIT if order[0] == 0 else S.PREPARE_ABORT]


# --- completion ---------------------------------------------------------------------------------


def test_a_late_completion_does_not_complete_the_next_transaction() -> None:
    """Flaw 10.15 (KAFKA-16352): an old client's transactions have one epoch, and one clock tick."""
    coordinator = Coordinator(a_txn(epoch=E))
    coordinator.ask(commit(WHO))
    first = marked(coordinator.txn())
    coordinator.ask(first)
    coordinator.ask(add(WHO, P0, P1))

    coordinator.ask(first)
    assert coordinator.state() is S.ONGOING
    coordinator.ask(commit(WHO))
    coordinator.ask(first)
    assert coordinator.state() is S.PREPARE_COMMIT
    coordinator.mark()
    assert coordinator.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("version", [V1, V2])
def test_a_completion_that_comes_twice_is_written_once(version: int) -> None:
    """Flaw 10.15 (KAFKA-10080)."""
    coordinator = Coordinator(a_txn(epoch=E))
    coordinator.ask(commit(WHO, version=version))
    command = marked(coordinator.txn())

    coordinator.ask(command)
    coordinator.ask(command)

    assert coordinator.states_written().count(S.COMPLETE_COMMIT) == 1


def test_a_completion_of_a_forgotten_id_is_ignored() -> None:
    assert Coordinator().ask(marked(a_txn(state=S.PREPARE_COMMIT))) is None


def test_a_completion_after_the_producer_id_has_changed_is_ignored() -> None:
    """Flaw 10.15 at the last epoch: CompleteX has the next identity already."""
    coordinator = Coordinator(a_txn(epoch=32766, client_version=V2))
    coordinator.ask(commit(identity(7, 32766), version=V2))
    command = marked(coordinator.txn())
    coordinator.ask(command)

    coordinator.ask(command)

    assert coordinator.states_written().count(S.COMPLETE_COMMIT) == 1
