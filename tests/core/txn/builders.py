"""Transactions and commands that name only what a test is about."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from oncelog.core.decision import Decision
from oncelog.core.errors import BrokerError
from oncelog.core.txn.commands import (
    AddPartitions,
    Busy,
    Command,
    Effect,
    EndTxn,
    ExpireIds,
    Identity,
    InitProducerId,
    Marked,
    Overdue,
    ProducerIdNeeded,
    Reply,
    TimeOut,
    TxnConfig,
    Watched,
    WriteMarkers,
)
from oncelog.core.txn.machine import PREPARED, TxnState
from oncelog.core.txn.records import Record, Txn
from oncelog.core.txn.shard import (
    TxnShard,
)
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import CODES
from tests.core.shard_properties import START, Harness, Logged

S = TxnState
ID = "copy"
P0, P1, P2 = (TopicPartition("out", partition) for partition in range(3))
OFFSETS = TopicPartition("__consumer_offsets", 12)
TIMEOUT_MS = 60_000
DAY_MS = 86_400_000

V1, V2 = 0, 2  # what a client speaks; levels 0 and 1 differ in the log's format alone

#: Kafka's numbers, as the fact sheet has them.
OK, ABORTABLE, FENCED, BUSY, MAPPING, WRONG, TIMEOUT, INVALID = 0, 120, 90, 51, 49, 48, 50, 42


def a_txn(
    *,
    state: TxnState = S.ONGOING,
    epoch: int = 3,
    producer_id: int = 7,
    name: str = ID,
    partitions: tuple[TopicPartition, ...] | None = None,
    topic_id: UUID | None = None,
    started_at_ms: int | None = None,
    updated_at_ms: int = START.wall_ms,
    timeout_ms: int = TIMEOUT_MS,
    last_epoch: int | None = None,
    previous: int | None = None,
    reserved: int | None = None,
    client_version: int = V1,
    is_fenced: bool = False,
) -> Txn:
    """A transaction as it is found: an open one has a partition, one with a past has a start."""
    if partitions is None:
        partitions = (P0,) if state is S.ONGOING or state in PREPARED else ()
    if started_at_ms is None and state is not S.EMPTY:
        started_at_ms = START.wall_ms
    return Txn(
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        updated_at_ms=updated_at_ms,
        started_at_ms=started_at_ms,
        partitions=tuple((partition, topic_id) for partition in partitions),
        last_epoch=last_epoch,
        previous_producer_id=producer_id if previous is None else previous,
        next_producer_id=reserved,
        client_version=client_version,
        is_fenced=is_fenced,
    )


def identity(producer_id: int, producer_epoch: int) -> Identity:
    return Identity(producer_id=producer_id, producer_epoch=producer_epoch)


def init(
    supplied: Identity | None = None, *, name: str = ID, timeout_ms: int = TIMEOUT_MS
) -> InitProducerId:
    pair = None if supplied is None else (supplied.producer_id, supplied.producer_epoch)
    return InitProducerId(transactional_id=name, timeout_ms=timeout_ms, supplied=pair)


def add(
    who: Identity,
    *partitions: TopicPartition,
    name: str = ID,
    version: int = V1,
    topic_id: UUID | None = None,
) -> AddPartitions:
    return AddPartitions(
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        partitions=tuple((partition, topic_id) for partition in partitions),
        client_version=version,
    )


def end(who: Identity, *, committed: bool, name: str = ID, version: int = V1) -> EndTxn:
    return EndTxn(
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        committed=committed,
        client_version=version,
    )


def commit(who: Identity, *, name: str = ID, version: int = V1) -> EndTxn:
    return end(who, committed=True, name=name, version=version)


def abort(who: Identity, *, name: str = ID, version: int = V1) -> EndTxn:
    return end(who, committed=False, name=name, version=version)


def marked(txn: Txn) -> Marked:
    return Marked(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        started_at_ms=txn.started_at_ms,
    )


class Coordinator(Harness[TxnShard, Command, Reply, Effect]):
    """A transaction shard and as much of a host as it needs: fresh ids, and markers on request."""

    def __init__(
        self, *txns: Txn, level: int = V2, config: TxnConfig | None = None, fresh_from: int = 1000
    ) -> None:
        self.level = level
        used = config or TxnConfig()
        super().__init__(lambda: TxnShard(used, transaction_version=self.level))
        self.fresh = fresh_from
        for txn in txns:
            self.put(txn)

    def put(self, txn: Txn) -> None:
        """Take a transaction as given: it is in the log, and watched if it is open."""
        records: tuple[Txn | Watched, ...] = (txn,)
        if txn.state is S.ONGOING and txn.started_at_ms is not None:
            deadline_ms = self.now.monotonic_ms + txn.timeout_ms
            watched = Watched(
                transactional_id=txn.transactional_id,
                started_at_ms=txn.started_at_ms,
                deadline_ms=deadline_ms,
            )
            records = (txn, watched)
        self._carry_out(Decision(reply=None, records=records))

    def ask(self, command: Command) -> Reply:
        try:
            return super().ask(command)
        except ProducerIdNeeded:
            self.fresh += 1
            assert isinstance(command, InitProducerId | EndTxn | TimeOut), command
            return super().ask(with_fresh(command, self.fresh - 1))

    def code(self, command: Command) -> int:
        """Kafka's number for the answer; one that is not 0 has written nothing but an abort."""
        size = len(self.log)
        try:
            reply = self.ask(command)
        except BrokerError as refused:
            assert len(self.log) == size, f"{command} was refused and has written"
            return CODES[type(refused)]
        return BUSY if isinstance(reply, Busy) else OK

    def identified(self, command: Command) -> Identity:
        reply = self.ask(command)
        assert isinstance(reply, Identity), reply
        return reply

    def started(self, *, name: str = ID, timeout_ms: int = TIMEOUT_MS) -> Identity:
        """A producer starts: whatever was open is aborted first, as the host does it."""
        command = init(name=name, timeout_ms=timeout_ms)
        if isinstance(reply := self.ask(command), Identity):
            return reply
        self.mark(name)
        return self.identified(command)

    def txn(self, name: str = ID) -> Txn:
        found = self.shard.get(name)
        assert found is not None, f"{name!r} is not known"
        return found

    def state(self) -> TxnState:
        return self.txn().state

    def mark(self, name: str = ID) -> Reply:
        """All markers of the prepared transaction are written."""
        return self.ask(marked(self.txn(name)))

    def overdue(self) -> list[Overdue]:
        return [effect for effect in self.effects if isinstance(effect, Overdue)]

    def time_out(self, overdue: Overdue) -> Reply:
        return self.ask(
            TimeOut(transactional_id=overdue.transactional_id, started_at_ms=overdue.started_at_ms)
        )

    def marker_orders(self) -> list[WriteMarkers]:
        return [effect for effect in self.effects if isinstance(effect, WriteMarkers)]

    def states_written(self, name: str = ID) -> list[TxnState]:
        """Every state that the log has for an id, oldest first."""
        return [txn.state for txn in self.written() if txn.transactional_id == name]

    def written(self) -> list[Txn]:
        return [record for record in self.decoded() if isinstance(record, Txn)]

    def decoded(self, since: int = 0) -> list[Record]:
        """The records of the log, from an offset on, as a reader sees them."""
        reader = TxnShard(TxnConfig(), transaction_version=self.level)
        found = []
        for logged in self.log[since:]:
            assert isinstance(logged, Logged), f"{logged} in a log without markers"
            record = reader.decode(logged.key, logged.value, 0)
            assert record is not None
            found.append(record)
        return found

    def expire(self) -> int:
        """Forget what is idle; how many batches it took."""
        batches = 0
        while self.ask(ExpireIds()):
            batches += 1
        return batches

    def resumed(self) -> tuple[WriteMarkers, ...]:
        """Crash, replay, and say which markers are to be written."""
        lost = self.shard.stored_state()
        self.shard = self.replay()
        assert self.shard.stored_state() == lost, "replay gives another state than the live one"
        return self.shard.loaded(self.now)


def with_fresh(command: InitProducerId | EndTxn | TimeOut, producer_id: int) -> Command:
    return replace(command, fresh_producer_id=producer_id)


def raised(ask: Callable[[], object]) -> int:
    """Kafka's number for how a question that writes nothing is answered."""
    try:
        ask()
    except BrokerError as refused:
        return CODES[type(refused)]
    return OK
