"""What a transaction shard is asked, and what it says."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from oncelog.core.txn.records import Partitions, Record, Txn

# --- commands -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer starts, or recovers with the identity that it has (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    supplied: tuple[int, int] | None
    fresh_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions take part in the transaction; the first ones begin it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Partitions
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn:
    """Commit or abort, as the client asks."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int = 0
    fresh_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOut:
    """A transaction is overdue: abort it and fence its producer."""

    transactional_id: str
    started_at_ms: int
    fresh_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """All markers of a prepared transaction are written; the rest says which one that was.

    Transactions of a V1 client share an epoch, so the start belongs to it: whoever is late must not
    complete the next one (KAFKA-16352).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireIds:
    """Forget the ids that have been idle for too long."""


Command: TypeAlias = InitProducerId | AddPartitions | EndTxn | TimeOut | Marked | ExpireIds


# --- replies, effects, notes ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the producer is from now on."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """An abort was begun first; the request is to be repeated when it is complete."""


Reply: TypeAlias = Identity | Busy | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """The outcome is recorded: write it to every partition that took part."""

    txn: Txn
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Nothing is open any more: whoever waited for this id may go on."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A transaction has outlived its timeout."""

    transactional_id: str
    started_at_ms: int


Effect: TypeAlias = WriteMarkers | Completed | Overdue


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTimedOut:
    """A note: the coordinator aborted an overdue transaction."""

    transactional_id: str
    after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFenced:
    """A note: a newer instance ended what an older one had left open."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsExpired:
    """A note: idle transactional ids were forgotten."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The time of a transaction counts from now on. Not stored: a replay counts anew."""

    stored: ClassVar[bool] = False
    transactional_id: str
    started_at_ms: int
    deadline_ms: int


class ProducerIdNeeded(Exception):
    """The decision needs a fresh producer id: get one and ask again. Nothing has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnConfig:
    """The settings of transactions, under Kafka's names."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000


Change: TypeAlias = Record | Watched
