"""The tables of a transaction: complete, and each cell answered by the shard as the fact sheet says."""

from functools import partial

import pytest

from oncelog.core.txn.machine import COMPLETE, END_V2, IDLE, NEXT, PREPARED, EndV2, Input, TxnState
from oncelog.core.txn.records import Txn
from tests.core.shard_properties import assert_total
from tests.core.txn.builders import (
    ABORTABLE,
    BUSY,
    FENCED,
    ID,
    OK,
    P0,
    P1,
    V1,
    V2,
    WRONG,
    Coordinator,
    a_txn,
    add,
    end,
    identity,
    raised,
)

S = TxnState
EPOCH = 3


def test_every_state_has_an_answer_to_every_input() -> None:
    assert_total(NEXT, TxnState, Input)
    assert_total(END_V2, TxnState, EndV2)


def test_the_stored_numbers_are_kafkas() -> None:
    assert [(state.value, state.label) for state in TxnState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
    ]


def test_every_state_is_idle_open_or_prepared() -> None:
    assert IDLE | PREPARED | {S.ONGOING} == set(TxnState)
    assert not IDLE & PREPARED
    assert COMPLETE < IDLE


PREDECESSORS = {  # section 5.1; Empty comes from InitProducerId alone, which has no column
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
}


def test_a_state_is_reached_from_its_legal_predecessors_alone() -> None:
    steps = [
        (state, step)
        for table in (NEXT, END_V2)
        for state, row in table.items()
        for step in row.values()
        if isinstance(step, TxnState)
    ]

    reached = {after: {before for before, step in steps if step is after} for after in TxnState}

    assert reached == {S.EMPTY: set(), **PREDECESSORS}


def test_what_is_prepared_can_only_be_completed() -> None:
    """Scenarios P9: a commit never turns into an abort or the reverse."""
    for state, outcome in (
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT),
        (S.PREPARE_ABORT, S.COMPLETE_ABORT),
    ):
        steps = {*NEXT[state].values(), *END_V2[state].values()}

        assert {step for step in steps if isinstance(step, TxnState)} == {outcome}


# --- section 5.6: EndTxn before v5 --------------------------------------------------------------

BEFORE_V5 = {  # PREPARE states are pending for as long as they last, so 51 it is there
    S.EMPTY: (WRONG, WRONG),
    S.ONGOING: (OK, OK),
    S.PREPARE_COMMIT: (BUSY, BUSY),
    S.PREPARE_ABORT: (BUSY, BUSY),
    S.COMPLETE_COMMIT: (OK, WRONG),
    S.COMPLETE_ABORT: (WRONG, OK),
}


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("state", list(TxnState), ids=lambda state: state.name)
def test_end_txn_before_v5(state: TxnState, committed: bool) -> None:
    """Section 5.6, first table; checks 62-64."""
    coordinator = Coordinator(a_txn(state=state, epoch=EPOCH))
    written = len(coordinator.log)

    code = coordinator.code(end(identity(7, EPOCH), committed=committed))

    assert code == BEFORE_V5[state][0 if committed else 1]
    prepared = S.PREPARE_COMMIT if committed else S.PREPARE_ABORT
    assert coordinator.states_written()[written:] == ([prepared] if state is S.ONGOING else [])
    assert coordinator.txn().producer_epoch == EPOCH


@pytest.mark.parametrize("state", list(TxnState), ids=lambda state: state.name)
@pytest.mark.parametrize("epoch", [EPOCH - 2, EPOCH - 1, EPOCH + 1, 32767])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_end_txn_before_v5_with_another_epoch(state: TxnState, epoch: int, committed: bool) -> None:
    """Section 5.8: for an old client the epoch is looked at before what is pending."""
    coordinator = Coordinator(a_txn(state=state, epoch=EPOCH, last_epoch=EPOCH - 1))

    assert coordinator.code(end(identity(7, epoch), committed=committed)) == FENCED


# --- section 5.6: EndTxn since v5 ---------------------------------------------------------------

SINCE_V5 = {  # commit at E, commit at E-1, abort at E, abort at E-1
    S.EMPTY: (WRONG, FENCED, OK, FENCED),
    S.ONGOING: (OK, FENCED, OK, FENCED),
    S.PREPARE_COMMIT: (BUSY, BUSY, BUSY, BUSY),
    S.PREPARE_ABORT: (BUSY, BUSY, BUSY, BUSY),
    S.COMPLETE_COMMIT: (WRONG, OK, OK, WRONG),
    S.COMPLETE_ABORT: (WRONG, WRONG, OK, OK),
}


def bumped(state: TxnState) -> Txn:
    """As a V2 client's transactions leave it: every end has raised the epoch."""
    last_epoch = None if state in (S.EMPTY, S.ONGOING) else EPOCH - 1
    return a_txn(state=state, epoch=EPOCH, last_epoch=last_epoch, client_version=V2)


@pytest.mark.parametrize("column", range(4), ids=["commit E", "commit E-1", "abort E", "abort E-1"])
@pytest.mark.parametrize("state", list(TxnState), ids=lambda state: state.name)
def test_end_txn_since_v5(state: TxnState, column: int) -> None:
    """Section 5.6, second table; checks 65-70."""
    committed, epoch = column < 2, EPOCH - column % 2
    coordinator = Coordinator(bumped(state))
    written = len(coordinator.log)

    code = coordinator.code(end(identity(7, epoch), committed=committed, version=V2))

    assert code == SINCE_V5[state][column]
    if code == OK and epoch == EPOCH:
        prepared = S.PREPARE_COMMIT if committed else S.PREPARE_ABORT
        assert coordinator.states_written()[written:] == [prepared]
        assert coordinator.txn().producer_epoch == EPOCH + 1
        assert coordinator.txn().topic_partitions() == ((P0,) if state is S.ONGOING else ())
    else:
        assert coordinator.states_written()[written:] == []


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("epoch", [EPOCH - 2, EPOCH + 1, 32767])
@pytest.mark.parametrize("state", list(TxnState), ids=lambda state: state.name)
def test_end_txn_since_v5_with_any_other_epoch(
    state: TxnState, epoch: int, committed: bool
) -> None:
    """Section 5.6: 90, but 51 comes first while markers are under way."""
    coordinator = Coordinator(bumped(state))

    code = coordinator.code(end(identity(7, epoch), committed=committed, version=V2))

    assert code == (BUSY if state in PREPARED else FENCED)


# --- section 5.7: the rest ----------------------------------------------------------------------


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("state", list(TxnState), ids=lambda state: state.name)
def test_adding_a_partition(state: TxnState, version: int) -> None:
    """Section 5.7, rows 2 and 4; check 50."""
    coordinator = Coordinator(a_txn(state=state, epoch=EPOCH))

    code = coordinator.code(add(identity(7, EPOCH), P1, version=version))

    assert code == (BUSY if state in PREPARED else OK)
    if code == OK:
        assert coordinator.state() is S.ONGOING
        known = (P0, P1) if state is S.ONGOING else (P1,)
        assert coordinator.txn().topic_partitions() == known


VERIFIED = {  # the partition that was added, and one that was not
    S.EMPTY: (ABORTABLE, ABORTABLE),
    S.ONGOING: (OK, ABORTABLE),
    S.PREPARE_COMMIT: (BUSY, BUSY),
    S.PREPARE_ABORT: (BUSY, BUSY),
    S.COMPLETE_COMMIT: (ABORTABLE, ABORTABLE),
    S.COMPLETE_ABORT: (ABORTABLE, ABORTABLE),
}


@pytest.mark.parametrize("state", list(TxnState), ids=lambda state: state.name)
def test_verifying_a_partition(state: TxnState) -> None:
    """Section 5.7, row 3; check 52."""
    shard = Coordinator(a_txn(state=state, epoch=EPOCH)).shard

    codes = tuple(raised(partial(shard.verify, ID, 7, EPOCH, place)) for place in (P0, P1))

    assert codes == VERIFIED[state]
