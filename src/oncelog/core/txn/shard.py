"""The transaction coordinator: the transactional ids of one `__transaction_state` partition.

`decide` is pure; what it returns is appended, applied and, once committed, acted upon. The record of
a PREPARE state is the commit point: after it the outcome is carried out whatever crashes. There is no
"transition in flight" here: one writer decides, appends and applies in one go, so a second request
sees what the first one did, and its answer waits for both.
"""

import heapq
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, assert_never

from oncelog.core.decision import Decision
from oncelog.core.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)
from oncelog.core.markers import Marker
from oncelog.core.records import KeyValue
from oncelog.core.txn import records
from oncelog.core.txn.commands import (
    AddPartitions,
    Busy,
    Change,
    Command,
    Completed,
    Effect,
    EndTxn,
    ExpireIds,
    Identity,
    IdsExpired,
    InitProducerId,
    Marked,
    Overdue,
    ProducerIdNeeded,
    Reply,
    TimeOut,
    TransactionFenced,
    TransactionTimedOut,
    TxnConfig,
    Watched,
    WriteMarkers,
)
from oncelog.core.txn.machine import (
    COMPLETE,
    END_V2,
    IDLE,
    NEXT,
    PREPARED,
    EndV2,
    Hold,
    Input,
    TxnState,
)
from oncelog.core.txn.records import FIRST_FLEXIBLE, Forgotten, Partitions, Record, Txn
from oncelog.core.types import Now, TopicPartition

#: The highest epoch that a client is given; one more exists only to fence and to mark.
LAST_EPOCH: Final = 32_766
V2: Final = 2
#: Ids are forgotten in batches that any log takes, however long their names are (KAFKA-13099).
EXPIRED_AT_ONCE: Final = 5_000
EXPIRED_BYTES: Final = 500_000
#: How many overdue transactions are named at once, and when one is named again that is still open.
OVERDUE_AT_ONCE: Final = 1_000
OVERDUE_AGAIN_MS: Final = 1_000


class TxnShard:
    """The transactional ids of one partition of the transaction log."""

    def __init__(self, config: TxnConfig, *, transaction_version: int) -> None:
        self._config = config
        #: The cluster's level: it decides about aborts that no client asked for.
        self.transaction_version = transaction_version
        self._txns: dict[str, Txn] = {}
        #: The open transactions, by id: when they are overdue and when they began.
        self._watched: dict[str, Watched] = {}
        self._deadlines: list[tuple[int, str]] = []

    # --- looking ------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> Txn | None:
        """The state of an id."""
        return self._txns.get(transactional_id)

    def __iter__(self) -> Iterator[Txn]:
        return iter([self._txns[name] for name in sorted(self._txns)])

    def __len__(self) -> int:
        return len(self._txns)

    def open_since_ms(self) -> list[int]:
        """When each open transaction began, without a look at those that are idle."""
        return [watched.started_at_ms for watched in self._watched.values()]

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int,
        partition: TopicPartition,
    ) -> None:  # fmt: skip
        """Refuse unless this partition is part of the producer's open transaction (KIP-890)."""
        txn = self._owned(transactional_id, producer_id)
        _check_epoch(txn, producer_epoch)
        if txn.state in PREPARED:
            raise ConcurrentTransactions(f"{transactional_id!r} is being completed")
        if txn.state is not TxnState.ONGOING or partition not in txn.topic_partitions():
            raise TransactionAbortable(f"{partition} is not part of the transaction")

    # --- deciding -----------------------------------------------------------------------------------

    def decide(self, command: Command, now: Now) -> Decision[Reply, Change, Effect]:
        """Say what a command leads to; nothing has changed yet."""
        match command:
            case InitProducerId():
                return self._init_producer_id(command, now)
            case AddPartitions():
                return self._add_partitions(command, now)
            case EndTxn():
                return self._end_txn(command, now)
            case TimeOut():
                return self._time_out(command, now)
            case Marked():
                return self._marked(command, now)
            case ExpireIds():
                return self._expire_ids(now)
            case _:
                assert_never(command)

    def _owned(self, transactional_id: str, producer_id: int) -> Txn:
        _check_name(transactional_id)
        txn = self._txns.get(transactional_id)
        if txn is None:
            raise InvalidProducerIdMapping(f"the transactional id {transactional_id!r} is unknown")
        if txn.producer_id != producer_id:
            raise InvalidProducerIdMapping(
                f"{transactional_id!r} has the producer id {txn.producer_id}, not {producer_id}"
            )
        return txn

    # --- InitProducerId -----------------------------------------------------------------------------

    def _init_producer_id(
        self, command: InitProducerId, now: Now
    ) -> Decision[Reply, Change, Effect]:
        _check_name(command.transactional_id)
        if not 1 <= command.timeout_ms <= self._config.transaction_max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"a transaction timeout of {command.timeout_ms} ms; it may be 1 to "
                f"{self._config.transaction_max_timeout_ms}"
            )
        txn = self._txns.get(command.transactional_id)
        if txn is None:
            return _identified(_first(command, now))
        if txn.state in PREPARED:
            raise ConcurrentTransactions(f"{txn.transactional_id!r} is being completed")
        # Before anything is fenced: a zombie may not abort its successor's work.
        is_retry = _is_retry(txn, command)
        if txn.state is TxnState.ONGOING:
            return self._fence(txn, command, now)
        if is_retry:
            return _answered_again(txn, command, now)
        return _identified(_next_identity(txn, command, now))

    def _fence(
        self, txn: Txn, command: InitProducerId, now: Now
    ) -> Decision[Reply, Change, Effect]:
        prepared = self._expelled(txn, command.fresh_producer_id, now)
        # Only an instance that does not know the identity is a newer one.
        prepared = replace(prepared, is_fenced=command.supplied is None)
        return Decision(
            reply=Busy(),
            records=(prepared,),
            effects=(WriteMarkers(txn=prepared, committed=False),),
            notes=(TransactionFenced(transactional_id=txn.transactional_id),),
        )

    def _expelled(self, txn: Txn, fresh_producer_id: int | None, now: Now) -> Txn:
        """PrepareAbort with a raised epoch: what the producer may still send is refused."""
        assert NEXT[txn.state][Input.EXPEL] is TxnState.PREPARE_ABORT, f"{txn.state} is open"
        last_epoch, next_producer_id = None, None
        if self.transaction_version >= V2:
            last_epoch = txn.producer_epoch
            if txn.producer_epoch >= LAST_EPOCH:
                if fresh_producer_id is None:
                    raise ProducerIdNeeded
                next_producer_id = fresh_producer_id
        return replace(
            txn,
            state=TxnState.PREPARE_ABORT,
            producer_epoch=min(txn.producer_epoch + 1, LAST_EPOCH + 1),
            last_epoch=last_epoch,
            next_producer_id=next_producer_id,
            updated_at_ms=now.wall_ms,
            # Nobody asked for this abort, so the cluster's level says how its markers are checked.
            client_version=self.transaction_version,
        )

    # --- adding partitions --------------------------------------------------------------------------

    def _add_partitions(self, command: AddPartitions, now: Now) -> Decision[Reply, Change, Effect]:
        known = self._txns.get(command.transactional_id)
        if known is not None and known.state in PREPARED:
            # Before the producer id: a V2 client may already use the next one (KAFKA-18660).
            raise ConcurrentTransactions(f"{command.transactional_id!r} is being completed")
        txn = self._owned(command.transactional_id, command.producer_id)
        _check_epoch(txn, command.producer_epoch)
        step = NEXT[txn.state][Input.ADD]
        if isinstance(step, Hold):
            raise _refusal(step, txn)
        is_new = txn.state is not TxnState.ONGOING
        partitions = _joined(() if is_new else txn.partitions, command.partitions)
        if not is_new and partitions == txn.partitions:
            return Decision(reply=None)
        started_at_ms = _start(txn, now) if is_new else txn.started_at_ms
        added = replace(
            txn,
            state=step,
            partitions=partitions,
            started_at_ms=started_at_ms,
            updated_at_ms=now.wall_ms,
            client_version=command.client_version,
            previous_producer_id=txn.producer_id,
            # What has begun a transaction has got its answer: a repeat of it comes too late.
            last_epoch=None,
            is_fenced=False,
        )
        if not is_new or started_at_ms is None:
            return Decision(reply=None, records=(added,))
        watched = Watched(
            transactional_id=txn.transactional_id,
            started_at_ms=started_at_ms,
            deadline_ms=now.monotonic_ms + txn.timeout_ms,
        )
        return Decision(reply=None, records=(added, watched))

    # --- ending -------------------------------------------------------------------------------------

    def _end_txn(self, command: EndTxn, now: Now) -> Decision[Reply, Change, Effect]:
        if command.client_version >= V2:
            return self._end_txn_v2(command, now)
        txn = self._owned(command.transactional_id, command.producer_id)
        _check_epoch(txn, command.producer_epoch)
        step = NEXT[txn.state][Input.COMMIT if command.committed else Input.ABORT]
        match step:
            case Hold.DONE:
                return Decision(reply=Identity(**_identity(txn)))
            case Hold():
                raise _refusal(step, txn)
            case TxnState():
                prepared = replace(
                    txn,
                    state=step,
                    updated_at_ms=now.wall_ms,
                    # Not the version that added: the markers have no new epoch to be known by.
                    client_version=command.client_version,
                )
                return _prepared(prepared, Identity(**_identity(txn)), command.committed)

    def _end_txn_v2(self, command: EndTxn, now: Now) -> Decision[Reply, Change, Effect]:
        txn = self._txns.get(command.transactional_id)
        if txn is not None and txn.state in PREPARED:
            # Before the epoch: a client that has its next one must not fence itself (KAFKA-18464).
            raise ConcurrentTransactions(f"{command.transactional_id!r} is being completed")
        if txn is None or not _is_overflow_retry(txn, command):
            txn = self._owned(command.transactional_id, command.producer_id)
        step = END_V2[txn.state][_relation(txn, command)]
        match step:
            case Hold.DONE:
                return Decision(reply=Identity(**_identity(txn)))
            case Hold():
                raise _refusal(step, txn)
            case TxnState():
                return self._prepare_v2(txn, step, command, now)

    def _prepare_v2(
        self, txn: Txn, step: TxnState, command: EndTxn, now: Now
    ) -> Decision[Reply, Change, Effect]:
        next_producer_id = None
        if txn.producer_epoch >= LAST_EPOCH:
            if command.fresh_producer_id is None:
                raise ProducerIdNeeded
            next_producer_id = command.fresh_producer_id
        is_open = txn.state is TxnState.ONGOING
        prepared = replace(
            txn,
            state=step,
            producer_epoch=txn.producer_epoch + 1,
            last_epoch=txn.producer_epoch,
            next_producer_id=next_producer_id,
            partitions=txn.partitions if is_open else (),
            started_at_ms=txn.started_at_ms if is_open else now.wall_ms,
            updated_at_ms=now.wall_ms,
            client_version=command.client_version,
            is_fenced=False,
        )
        reply = Identity(**_identity(_completed(prepared, now)))
        return _prepared(prepared, reply, command.committed)

    def _time_out(self, command: TimeOut, now: Now) -> Decision[Reply, Change, Effect]:
        txn = self._txns.get(command.transactional_id)
        if (
            txn is None
            or txn.state is not TxnState.ONGOING
            or txn.started_at_ms != command.started_at_ms
        ):
            return Decision(reply=None)  # Somebody ended it first.
        prepared = self._expelled(txn, command.fresh_producer_id, now)
        after_ms = max(now.wall_ms - command.started_at_ms, 0)
        note = TransactionTimedOut(transactional_id=txn.transactional_id, after_ms=after_ms)
        return Decision(
            reply=None,
            records=(prepared,),
            effects=(WriteMarkers(txn=prepared, committed=False),),
            notes=(note,),
        )

    def _marked(self, command: Marked, now: Now) -> Decision[Reply, Change, Effect]:
        txn = self._txns.get(command.transactional_id)
        if txn is None or not _is_of(command, txn):
            return Decision(reply=None)  # Of an earlier transaction: it has been completed.
        step = NEXT[txn.state][Input.MARKED]
        if step is Hold.DONE:
            return Decision(reply=None)
        assert isinstance(step, TxnState), f"{txn.transactional_id!r} marked in {txn.state}"
        return Decision(
            reply=None,
            records=(_completed(txn, now),),
            effects=(Completed(transactional_id=txn.transactional_id),),
        )

    def _expire_ids(self, now: Now) -> Decision[Reply, Change, Effect]:
        limit = now.wall_ms - self._config.transactional_id_expiration_ms
        expired: list[Forgotten] = []
        size_bytes = 0
        for txn in self:
            if txn.state not in IDLE or txn.updated_at_ms > limit:
                continue
            size_bytes += len(records.encode_key(txn.transactional_id))
            if expired and (len(expired) == EXPIRED_AT_ONCE or size_bytes > EXPIRED_BYTES):
                break  # One batch at a time; whoever asks goes on until none is left.
            expired.append(Forgotten(transactional_id=txn.transactional_id))
        notes = (IdsExpired(count=len(expired)),) if expired else ()
        return Decision(reply=len(expired), records=tuple(expired), notes=notes)

    # --- deadlines ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When the first open transaction is overdue."""
        while self._deadlines and not self._is_pending(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _is_pending(self, deadline_ms: int, transactional_id: str) -> bool:
        watched = self._watched.get(transactional_id)
        return watched is not None and watched.deadline_ms == deadline_ms

    def on_deadline(self, now: Now) -> Decision[Reply, Change, Effect]:
        """Name the transactions that are overdue; each is then timed out by a command.

        They stay watched: where that command fails, it is their turn again a little later.
        """
        overdue = [self._watched[name] for name in self._overdue(now)]
        again_ms = now.monotonic_ms + OVERDUE_AGAIN_MS
        return Decision(
            reply=None,
            records=tuple(replace(watched, deadline_ms=again_ms) for watched in overdue),
            effects=tuple(
                Overdue(
                    transactional_id=watched.transactional_id, started_at_ms=watched.started_at_ms
                )
                for watched in overdue
            ),
        )

    def _overdue(self, now: Now) -> list[str]:
        # A heap's children are never due before their parent: only its top is looked at.
        found: set[str] = set()
        indexes = [0]
        while indexes and len(found) < OVERDUE_AT_ONCE:
            index = indexes.pop()
            if index >= len(self._deadlines) or self._deadlines[index][0] > now.monotonic_ms:
                continue
            if self._is_pending(*self._deadlines[index]):
                found.add(self._deadlines[index][1])
            indexes += (2 * index + 1, 2 * index + 2)
        return sorted(found)

    # --- applying and storing -----------------------------------------------------------------------

    def apply(self, record: Change, *, offset: int | None = None) -> None:
        """Take over what is in the log: the one place where the shard changes."""
        match record:
            case Txn():
                self._txns[record.transactional_id] = record
                if record.state is not TxnState.ONGOING:
                    self._watched.pop(record.transactional_id, None)
            case Forgotten():
                self._txns.pop(record.transactional_id, None)
            case Watched():
                self._watch(record)
            case _:
                assert_never(record)

    def _watch(self, watched: Watched) -> None:
        self._watched[watched.transactional_id] = watched
        heapq.heappush(self._deadlines, (watched.deadline_ms, watched.transactional_id))
        if len(self._deadlines) > 2 * len(self._watched) + OVERDUE_AT_ONCE:
            # Short transactions leave their deadlines behind; long timeouts would pile them up.
            self._deadlines = [(each.deadline_ms, name) for name, each in self._watched.items()]
            heapq.heapify(self._deadlines)

    def loaded(self, now: Now) -> tuple[WriteMarkers, ...]:
        """After a replay: watch what is open again, and carry on what was decided."""
        for txn in self:
            if txn.state is TxnState.ONGOING and txn.started_at_ms is not None:
                # The time that has passed counts; a wall clock that went back adds none.
                left_ms = min(txn.started_at_ms + txn.timeout_ms - now.wall_ms, txn.timeout_ms)
                self.apply(
                    Watched(
                        transactional_id=txn.transactional_id,
                        started_at_ms=txn.started_at_ms,
                        deadline_ms=now.monotonic_ms + max(left_ms, 0),
                    )
                )
        return tuple(
            WriteMarkers(txn=txn, committed=txn.state is TxnState.PREPARE_COMMIT)
            for txn in self
            if txn.state in PREPARED
        )

    def stored_state(self) -> tuple[KeyValue, ...]:
        """What the log says, as this shard understands it: equal before and after a replay."""
        return tuple(self.encode(txn) for txn in self)

    def encode(self, record: Record) -> KeyValue:
        """A record as the log holds it."""
        key = records.encode_key(record.transactional_id)
        if isinstance(record, Forgotten):
            return KeyValue(key, None)
        flexible = self.transaction_version >= FIRST_FLEXIBLE
        return KeyValue(key, records.encode_value(record, flexible=flexible))

    def live_records(self) -> Iterator[Record]:
        """The records that would give the present state, if the log held nothing else."""
        return iter(self)

    def moved(self, record: Record, offset: int) -> None:
        """Where a record stands means nothing here."""

    def decode_pending(
        self, key: bytes, value: bytes | None, timestamp_ms: int, producer_id: int
    ) -> Record | None:
        """This log has no transactions of its own."""
        return None

    def decode_marker(self, marker: Marker) -> Record | None:
        """This log has no transactions of its own."""
        return None

    def decode(self, key: bytes, value: bytes | None, timestamp_ms: int) -> Record | None:
        """A record from the log; None for one of a kind that we do not know."""
        transactional_id = records.decode_key(key)
        if transactional_id is None:
            return None
        if value is None:
            return Forgotten(transactional_id=transactional_id)
        return records.decode_value(transactional_id, value)


# --- the steps themselves -----------------------------------------------------------------------


def _check_name(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("a transactional id may not be empty")
    if not records.fits(transactional_id):
        raise InvalidRequest(f"a transactional id has at most {records.MAX_STRING_BYTES} bytes")


def _check_epoch(txn: Txn, epoch: int) -> None:
    """Older or newer, only the epoch that was given out last counts."""
    if epoch != txn.producer_epoch or epoch > LAST_EPOCH:
        raise ProducerFenced(_fenced(txn, epoch))


def _is_retry(txn: Txn, command: InitProducerId) -> bool:
    """Whether the supplied identity is the one before the last bump; refuse a foreign one."""
    if command.supplied is None or command.supplied == (txn.producer_id, txn.producer_epoch):
        return False
    producer_id, epoch = command.supplied
    is_last = epoch == txn.last_epoch and producer_id in (txn.producer_id, txn.previous_producer_id)
    # The victim of a newer instance may not take the epoch that was raised against it.
    if is_last and txn.state in IDLE and not txn.is_fenced:
        return True
    raise ProducerFenced(_fenced(txn, epoch))


def _answered_again(txn: Txn, command: InitProducerId, now: Now) -> Decision[Reply, Change, Effect]:
    reply = Identity(**_identity(txn))
    if txn.state is TxnState.EMPTY and command.timeout_ms == txn.timeout_ms:
        return Decision(reply=reply)
    # Whoever has this answer begins anew: an EndTxn of the epoch before comes too late.
    changed = replace(
        txn,
        state=TxnState.EMPTY,
        timeout_ms=command.timeout_ms,
        started_at_ms=None,
        # The identity stays, so what it begins next must still be later than what it began last.
        updated_at_ms=_start(txn, now),
    )
    return Decision(reply=reply, records=(changed,))


def _joined(present: Partitions, added: Partitions) -> Partitions:
    """The partitions of both. A topic that was made anew has one id: that of now."""
    ids = {topic_partition.topic: topic_id for topic_partition, topic_id in present}
    ids |= {
        place.topic: topic_id for place, topic_id in added if topic_id or place.topic not in ids
    }
    places = {topic_partition for topic_partition, _ in (*present, *added)}
    return tuple(
        (topic_partition, ids[topic_partition.topic]) for topic_partition in sorted(places)
    )


def _start(txn: Txn, now: Now) -> int:
    # Later than the one before it, whatever the clock says: by its start it is told from the others
    # of the same identity.
    earliest_ms = txn.updated_at_ms if txn.started_at_ms is None else txn.started_at_ms + 1
    return max(now.wall_ms, earliest_ms)


def _first(command: InitProducerId, now: Now) -> Txn:
    if command.fresh_producer_id is None:
        raise ProducerIdNeeded
    return Txn(
        transactional_id=command.transactional_id,
        producer_id=command.fresh_producer_id,
        producer_epoch=0,
        timeout_ms=command.timeout_ms,
        state=TxnState.EMPTY,
        updated_at_ms=now.wall_ms,
    )


def _next_identity(txn: Txn, command: InitProducerId, now: Now) -> Txn:
    """One epoch higher, or a fresh producer id where the epochs have run out."""
    last_epoch = None if command.supplied is None else txn.producer_epoch
    producer_id, epoch = txn.producer_id, txn.producer_epoch + 1
    if txn.producer_epoch >= LAST_EPOCH:
        if command.fresh_producer_id is None:
            raise ProducerIdNeeded
        producer_id, epoch = command.fresh_producer_id, 0
    return replace(
        txn,
        state=TxnState.EMPTY,
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=txn.producer_id,
        next_producer_id=None,
        last_epoch=last_epoch,
        timeout_ms=command.timeout_ms,
        partitions=(),
        started_at_ms=None,
        updated_at_ms=now.wall_ms,
        is_fenced=False,
    )


def _completed(txn: Txn, now: Now) -> Txn:
    """Both phases are done: where epochs ran out, the reserved producer id takes over."""
    step = NEXT[txn.state][Input.MARKED]
    assert isinstance(step, TxnState), f"{txn.state} is not prepared"
    completed = replace(
        txn,
        state=step,
        partitions=(),
        updated_at_ms=now.wall_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=None,
    )
    if txn.next_producer_id is None:
        return completed
    return replace(completed, producer_id=txn.next_producer_id, producer_epoch=0)


def _is_of(command: Marked, txn: Txn) -> bool:
    return (command.producer_id, command.producer_epoch, command.started_at_ms) == (
        txn.producer_id,
        txn.producer_epoch,
        txn.started_at_ms,
    )


def _prepared(txn: Txn, reply: Reply, committed: bool) -> Decision[Reply, Change, Effect]:
    markers = WriteMarkers(txn=txn, committed=committed)
    return Decision(reply=reply, records=(txn,), effects=(markers,))


def _identified(txn: Txn) -> Decision[Reply, Change, Effect]:
    effects = (Completed(transactional_id=txn.transactional_id),)
    return Decision(reply=Identity(**_identity(txn)), records=(txn,), effects=effects)


def _identity(txn: Txn) -> dict[str, int]:
    return {"producer_id": txn.producer_id, "producer_epoch": txn.producer_epoch}


def _relation(txn: Txn, command: EndTxn) -> EndV2:
    epoch = command.producer_epoch
    if _is_overflow_retry(txn, command) or (epoch == txn.last_epoch and txn.state in IDLE):
        # A newer instance aborted this transaction; its victim may not take the new epoch.
        if txn.is_fenced:
            raise ProducerFenced(_fenced(txn, epoch))
        return EndV2.COMMIT_BEFORE if command.committed else EndV2.ABORT_BEFORE
    _check_epoch(txn, epoch)
    return EndV2.COMMIT_AT_E if command.committed else EndV2.ABORT_AT_E


def _is_overflow_retry(txn: Txn, command: EndTxn) -> bool:
    return (
        txn.state in COMPLETE
        and txn.producer_epoch == 0
        and txn.producer_id != txn.previous_producer_id
        and command.producer_id == txn.previous_producer_id
        and command.producer_epoch == LAST_EPOCH
    )


def _refusal(hold: Hold, txn: Txn) -> Exception:
    match hold:
        case Hold.BUSY:
            return ConcurrentTransactions(f"{txn.transactional_id!r} is being completed")
        case Hold.WRONG:
            return InvalidTxnState(f"{txn.transactional_id!r} is in state {txn.state.label}")
        case Hold.FENCED:
            return ProducerFenced(f"{txn.transactional_id!r} is at epoch {txn.producer_epoch}")
        case Hold.DONE | Hold.BUG:
            raise AssertionError(f"{hold} in {txn.state} is not a refusal")
        case _:
            assert_never(hold)


def _fenced(txn: Txn, epoch: int) -> str:
    return f"{txn.transactional_id!r} is at epoch {txn.producer_epoch}, the request has {epoch}"
