"""The life of one classic group, as a table: what happens in which state.

A group that does not exist is `DEAD`, so that what an unknown group answers stands here as well.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from oncelog.core.errors import (
    BrokerError,
    GroupIdNotFound,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.core.groups.group import ClassicGroup, GroupState


class Input(Enum):
    """What can happen to a group."""

    JOIN = auto()  # a newcomer, or a member that offers something else than before
    LEAD = auto()  # the leader joins again unchanged: it wants to assign anew (a topic has grown)
    REJOIN = auto()  # another member joins again unchanged: it has missed the answer
    REPLACE = auto()  # a static member is back under a new member id, unchanged
    JOINED = auto()  # collecting joins is over, and there are members
    DESERTED = auto()  # collecting joins is over, and nobody is left
    SYNC = auto()  # a member asks for its assignment
    ASSIGN = auto()  # the leader brings the assignment
    HEARTBEAT = auto()
    LEAVE = auto()  # a member is gone: it left, or was not heard of in time
    COMMIT = auto()  # a member commits offsets
    SIMPLE = auto()  # a client outside the group protocol commits offsets
    TXN_COMMIT = auto()  # a member commits offsets inside a transaction
    TXN_SIMPLE = auto()  # the same by a client that says nothing of itself (before KIP-447)
    DELETE = auto()  # DeleteGroups


class Hold(Enum):
    """Why a group stays where it is."""

    DONE = auto()  # there is an answer at once
    WAIT = auto()  # the answer comes with the leader's assignment
    REBALANCE = auto()  # between two generations: join (again)
    UNKNOWN = auto()  # no such member: start anew, without a member id
    OCCUPIED = auto()  # there are members: not now
    MISSING = auto()  # no such group
    BUG = auto()  # only the broker itself could have asked


Step: TypeAlias = GroupState | Hold
S, H = GroupState, Hold
_COLUMNS: Final = (S.EMPTY, S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE, S.STABLE, S.DEAD)


def _row(*steps: Step) -> Mapping[GroupState, Step]:
    return dict(zip(_COLUMNS, steps, strict=True))  # strict: a gap in the table does not import


_PREPARE: Final = S.PREPARING_REBALANCE
_COMPLETE: Final = S.COMPLETING_REBALANCE

# fmt: off
NEXT: Final[Mapping[Input, Mapping[GroupState, Step]]] = {
    #                      EMPTY      PREPARING    COMPLETING   STABLE      DEAD
    Input.JOIN:       _row(_PREPARE,  _PREPARE,    _PREPARE,    _PREPARE,   _PREPARE),
    Input.LEAD:       _row(H.UNKNOWN, _PREPARE,    H.DONE,      _PREPARE,   H.UNKNOWN),
    Input.REJOIN:     _row(H.UNKNOWN, _PREPARE,    H.DONE,      H.DONE,     H.UNKNOWN),
    Input.REPLACE:    _row(H.UNKNOWN, _PREPARE,    _PREPARE,    H.DONE,     H.UNKNOWN),
    Input.JOINED:     _row(H.BUG,     _COMPLETE,   H.BUG,       H.BUG,      H.BUG),
    Input.DESERTED:   _row(H.BUG,     S.EMPTY,     H.BUG,       H.BUG,      H.BUG),
    Input.SYNC:       _row(H.UNKNOWN, H.REBALANCE, H.WAIT,      H.DONE,     H.UNKNOWN),
    Input.ASSIGN:     _row(H.UNKNOWN, H.REBALANCE, S.STABLE,    H.DONE,     H.UNKNOWN),
    Input.HEARTBEAT:  _row(H.UNKNOWN, H.REBALANCE, H.DONE,      H.DONE,     H.UNKNOWN),
    Input.LEAVE:      _row(H.UNKNOWN, _PREPARE,    _PREPARE,    _PREPARE,   H.UNKNOWN),
    Input.COMMIT:     _row(H.UNKNOWN, H.DONE,      H.REBALANCE, H.DONE,     H.MISSING),
    Input.SIMPLE:     _row(H.DONE,    H.UNKNOWN,   H.UNKNOWN,   H.UNKNOWN,  S.EMPTY),
    Input.TXN_COMMIT: _row(H.UNKNOWN, H.DONE,      H.DONE,      H.DONE,     H.MISSING),
    Input.TXN_SIMPLE: _row(H.DONE,    H.DONE,      H.DONE,      H.DONE,     S.EMPTY),
    Input.DELETE:     _row(S.DEAD,    H.OCCUPIED,  H.OCCUPIED,  H.OCCUPIED, H.MISSING),
}
# fmt: on


def refusal(hold: Hold, group: ClassicGroup) -> BrokerError:
    """What the client is told when its group does not take the step."""
    match hold:
        case Hold.REBALANCE:
            return RebalanceInProgress(f"{group.group_id} is {group.state.value}")
        case Hold.UNKNOWN:
            return UnknownMemberId(f"{group.group_id} has no such member")
        case Hold.OCCUPIED:
            return NonEmptyGroup(f"{group.group_id} has {len(group.members)} members")
        case Hold.MISSING:
            return GroupIdNotFound(f"there is no group {group.group_id!r}")
        case Hold.DONE | Hold.WAIT | Hold.BUG:
            raise AssertionError(f"{hold} is no refusal; {group.group_id} is {group.state}")
