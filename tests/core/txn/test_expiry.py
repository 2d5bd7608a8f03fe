"""Transactional ids that nobody uses are forgotten, and what they were is never brought back."""

import pytest

from oncelog.core.txn.commands import (
    ExpireIds,
    IdsExpired,
    TxnConfig,
)
from oncelog.core.txn.machine import PREPARED, TxnState
from oncelog.core.txn.shard import (
    EXPIRED_AT_ONCE,
    EXPIRED_BYTES,
)
from oncelog.core.types import Now
from tests.core.txn.builders import (
    DAY_MS,
    ID,
    MAPPING,
    OK,
    P0,
    V1,
    V2,
    Coordinator,
    a_txn,
    abort,
    add,
    commit,
    identity,
    init,
)

S = TxnState
WEEK_MS = 7 * DAY_MS
WHO = identity(7, 3)


def idle_for(coordinator: Coordinator, ms: int) -> Coordinator:
    now = coordinator.now
    coordinator.now = Now(now.wall_ms + ms, now.monotonic_ms + ms)
    return coordinator


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_idle_id_is_forgotten_after_a_week(state: TxnState) -> None:
    """Check 82: a tombstone, and then it is as if the id had never been."""
    coordinator = idle_for(Coordinator(a_txn(state=state)), WEEK_MS)

    assert coordinator.expire() == 1

    assert coordinator.shard.get(ID) is None
    assert coordinator.notes == [IdsExpired(count=1)]
    coordinator.resumed()
    assert coordinator.shard.get(ID) is None


def test_an_id_is_kept_until_then() -> None:
    coordinator = idle_for(Coordinator(a_txn(state=S.EMPTY)), WEEK_MS - 1)

    assert coordinator.expire() == 0
    assert coordinator.shard.get(ID) is not None


def test_every_use_gives_another_week() -> None:
    coordinator = idle_for(Coordinator(a_txn(state=S.EMPTY)), WEEK_MS - 1)
    coordinator.ask(init())
    idle_for(coordinator, WEEK_MS - 1)

    assert coordinator.expire() == 0


@pytest.mark.parametrize("state", [S.ONGOING, *sorted(PREPARED, key=str)], ids=lambda s: s.name)
def test_nothing_is_forgotten_under_an_open_transaction(state: TxnState) -> None:
    """Section 5.1: not even if its timeout is never carried out."""
    coordinator = idle_for(Coordinator(a_txn(state=state)), 10 * WEEK_MS)

    assert coordinator.expire() == 0


@pytest.mark.parametrize("version", [V1, V2])
def test_the_old_producer_of_a_forgotten_id_has_to_start_anew(version: int) -> None:
    """Check 82; flaw 10.24 (KAFKA-18019): 49 to everything but InitProducerId."""
    coordinator = idle_for(Coordinator(a_txn(state=S.EMPTY)), WEEK_MS)
    coordinator.expire()

    assert coordinator.code(add(WHO, P0, version=version)) == MAPPING
    assert coordinator.code(commit(WHO, version=version)) == MAPPING
    assert coordinator.code(abort(WHO, version=version)) == MAPPING
    assert coordinator.identified(init(WHO)) == identity(1000, 0)


@pytest.mark.parametrize("version", [V1, V2])
def test_an_old_producer_id_is_never_brought_back(version: int) -> None:
    """Flaw 10.24: also when another instance has started under the name since."""
    coordinator = idle_for(Coordinator(a_txn(state=S.EMPTY)), WEEK_MS)
    coordinator.expire()
    coordinator.ask(init())

    assert coordinator.code(add(WHO, P0, version=version)) == MAPPING
    assert coordinator.code(commit(WHO, version=version)) == MAPPING


def test_a_tombstone_that_could_not_be_written_leaves_the_id_usable() -> None:
    """Flaw 10.25 (KAFKA-7519): there is no pending Dead."""
    coordinator = idle_for(Coordinator(a_txn(state=S.EMPTY)), WEEK_MS)

    coordinator.shard.decide(ExpireIds(), coordinator.now)  # decided, and the append fails

    assert coordinator.code(add(WHO, P0)) == OK
    assert coordinator.expire() == 0


def test_many_ids_expire_in_several_batches() -> None:
    """Flaw 10.25 (KAFKA-13099)."""
    count = 2 * EXPIRED_AT_ONCE + 1
    coordinator = Coordinator()
    for number in range(count):
        coordinator.shard.apply(a_txn(state=S.EMPTY, name=f"t{number}"))
    idle_for(coordinator, WEEK_MS)
    sizes = []
    while (decision := coordinator.shard.decide(ExpireIds(), coordinator.now)).records:
        sizes.append(len(decision.records))
        for record in decision.records:
            coordinator.shard.apply(record)

    assert sizes == [EXPIRED_AT_ONCE, EXPIRED_AT_ONCE, 1]
    assert len(coordinator.shard) == 0


def test_ids_with_long_names_expire_in_batches_that_a_log_takes() -> None:
    """Flaw 10.25: a batch has a limit in bytes, and a name may have 32 KiB."""
    names = [f"{number:03}" + "x" * 32_000 for number in range(40)]
    coordinator = Coordinator(*(a_txn(state=S.EMPTY, name=name) for name in names))
    idle_for(coordinator, WEEK_MS)

    assert coordinator.expire() == -(-40 * 32_007 // EXPIRED_BYTES)
    assert len(coordinator.shard) == 0


def test_the_week_is_a_setting() -> None:
    config = TxnConfig(transactional_id_expiration_ms=10)
    coordinator = idle_for(Coordinator(a_txn(state=S.EMPTY), config=config), 10)

    assert coordinator.expire() == 1


def test_a_clock_that_went_back_expires_nothing() -> None:
    coordinator = idle_for(Coordinator(a_txn(state=S.EMPTY)), -WEEK_MS)

    assert coordinator.expire() == 0
