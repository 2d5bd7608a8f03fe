"""AddPartitionsToTxn and AddOffsetsToTxn, and the first batch of a V2 client, as the shard has them."""

from functools import partial
from uuid import UUID

import pytest

from oncelog.core.txn.machine import TxnState
from oncelog.core.types import Now
from tests.core.txn.builders import (
    ABORTABLE,
    BUSY,
    FENCED,
    ID,
    INVALID,
    MAPPING,
    OFFSETS,
    OK,
    P0,
    P1,
    P2,
    V1,
    V2,
    Coordinator,
    a_txn,
    abort,
    add,
    commit,
    identity,
    raised,
)

S = TxnState
E = 3
WHO = identity(7, E)
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


def test_the_first_partition_begins_the_transaction() -> None:
    """Section 5.2, 10; the start and the whole set are in the record."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))

    assert coordinator.code(add(WHO, P1, P0)) == OK

    written = coordinator.written()[-1]
    assert (written.state, written.topic_partitions()) == (S.ONGOING, (P0, P1))
    assert written.started_at_ms == coordinator.now.wall_ms


def test_further_partitions_join_and_the_start_stays() -> None:
    """Section 5.2, 9."""
    coordinator = Coordinator(a_txn(epoch=E, partitions=(P1,)))
    start = coordinator.txn().started_at_ms
    coordinator.advance(ms=10)

    assert coordinator.code(add(WHO, P0, OFFSETS)) == OK
    assert coordinator.txn().topic_partitions() == (OFFSETS, P0, P1)
    assert coordinator.txn().started_at_ms == start


def test_what_was_added_before_is_not_written_again() -> None:
    """Check 48; scenario 34."""
    coordinator = Coordinator(a_txn(epoch=E, partitions=(P0, P1)))
    size = len(coordinator.log)

    assert coordinator.code(add(WHO, P1)) == OK
    assert coordinator.code(add(WHO, P1, P0)) == OK
    assert len(coordinator.log) == size


@pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT], ids=lambda s: s.name)
def test_after_completion_a_new_transaction_begins(state: TxnState) -> None:
    """Check 49; flaw 10.17 b: what the one before had does not count as added."""
    before = a_txn(state=state, epoch=E)
    coordinator = Coordinator(before)

    assert coordinator.code(add(WHO, P1)) == OK

    txn = coordinator.txn()
    assert txn.topic_partitions() == (P1,)
    assert txn.started_at_ms is not None
    assert before.started_at_ms is not None
    assert txn.started_at_ms > before.started_at_ms, "the clock has not moved, the start has"
    assert raised(partial(coordinator.shard.verify, ID, 7, E, P0)) == ABORTABLE


def test_a_clock_that_went_back_does_not_repeat_a_start() -> None:
    """Flaw 10.15: transactions of one epoch are told apart by their start."""
    coordinator = Coordinator(a_txn(state=S.COMPLETE_COMMIT, epoch=E))
    before = coordinator.now
    coordinator.now = Now(before.wall_ms - 5_000, before.monotonic_ms)

    coordinator.ask(add(WHO, P0))

    assert coordinator.txn().started_at_ms == before.wall_ms + 1
    assert coordinator.shard.next_deadline_ms() == before.monotonic_ms + 60_000


@pytest.mark.parametrize("epoch", [0, E - 1, E + 1, 32766, 32767])
@pytest.mark.parametrize("version", [V1, V2])
def test_another_epoch_is_fenced(epoch: int, version: int) -> None:
    """Check 47: older or newer."""
    coordinator = Coordinator(a_txn(epoch=E))

    assert coordinator.code(add(identity(7, epoch), P1, version=version)) == FENCED
    assert coordinator.txn().topic_partitions() == (P0,)


def test_unknown_ids_and_foreign_producers_are_refused() -> None:
    """Section 5.2, 1, 3 and 5."""
    coordinator = Coordinator(a_txn(epoch=E))

    assert coordinator.code(add(WHO, P0, name="")) == INVALID
    assert coordinator.code(add(WHO, P0, name="other")) == MAPPING
    assert coordinator.code(add(identity(8, E), P0)) == MAPPING


def test_the_pending_completion_is_looked_at_before_the_producer_id() -> None:
    """KAFKA-18660: at 32766 the client has already been told its next producer id."""
    coordinator = Coordinator(a_txn(epoch=32766, client_version=V2))
    following = coordinator.identified(commit(identity(7, 32766), version=V2))

    assert coordinator.code(add(following, P0, version=V2)) == BUSY
    coordinator.mark()
    assert coordinator.code(add(following, P0, version=V2)) == OK


def test_an_empty_list_begins_a_transaction_that_can_be_committed() -> None:
    """Appendix B, 15; scenario 118."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))

    assert coordinator.code(add(WHO)) == OK
    assert coordinator.state() is S.ONGOING
    assert coordinator.code(commit(WHO)) == OK
    coordinator.mark()
    assert coordinator.state() is S.COMPLETE_COMMIT


def test_a_topic_that_was_made_anew_is_known_by_its_new_id() -> None:
    """Flaw 10.26: with the old id its marker would never be written, and readers would hang."""
    coordinator = Coordinator(a_txn(epoch=E, partitions=(P0, P1), topic_id=OLD_ID))

    assert coordinator.code(add(WHO, P0, topic_id=NEW_ID)) == OK
    assert coordinator.txn().partitions == ((P0, NEW_ID), (P1, NEW_ID))
    assert coordinator.code(add(WHO, P1)) == OK
    assert coordinator.txn().partitions == ((P0, NEW_ID), (P1, NEW_ID))


def test_verifying_follows_the_order_of_checks() -> None:
    """Section 5.2, VerifyOnly; check 52."""
    coordinator = Coordinator(a_txn(epoch=E, partitions=(P0, P1)))
    verify = coordinator.shard.verify

    assert raised(partial(verify, "other", 7, E, P0)) == MAPPING
    assert raised(partial(verify, ID, 8, E, P0)) == MAPPING
    assert raised(partial(verify, ID, 7, E - 1, P0)) == FENCED
    assert raised(partial(verify, ID, 7, E + 1, P0)) == FENCED
    assert raised(partial(verify, ID, 7, E, P2)) == ABORTABLE
    assert raised(partial(verify, ID, 7, E, P1)) == OK


def test_a_batch_that_was_verified_before_the_abort_is_not_verified_after_it() -> None:
    """Check 117; flaw 10.1. The host asks at the moment of the append, so no guard can be stale."""
    for version, expected in ((V1, ABORTABLE), (V2, FENCED)):
        coordinator = Coordinator(a_txn(epoch=E, client_version=version))
        verify = partial(coordinator.shard.verify, ID, 7, E, P0)
        assert raised(verify) == OK

        coordinator.ask(abort(WHO, version=version))
        assert raised(verify) == (BUSY if version == V1 else FENCED)
        coordinator.mark()

        assert raised(verify) == expected


def test_a_late_first_batch_of_a_finished_transaction_is_refused() -> None:
    """Flaw 10.1 for V2: the implicit add carries the old epoch."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    coordinator.ask(abort(WHO, version=V2))
    coordinator.mark()

    assert coordinator.code(add(WHO, P1, version=V2)) == FENCED
    assert coordinator.state() is S.COMPLETE_ABORT


def test_a_late_add_of_an_old_client_ends_by_its_timeout() -> None:
    """Scenario 24: its bytes do not say for which transaction they are, but nothing stays open."""
    coordinator = Coordinator(a_txn(state=S.COMPLETE_ABORT, epoch=E))

    assert coordinator.code(add(WHO, P0)) == OK
    coordinator.advance(ms=60_000)
    coordinator.time_out(coordinator.overdue()[0])
    coordinator.mark()

    assert coordinator.state() is S.COMPLETE_ABORT
