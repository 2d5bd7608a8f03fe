"""The life of one transaction, as a total table (KIP-98), and what KIP-890 changes in it.

A request's version decides which table counts: clients of transactions V2 end a transaction with
`END_V2`, all others with `NEXT`. Refusals are cells like every other step.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias


class TxnState(Enum):
    """The values are stored in the transaction log: never renumber them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """As DescribeTransactions and ListTransactions spell it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Input(Enum):
    """What can happen to a transaction."""

    ADD = auto()  # AddPartitionsToTxn, AddOffsetsToTxn, the first Produce of a partition (V2)
    COMMIT = auto()  # EndTxn with committed=true
    ABORT = auto()  # EndTxn with committed=false
    EXPEL = auto()  # the timeout, or InitProducerId of a new instance: abort with an epoch bump
    MARKED = auto()  # the last participant has written its marker


class Hold(Enum):
    """Why a transaction stays where it is."""

    DONE = auto()  # the same request once more: succeed, write nothing
    BUSY = auto()  # markers are under way: wait for them, or come back
    WRONG = auto()  # the protocol has no such step
    FENCED = auto()  # it was meant for an earlier transaction of this producer
    BUG = auto()  # only the broker itself could have asked


Step: TypeAlias = TxnState | Hold
S, H = TxnState, Hold


def _row(*steps: Step) -> Mapping[Input, Step]:
    return dict(zip(Input, steps, strict=True))  # strict: a row without a column does not import


# While markers are under way whoever asks waits, even for what will be refused then: Kafka has a
# transition pending all that time.
# fmt: off
NEXT: Final[Mapping[TxnState, Mapping[Input, Step]]] = {
    #                       ADD        COMMIT            ABORT            EXPEL            MARKED
    S.EMPTY:           _row(S.ONGOING, H.WRONG,          H.WRONG,         H.DONE,          H.BUG),
    S.ONGOING:         _row(S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_ABORT, H.BUG),
    S.PREPARE_COMMIT:  _row(H.BUSY,    H.BUSY,           H.BUSY,          H.BUSY,          S.COMPLETE_COMMIT),
    S.PREPARE_ABORT:   _row(H.BUSY,    H.BUSY,           H.BUSY,          H.BUSY,          S.COMPLETE_ABORT),
    S.COMPLETE_COMMIT: _row(S.ONGOING, H.DONE,           H.WRONG,         H.DONE,          H.DONE),
    S.COMPLETE_ABORT:  _row(S.ONGOING, H.WRONG,          H.DONE,          H.DONE,          H.DONE),
}
# fmt: on


class EndV2(Enum):
    """EndTxn of a V2 client: what it asks for, and whether its epoch is the current one (E).

    Every EndTxn raises the epoch, so a request at E-1 repeats one that was carried out.
    """

    COMMIT_AT_E = auto()
    COMMIT_BEFORE = auto()
    ABORT_AT_E = auto()
    ABORT_BEFORE = auto()


def _end(*steps: Step) -> Mapping[EndV2, Step]:
    return dict(zip(EndV2, steps, strict=True))


# An abort of nothing succeeds in V2: a client whose produce requests all failed does not know
# whether the coordinator holds a transaction open, and may not be left with one. While markers are
# under way every request waits, whatever its epoch: a client that already has the next one must not
# be told that it is fenced (KAFKA-18464).
# fmt: off
END_V2: Final[Mapping[TxnState, Mapping[EndV2, Step]]] = {
    #                       COMMIT, E         COMMIT, E-1  ABORT, E         ABORT, E-1
    S.EMPTY:           _end(H.WRONG,          H.FENCED,    S.PREPARE_ABORT, H.FENCED),
    S.ONGOING:         _end(S.PREPARE_COMMIT, H.FENCED,    S.PREPARE_ABORT, H.FENCED),
    S.PREPARE_COMMIT:  _end(H.BUSY,           H.BUSY,      H.BUSY,          H.BUSY),
    S.PREPARE_ABORT:   _end(H.BUSY,           H.BUSY,      H.BUSY,          H.BUSY),
    S.COMPLETE_COMMIT: _end(H.WRONG,          H.DONE,      S.PREPARE_ABORT, H.WRONG),
    S.COMPLETE_ABORT:  _end(H.WRONG,          H.WRONG,     S.PREPARE_ABORT, H.DONE),
}
# fmt: on

#: The last transaction is over, with all its markers.
COMPLETE: Final = frozenset({S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
#: States in which nothing is open: a transactional id may be given out anew, or expire.
IDLE: Final = COMPLETE | {S.EMPTY}
#: The outcome is recorded and markers are under way.
PREPARED: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
