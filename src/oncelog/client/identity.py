"""Who writes under a transactional id: a producer id and an epoch, and how they move on.

An `Identity` is good for one transaction. A new one comes from `fence` (whoever had the id before is
out), from `commit` (transactions V2 hand out the next epoch with the commit itself), or from `renew`,
which aborts whatever is open and moves the epoch in one step, so that nothing written under the old
one can slip in between. All of them speak both generations of the protocol: which one the cluster
has, its finalised feature `transaction.version` says.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client import transactions
from oncelog.client.cluster import Cluster, CoordinatorKind, raise_for
from oncelog.client.connection import Connection
from oncelog.client.errors import ClientError, Disconnected, NoCommonVersion, NoReply, Refused
from oncelog.core.types import TopicPartition
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

#: The last versions before transactions V2 (KIP-890), and the last stable InitProducerId.
_ADD_PARTITIONS_OF_CLIENTS: Final = 3
_TXN_OFFSET_COMMIT_V1: Final = 4
_END_TXN_V1: Final = 4
_INIT_PRODUCER_ID: Final = 5
#: The versions that V2 needs; TxnOffsetCommit 6 would name topics by id.
_TXN_OFFSET_COMMIT_V2: Final = 5
_END_TXN_V2: Final = 5

_OPERATION_NOT_ATTEMPTED: Final = int(ErrorCode.OPERATION_NOT_ATTEMPTED)
#: Markers of the last transaction are under way, or somebody else is being answered: soon over.
_BUSY: Final = frozenset({int(ErrorCode.CONCURRENT_TRANSACTIONS)})
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.25


class Replaced(ClientError):
    """Another producer has taken over the transactional id: there is nothing left to do here."""


class OutcomeUnknown(ClientError):
    """The commit was asked for and its answer never came: it may have happened or not."""


class TransactionLost(ClientError):
    """The transaction was aborted from outside, most often by its timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The name under which one transaction writes."""

    transactional_id: str
    producer_id: int
    epoch: int
    #: Whether the cluster adds partitions to a transaction by itself (KIP-890).
    is_v2: bool

    def __str__(self) -> str:
        return f"{self.transactional_id} (producer {self.producer_id}, epoch {self.epoch})"


class Transactional:
    """One transactional id, as its present owner uses it."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, wait_s: float) -> None:
        """`wait_s` is how long a step may wait for others to finish theirs."""
        self._cluster = cluster
        self._id = transactional_id
        self._wait_s = wait_s

    # --- identities ---

    async def fence(self, timeout_ms: int) -> Identity:
        """Take the id over from whoever has it; what they left open is aborted."""
        reply = await self._init(timeout_ms, None)
        raise_for(reply.error_code, f"Transactional id {self._id}")
        return await self._identity(reply.producer_id, reply.producer_epoch)

    async def renew(self, identity: Identity, timeout_ms: int) -> Identity:
        """Abort what is open under an identity, if anything, and get the next one.

        Raises `Replaced`, and touches nothing, if the id has another owner by now.
        """
        await self._refuse_if_replaced(identity)
        pair = (identity.producer_id, identity.epoch)
        reply = await self._init(timeout_ms, pair)
        if reply.error_code in _FENCED and await self._was_expelled(identity):
            # Before V2 an abort from outside moves the epoch on, and the coordinator forgets whose
            # it was. Nobody writes under that epoch: whoever takes over gets the one after it.
            reply = await self._init(timeout_ms, (identity.producer_id, identity.epoch + 1))
        if reply.error_code in _FENCED:
            raise self._replaced(identity)
        raise_for(reply.error_code, f"Transactional id {self._id}")
        return await self._identity(reply.producer_id, reply.producer_epoch)

    async def _init(self, timeout_ms: int, pair: tuple[int, int] | None) -> InitProducerIdResponse:
        producer_id, epoch = pair or (-1, -1)
        message = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        reply: InitProducerIdResponse = await self._while_busy(
            message, lambda reply: reply.error_code, at_most=_INIT_PRODUCER_ID
        )
        return reply

    async def _identity(self, producer_id: int, epoch: int) -> Identity:
        connection = await self._coordinator()
        return Identity(
            transactional_id=self._id,
            producer_id=producer_id,
            epoch=epoch,
            is_v2=speaks_v2(connection),
        )

    async def was_aborted(self, identity: Identity) -> bool:
        """Whether the transaction of an identity was aborted from outside: its time was up."""
        state = await self._described()
        return (
            state is not None
            and state.transaction_state in ("PrepareAbort", "CompleteAbort")
            and (state.producer_id, state.producer_epoch) != (identity.producer_id, identity.epoch)
        )

    async def _refuse_if_replaced(self, identity: Identity) -> None:
        # Apache Kafka aborts an open transaction before it looks whose it is: look first.
        state = await self._described()
        if state is not None and state.transaction_state == "Ongoing":
            if (state.producer_id, state.producer_epoch) != (identity.producer_id, identity.epoch):
                raise self._replaced(identity)

    async def _was_expelled(self, identity: Identity) -> bool:
        state = await self._described()
        return (
            state is not None
            and state.transaction_state == "CompleteAbort"
            and (state.producer_id, state.producer_epoch)
            == (identity.producer_id, identity.epoch + 1)
        )

    async def _described(self) -> Any:
        try:
            return await transactions.describe(self._cluster, self._id)
        except NoCommonVersion:  # before Apache Kafka 3.0
            return None
        except Refused as error:
            if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise

    def _replaced(self, identity: Identity) -> Replaced:
        return Replaced(
            f"Another producer has taken over the transactional id {self._id} "
            f"(we had epoch {identity.epoch})."
        )

    # --- the transaction ---

    async def add_partitions(
        self, identity: Identity, partitions: Iterable[TopicPartition]
    ) -> None:
        """Tell the coordinator, before V2, where this transaction will write."""
        if identity.is_v2:
            return
        by_topic: dict[str, list[int]] = {}
        for place in sorted(partitions):
            by_topic.setdefault(place.topic, []).append(place.partition)
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=found)
                for name, found in by_topic.items()
            ],
        )

        def code_of(reply: Any) -> int:
            codes = [
                partition.partition_error_code
                for topic in reply.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ]
            # If one is refused, nothing is added: the others say only that.
            return next((c for c in codes if c not in (0, _OPERATION_NOT_ATTEMPTED)), 0)

        reply = await self._while_busy(message, code_of, at_most=_ADD_PARTITIONS_OF_CLIENTS)
        self._check(identity, code_of(reply))

    async def send_offsets(
        self, identity: Identity, group: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Commit the offsets of a group without members inside the transaction."""
        if not identity.is_v2:
            message: Any = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group,
            )
            reply = await self._while_busy(message, lambda reply: reply.error_code)
            self._check(identity, reply.error_code)
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for place, offset in sorted(offsets.items()):
            entry = TxnOffsetCommitRequestPartition(
                partition_index=place.partition, committed_offset=offset, committed_metadata=""
            )
            by_topic.setdefault(place.topic, []).append(entry)
        message = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=found)
                for name, found in by_topic.items()
            ],
        )

        async def group_coordinator() -> Connection:
            return await self._cluster.coordinator(CoordinatorKind.GROUP, group)

        def code_of(reply: Any) -> int:
            codes = (p.error_code for topic in reply.topics for p in topic.partitions)
            return next((code for code in codes if code), 0)

        reply = await self._while_busy(
            message,
            code_of,
            whom=group_coordinator,
            at_most=_TXN_OFFSET_COMMIT_V2 if identity.is_v2 else _TXN_OFFSET_COMMIT_V1,
        )
        self._check(identity, code_of(reply))

    async def commit(self, identity: Identity) -> Identity | None:
        """Commit, and give the next identity where the coordinator hands one out (V2).

        Raises `OutcomeUnknown` if nobody knows whether it happened, `TransactionLost` or `Replaced`
        if it certainly did not.
        """
        message = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=True,
        )
        at_most = _END_TXN_V2 if identity.is_v2 else _END_TXN_V1
        was_lost = False

        async def attempt() -> Any:
            nonlocal was_lost
            connection = await self._coordinator()
            try:
                # The same request once more is answered as the first was: it may be repeated.
                return await connection.request(message, at_most=at_most, timeout=self._wait_s)
            except (Disconnected, NoReply):
                was_lost = True
                raise

        try:
            reply = await self._busy_loop(attempt, lambda reply: reply.error_code)
        except ClientError as error:
            if was_lost:
                raise OutcomeUnknown(f"The commit of {identity} was not answered.") from error
            raise
        if reply.error_code == 0:
            if not identity.is_v2:
                return None
            return await self._identity(reply.producer_id, reply.producer_epoch)
        if was_lost:
            raise OutcomeUnknown(
                f"The commit of {identity} was not answered at first, and then with "
                f"error {reply.error_code}."
            )
        self._check(identity, reply.error_code)
        raise AssertionError("any code but 0 raises")

    # --- the inside ---

    def _check(self, identity: Identity, code: int) -> None:
        if code in _LOST:
            raise TransactionLost(
                f"The transaction of {identity} was ended from outside (error {code})."
            )
        raise_for(code, f"Transactional id {self._id}")

    async def _coordinator(self) -> Connection:
        return await self._cluster.coordinator(CoordinatorKind.TRANSACTION, self._id)

    async def _while_busy(
        self,
        message: Any,
        code_of: Callable[[Any], int],
        *,
        whom: Any = None,
        at_most: int | None = None,
    ) -> Any:
        async def attempt() -> Any:
            return await self._cluster.ask(message, whom or self._coordinator, at_most=at_most)

        return await self._busy_loop(attempt, code_of)

    async def _busy_loop(self, attempt: Any, code_of: Callable[[Any], int]) -> Any:
        """Ask again while the coordinator is busy with this id, or is being looked for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        pause = _FIRST_PAUSE_S
        while True:
            reply = await self._cluster.patiently(attempt)
            if code_of(reply) not in _BUSY or loop.time() + pause > deadline:
                return reply
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


#: Somebody else has the id. (47 is what brokers said before they had 90.)
_FENCED: Final = frozenset({int(ErrorCode.PRODUCER_FENCED), int(ErrorCode.INVALID_PRODUCER_EPOCH)})
#: The transaction is over, whoever ended it; whether we are replaced, `renew` finds out.
_LOST: Final = _FENCED | {
    int(ErrorCode.INVALID_TXN_STATE),
    int(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    int(ErrorCode.TRANSACTION_ABORTABLE),
}


def speaks_v2(connection: Connection) -> bool:
    """Whether a broker's cluster has agreed on transactions V2."""
    answer = connection.api_versions
    if answer.finalized_features_epoch < 0:
        return False
    levels = {f.name: f.max_version_level for f in answer.finalized_features}
    return levels.get("transaction.version", 0) >= 2
