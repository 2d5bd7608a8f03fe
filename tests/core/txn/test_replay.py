"""A crash at any point: the log says what happened, and what was decided is carried on."""

from collections.abc import Callable

import pytest

from oncelog.core.txn.commands import (
    Command,
    TxnConfig,
    WriteMarkers,
)
from oncelog.core.txn.machine import TxnState
from oncelog.core.txn.records import Forgotten, Txn
from oncelog.core.txn.shard import (
    TxnShard,
)
from oncelog.core.types import Now
from tests.core.shard_properties import START
from tests.core.txn.builders import (
    BUSY,
    FENCED,
    ID,
    OFFSETS,
    OK,
    P0,
    P1,
    V1,
    V2,
    Coordinator,
    a_txn,
    abort,
    add,
    commit,
    end,
    identity,
    init,
)

S = TxnState
E = 3
WHO = identity(7, E)
PLACES = (OFFSETS, P0, P1)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [V1, V2])
def test_what_was_decided_is_carried_on_without_the_client(committed: bool, version: int) -> None:
    """Check 76; scenarios 39-43: markers for every partition, then the completion."""
    coordinator = Coordinator(a_txn(epoch=E, partitions=PLACES, client_version=version))
    coordinator.ask(end(WHO, committed=committed, version=version))
    (before,) = coordinator.marker_orders()

    orders = coordinator.resumed()

    assert orders == (before,)
    assert orders[0].txn.topic_partitions() == PLACES
    assert coordinator.code(init()) == BUSY
    coordinator.mark()
    assert coordinator.state() is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
    assert coordinator.resumed() == ()


def test_a_reserved_producer_id_survives() -> None:
    """Check 77; flaw 10.14 e (KAFKA-20310)."""
    last = identity(7, 32766)
    coordinator = Coordinator(a_txn(epoch=32766, client_version=V2))
    coordinator.ask(commit(last, version=V2))

    (order,) = coordinator.resumed()
    assert (order.txn.producer_epoch, order.txn.next_producer_id) == (32767, 1000)
    coordinator.mark()

    assert (coordinator.txn().producer_id, coordinator.txn().producer_epoch) == (1000, 0)
    coordinator.resumed()
    assert coordinator.identified(commit(last, version=V2)) == identity(1000, 0)


def test_a_supplied_identity_is_recognised_across_a_restart() -> None:
    """Section 3.3: Kafka loses lastEpoch and fences the client; we keep it."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E))
    coordinator.ask(init(WHO))
    coordinator.resumed()

    assert coordinator.identified(init(WHO)) == identity(7, E + 1)


def test_nothing_is_carried_on_that_was_not_decided() -> None:
    """Scenario 37: an open transaction waits for its timeout, or for the next start."""
    coordinator = Coordinator(a_txn(epoch=E), a_txn(name="idle", state=S.COMPLETE_COMMIT))

    assert coordinator.resumed() == ()
    assert coordinator.state() is S.ONGOING
    assert coordinator.started() == identity(7, E + 2)


def test_an_append_that_fails_changes_nothing() -> None:
    """Check 81 (KAFKA-5351): there is no pending transition that could get stuck."""
    coordinator = Coordinator(a_txn(epoch=E))

    for command in (commit(WHO), abort(WHO), add(WHO, P1), init()):
        coordinator.shard.decide(command, coordinator.now)  # decided, and the append fails

    assert coordinator.txn() == a_txn(epoch=E)
    assert coordinator.code(commit(WHO)) == OK


def test_the_last_record_of_an_id_counts() -> None:
    """Section 6.3, 2: and a tombstone removes it."""
    shard = TxnShard(TxnConfig(), transaction_version=2)
    for record in (
        a_txn(name="kept", state=S.EMPTY),
        a_txn(name="gone", state=S.EMPTY),
        a_txn(name="kept", state=S.ONGOING),
        Forgotten(transactional_id="gone"),
        Forgotten(transactional_id="never there"),
    ):
        shard.apply(record)

    assert list(shard) == [a_txn(name="kept", state=S.ONGOING)]


def test_a_load_that_was_broken_off_does_nothing() -> None:
    """Check 83; flaw 10.16: only `loaded` says what to do, and a shard is used only after it."""
    coordinator = Coordinator(a_txn(state=S.PREPARE_COMMIT, epoch=E))
    current = coordinator.shard

    half = coordinator.replay()

    assert half.next_deadline_ms() is None
    assert coordinator.shard is current
    assert coordinator.effects == []


def test_what_another_release_wrote_is_left_alone() -> None:
    """Check 75; KIP-915: unknown keys and versions say nothing, the rest is loaded."""
    coordinator = Coordinator(a_txn(epoch=E))
    key, value = coordinator.shard.encode(a_txn(name="newer"))
    assert value is not None

    assert coordinator.shard.decode(key, b"\x00\x09" + value[2:], 0) is None
    assert coordinator.shard.decode(b"\x00\x05\x00\x01x", value, 0) is None


def test_a_deadline_of_the_past_is_due_at_once() -> None:
    """Check 78: the broker was down for longer than the timeout."""
    coordinator = Coordinator(a_txn(epoch=E))
    coordinator.now = Now(START.wall_ms + 10**9, START.monotonic_ms)
    coordinator.resumed()

    coordinator.advance(ms=0)

    assert len(coordinator.overdue()) == 1


@pytest.mark.parametrize("level", [0, 1])
def test_a_log_of_a_lower_level_loads(level: int) -> None:
    """Level 0 has no tags: what they say is lost with a restart, as it is in Kafka."""
    coordinator = Coordinator(a_txn(state=S.EMPTY, epoch=E), level=level)
    coordinator.ask(init(WHO))
    coordinator.resumed()

    again = coordinator.code(init(WHO))

    assert again == (FENCED if level == 0 else OK)


# --- a crash after every single append ----------------------------------------------------------


Step = Callable[[Coordinator], object]


def asking(command: Command) -> Step:
    return lambda coordinator: coordinator.ask(command)


def a_life(version: int) -> list[Step]:
    """Start, write to three partitions, commit, abort the next one, be replaced in a third."""
    who = identity(1000, 0)
    steps: list[Step] = [Coordinator.started]
    for committed in (True, False):
        steps += [asking(add(who, place, version=version)) for place in PLACES]
        steps += [asking(end(who, committed=committed, version=version)), Coordinator.mark]
        who = identity(1000, who.producer_epoch + (version == V2))
    return [*steps, asking(add(who, P0, version=version)), Coordinator.started]


def outcomes(written: list[Txn]) -> list[TxnState]:
    return [txn.state for txn in written if txn.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT)]


@pytest.mark.parametrize("version", [V1, V2])
def test_a_crash_after_every_append_changes_no_outcome(version: int) -> None:
    """Check 121, as far as the shard shows it; scenarios 33-46, 50."""
    steps = a_life(version)
    whole = Coordinator()
    for step in steps:
        step(whole)

    for crash_after in range(len(steps)):
        coordinator = Coordinator()
        for number, step in enumerate(steps):
            step(coordinator)
            if number == crash_after:
                coordinator.resumed()
                coordinator.resumed()  # P14: a second crash, during recovery
        assert coordinator.written() == whole.written()

    assert outcomes(whole.written()) == [S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_ABORT]


@pytest.mark.parametrize("version", [V1, V2])
def test_c38_a_log_that_ends_anywhere_leads_to_one_outcome(version: int) -> None:
    """Scenario 38: what was not synced is gone, and the rest is decided or is not."""
    whole = Coordinator()
    for step in a_life(version):
        step(whole)

    for size in range(1, len(whole.log) + 1):
        coordinator = Coordinator(fresh_from=2000)
        coordinator.log = whole.log[:size]
        coordinator.shard = coordinator.replay()
        orders = coordinator.shard.loaded(coordinator.now)
        before = coordinator.written()[-1]
        if before.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            assert orders == (WriteMarkers(txn=before, committed=before.state is S.PREPARE_COMMIT),)
            coordinator.mark()
        who = coordinator.started()

        assert who.producer_epoch > before.producer_epoch
        assert outcomes(coordinator.written()[: size - 1]) == outcomes(whole.written()[: size - 1])


def test_b23_a_repeat_that_spans_the_crash_is_answered_with_what_was_decided() -> None:
    """Scenario 23."""
    coordinator = Coordinator(a_txn(epoch=E, client_version=V2))
    first = coordinator.identified(commit(WHO, version=V2))
    coordinator.resumed()

    assert coordinator.code(commit(WHO, version=V2)) == BUSY
    coordinator.mark()
    assert coordinator.identified(commit(WHO, version=V2)) == first
    assert coordinator.code(abort(WHO, version=V2)) == 48
    assert coordinator.shard.get(ID) == coordinator.txn()
