"""What the shard shows to those who list and describe transactions, and to its host."""

from oncelog.core.txn.commands import (
    TxnConfig,
)
from oncelog.core.txn.machine import TxnState
from oncelog.core.txn.shard import (
    TxnShard,
)
from tests.core.txn.builders import OFFSETS, P0, P1, Coordinator, a_txn, commit, identity

S = TxnState


def test_an_unknown_id_is_not_found() -> None:
    """Check 108, as far as the shard shows it."""
    assert Coordinator().shard.get("nobody") is None


def test_ids_are_listed_in_the_order_of_their_names() -> None:
    """Checks 110-112 filter this list."""
    shard = Coordinator(*(a_txn(name=name) for name in ("b", "c", "a"))).shard

    assert [txn.transactional_id for txn in shard] == ["a", "b", "c"]
    assert len(shard) == 3


def test_a_prepared_transaction_shows_its_partitions_and_a_completed_one_none() -> None:
    """Section 5.7; check 109: which of them still wait for their marker is the host's to know."""
    coordinator = Coordinator(a_txn(epoch=3, partitions=(OFFSETS, P0, P1)))
    coordinator.ask(commit(identity(7, 3)))
    prepared = coordinator.txn()
    coordinator.mark()

    assert prepared.topic_partitions() == (OFFSETS, P0, P1)
    assert coordinator.txn().topic_partitions() == ()


def test_this_log_has_no_transactions_of_its_own() -> None:
    shard = TxnShard(TxnConfig(), transaction_version=2)
    key, value = shard.encode(a_txn())

    assert shard.decode_pending(key, value, 0, 7) is None


def test_the_defaults_are_kafkas() -> None:
    """Section 11."""
    config = TxnConfig()

    assert config.transaction_max_timeout_ms == 900_000
    assert config.transactional_id_expiration_ms == 604_800_000
