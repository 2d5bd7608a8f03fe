"""What the members of a classic group ask for: to join, to sync, to be heard, to leave, to commit.

Every function takes the group as it is and returns a decision; nothing changes here. A group that
does not exist is passed in as `DEAD`. How generations follow one another is in `rebalance.py`.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from oncelog.core.decision import Decision
from oncelog.core.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.core.groups.changes import GroupDecision
from oncelog.core.groups.commands import (
    PARKED,
    Alive,
    Answer,
    CommitOffsets,
    CommitTxnOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Left,
    MemberIdAssigned,
    Synced,
    SyncGroup,
)
from oncelog.core.groups.config import GroupConfig
from oncelog.core.groups.group import ClassicGroup, GroupState, Member
from oncelog.core.groups.machine import NEXT, Hold, Input, refusal
from oncelog.core.groups.rebalance import Change, after_removal, move, refuse, remove, welcome
from oncelog.core.groups.records import MAX_STRING_BYTES, fits
from oncelog.core.groups.subscription import CONSUMER, topics_of
from oncelog.core.types import Now

S, H = GroupState, Hold

#: A member that has never been told its generation cannot heartbeat; this is how long it may wait.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000


# --- JoinGroup ------------------------------------------------------------------------------


def join(group: ClassicGroup, command: JoinGroup, now: Now, config: GroupConfig) -> GroupDecision:
    """Let a client in, let it in again, or send it away to come back with an id."""
    _check_join(group, command, config)
    if not command.member_id:
        holder = group.holder_of(command.group_instance_id)
        if holder is not None:
            return _replace(group, holder, command, now, config)
        if command.requires_known_member_id and command.group_instance_id is None:
            return _expect(group, command, now)
        return _add(group, command.fresh_member_id, command, now, config)
    if command.member_id in group.pending and command.group_instance_id is None:
        return _add(group, command.member_id, command, now, config)
    member = known_member(group, command.member_id, command.group_instance_id)
    return _rejoin(group, member, command, now, config)


def _check_join(group: ClassicGroup, command: JoinGroup, config: GroupConfig) -> None:
    _check_group_id(command.group_id)
    _check_lengths(command)
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest <= command.session_timeout_ms <= longest:
        raise InvalidSessionTimeout(f"{command.session_timeout_ms} not in {shortest}..{longest}")
    if group.state is S.DEAD and command.member_id:
        raise refusal(H.UNKNOWN, group)
    if not _has_room(group, command, config):
        raise GroupMaxSizeReached(f"{group.group_id} takes {config.group_max_size} members")
    if not _understands(group, command):
        raise InconsistentGroupProtocol(
            f"{group.group_id} is of type {group.protocol_type} with {sorted(group.common_protocols())}"
        )


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("a group with members needs a name")


def _check_lengths(command: JoinGroup) -> None:
    """What is written down later, when nobody is there to be refused, must fit."""
    texts = (
        command.group_id,
        command.group_instance_id,
        command.client_id,
        command.client_host,
        command.protocol_type,
        command.fresh_member_id,
        *(protocol.name for protocol in command.protocols),
    )
    if not all(fits(text) for text in texts):
        raise InvalidRequest(f"a name or an id has more than {MAX_STRING_BYTES} bytes")


def _has_room(group: ClassicGroup, command: JoinGroup, config: GroupConfig) -> bool:
    member = group.members.get(command.member_id) or group.holder_of(command.group_instance_id)
    match group.state:
        case S.EMPTY | S.DEAD:
            return True
        case S.PREPARING_REBALANCE:
            # Whoever joins first is in: there may be more members than seats since a restart.
            joined = sum(m.join_ticket is not None for m in group.members.values())
            is_seated = member is not None and member.join_ticket is not None
            return is_seated or joined < config.group_max_size
        case S.COMPLETING_REBALANCE | S.STABLE:
            return member is not None or len(group.members) < config.group_max_size


def _understands(group: ClassicGroup, command: JoinGroup) -> bool:
    if not command.protocol_type or not command.protocols:
        return False
    if not group.members:
        return True
    common = group.common_protocols()
    return command.protocol_type == group.protocol_type and any(
        protocol.name in common for protocol in command.protocols
    )


def _expect(group: ClassicGroup, command: JoinGroup, now: Now) -> GroupDecision:
    """KIP-394: a client that dies before it knows its id must not leave a member behind."""
    deadline_at_ms = now.monotonic_ms + command.session_timeout_ms
    expecting = replace(
        group,
        state=S.EMPTY if group.state is S.DEAD else group.state,
        pending={**group.pending, command.fresh_member_id: deadline_at_ms},
    )
    return Change(group=expecting).decision(MemberIdAssigned(member_id=command.fresh_member_id))


def _add(
    group: ClassicGroup, member_id: str, command: JoinGroup, now: Now, config: GroupConfig
) -> GroupDecision:
    member = Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
        is_new=True,
        join_ticket=command.ticket,
        deadline_at_ms=now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
    )
    delay = group.initial_delay
    grown = replace(
        group.without_pending(member_id).with_member(member),
        protocol_type=group.protocol_type if group.members else command.protocol_type,
        leader=group.leader or member_id,
        initial_delay=None if delay is None else replace(delay, has_newcomer=True),
    )
    return move(grown, Input.JOIN, now, config).decision_for(command.ticket)


def _rejoin(
    group: ClassicGroup, member: Member, command: JoinGroup, now: Now, config: GroupConfig
) -> GroupDecision:
    if member.protocols != command.protocols:
        step = Input.JOIN
    elif member.member_id == group.leader:
        step = Input.LEAD
    else:
        step = Input.REJOIN
    if NEXT[step][group.state] is Hold.DONE:
        heard = group.with_member(member.heard(now.monotonic_ms))
        return Change(group=heard).decision(welcome(group, member))
    # A ticket that is replaced was given up by its client, but the host still holds it.
    answers = refuse((member.join_ticket,), RebalanceInProgress(f"{member.member_id} asked again"))
    again = replace(_offering(member, command), join_ticket=command.ticket)
    again = replace(again, deadline_at_ms=member.deadline_at_ms if member.is_new else None)
    change = Change(group=group.with_member(again), answers=answers)
    return change.then(lambda g: move(g, step, now, config)).decision_for(command.ticket)


def _replace(
    group: ClassicGroup, holder: Member, command: JoinGroup, now: Now, config: GroupConfig
) -> GroupDecision:
    """KIP-345: a restarted static member takes over its place, and fences who held it."""
    fenced = FencedInstanceId(f"{holder.group_instance_id} is now {command.fresh_member_id}")
    answers = refuse((holder.join_ticket, holder.sync_ticket), fenced)
    successor = replace(
        _offering(holder, command),
        member_id=command.fresh_member_id,
        is_new=False,
        join_ticket=command.ticket,
        sync_ticket=None,
        owes_sync=False,
        deadline_at_ms=None,
    )
    swapped = replace(
        group.with_members(successor if m is holder else m for m in group.members.values()),
        leader=successor.member_id if group.leader == holder.member_id else group.leader,
    )
    step = Input.REPLACE if _is_same_to_others(swapped, holder, successor) else Input.JOIN
    if NEXT[step][group.state] is not Hold.DONE:
        change = Change(group=swapped, answers=answers)
        return change.then(lambda g: move(g, step, now, config)).decision_for(command.ticket)
    settled = swapped.with_member(replace(successor, join_ticket=None).heard(now.monotonic_ms))
    reply = welcome(settled, successor)
    if command.can_skip_assignment:
        # KIP-814: the leader must know that it leads, to watch the topics, but not assign now.
        reply = replace(reply, skip_assignment=settled.leader == successor.member_id)
    elif group.leader == holder.member_id:
        # An older client would assign if it heard that it leads, and nobody else would listen.
        reply = replace(reply, leader=holder.member_id, members=())
    return Change(group=settled, answers=answers, is_written=True).decision(reply)


def _offering(member: Member, command: JoinGroup) -> Member:
    """The member with what this JoinGroup says of it."""
    return replace(
        member,
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
    )


def _is_same_to_others(group: ClassicGroup, holder: Member, successor: Member) -> bool:
    """Whether a restart may keep the assignment: same assignor, same topics.

    The metadata as such differs after every restart (it names the partitions owned). Kafka looks
    at the assignor alone, so a restart with other topics goes unnoticed until the next rebalance.
    """
    if group.state is not S.STABLE:
        return True  # there is no assignment to keep
    if group.elected_protocol() != group.protocol_name:
        return False
    if group.protocol_type != CONSUMER:
        return True
    before = topics_of(holder.metadata_for(group.protocol_name))
    after = topics_of(successor.metadata_for(group.protocol_name))
    return before is None or after is None or before == after


# --- SyncGroup ------------------------------------------------------------------------------


def sync(group: ClassicGroup, command: SyncGroup, now: Now) -> GroupDecision:
    """Take the leader's assignment, or hand a member its share as soon as there is one."""
    _check_group_id(command.group_id)
    member = _current_member(group, command)
    for asked, actual in (
        (command.protocol_type, group.protocol_type),
        (command.protocol_name, group.protocol_name),
    ):
        if asked is not None and asked != actual:
            raise InconsistentGroupProtocol(f"{group.group_id} uses {actual}, not {asked}")
    is_leader = member.member_id == group.leader
    match NEXT[Input.ASSIGN if is_leader else Input.SYNC][group.state]:
        case Hold.DONE:
            heard = replace(member.heard(now.monotonic_ms), owes_sync=False)
            change = Change(group=_without_idle_phase(group.with_member(heard)))
            return change.decision(_synced(group, member))
        case Hold.WAIT:
            again = RebalanceInProgress(f"{member.member_id} asked again")
            parked = replace(
                member, sync_ticket=command.ticket, owes_sync=False, deadline_at_ms=None
            )
            return Change(
                group=group.with_member(parked), answers=refuse((member.sync_ticket,), again)
            ).decision(PARKED)
        case GroupState() as state:
            return _assign(group, state, member, command, now)
        case hold:
            raise refusal(hold, group)


def _assign(
    group: ClassicGroup, state: GroupState, leader: Member, command: SyncGroup, now: Now
) -> GroupDecision:
    shares = dict(command.assignments)
    assigned = (
        replace(member, assignment=shares.get(member.member_id, b""))
        for member in group.members.values()
    )
    served = group.with_members(
        replace(
            member,
            sync_ticket=None,
            owes_sync=member.owes_sync and member.member_id != leader.member_id,
        )
        for member in assigned
    )
    waiting = [m for m in group.members.values() if m.sync_ticket is not None]
    answers = tuple(
        Answer(ticket=m.sync_ticket, outcome=_synced(group, served.members[m.member_id]))
        for m in waiting
        if m.sync_ticket is not None
    )
    for each in (leader, *waiting):
        served = served.with_member(served.members[each.member_id].heard(now.monotonic_ms))
    stable = _without_idle_phase(replace(served, state=state, state_since_ms=now.wall_ms))
    reply = _synced(stable, stable.members[leader.member_id])
    return Change(group=stable, answers=answers, is_written=True).decision(reply)


def _synced(group: ClassicGroup, member: Member) -> Synced:
    return Synced(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _without_idle_phase(group: ClassicGroup) -> ClassicGroup:
    """Once everyone has synced, there is nothing to wait for."""
    if any(member.owes_sync for member in group.members.values()):
        return group
    return replace(group, phase_ends_at_ms=None)


# --- Heartbeat, LeaveGroup, OffsetCommit ----------------------------------------------------


def heartbeat(group: ClassicGroup, command: Heartbeat, now: Now) -> GroupDecision:
    """Note that a member lives, and tell it if it has to join again."""
    _check_group_id(command.group_id)
    member = _current_member(group, command)
    hold = NEXT[Input.HEARTBEAT][group.state]
    assert isinstance(hold, Hold), f"a heartbeat moves no group, but {group.state}: {hold}"
    if hold not in (H.DONE, H.REBALANCE):
        raise refusal(hold, group)
    heard = group.with_member(member.heard(now.monotonic_ms))
    return Change(group=heard).decision(Alive(is_rebalancing=hold is H.REBALANCE))


def leave(group: ClassicGroup, command: LeaveGroup, now: Now, config: GroupConfig) -> GroupDecision:
    """Remove members; each of them has an answer of its own."""
    _check_group_id(command.group_id)
    change = Change(group=group)
    outcomes = []
    for leaving in command.members:
        error = None
        try:
            change = change.then(partial(_take_leave, leaving=leaving))
        except (UnknownMemberId, FencedInstanceId) as refused:
            error = refused
        outcomes.append(
            Left(
                member_id=leaving.member_id,
                group_instance_id=leaving.group_instance_id,
                error=error,
            )
        )
    if change.group is group:
        return Decision(reply=tuple(outcomes))
    return after_removal(change, group, now, config).decision(tuple(outcomes))


def _take_leave(group: ClassicGroup, *, leaving: LeavingMember) -> Change:
    if leaving.member_id in group.pending and leaving.group_instance_id is None:
        return Change(group=group.without_pending(leaving.member_id))
    holder = group.holder_of(leaving.group_instance_id)
    if not leaving.member_id and holder is not None:
        return remove(group, holder)
    return remove(group, known_member(group, leaving.member_id, leaving.group_instance_id))


def check_commit(group: ClassicGroup, command: CommitOffsets, now: Now) -> ClassicGroup:
    """The group after a commit that it accepts: the member has been heard of."""
    if _is_simple(group, command):
        step = NEXT[Input.SIMPLE][group.state]
        if isinstance(step, Hold) and step is not H.DONE:
            raise refusal(step, group)
        return replace(group, state=step) if isinstance(step, GroupState) else group
    if group.state is S.DEAD:
        raise refusal(H.MISSING, group)
    member = _current_member(group, command)
    hold = NEXT[Input.COMMIT][group.state]
    assert isinstance(hold, Hold), f"a commit moves no group, but {group.state}: {hold}"
    if hold is not H.DONE:
        raise refusal(hold, group)
    return group.with_member(member.heard(now.monotonic_ms))


def check_txn_commit(group: ClassicGroup, command: CommitTxnOffsets) -> None:
    """Refuse a transaction's offsets from a member that has been replaced or left behind.

    A rebalance by itself is no reason (KIP-447): until the next generation begins, nobody else can
    have been given the partitions. Clients before it say nothing of themselves and are let in.
    """
    is_simple = _is_simple(group, command)
    if not is_simple and group.state is not S.DEAD:
        _current_member(group, command)
    step = NEXT[Input.TXN_SIMPLE if is_simple else Input.TXN_COMMIT][group.state]
    if isinstance(step, Hold) and step is not H.DONE:
        raise refusal(step, group)


def _is_simple(group: ClassicGroup, command: CommitOffsets | CommitTxnOffsets) -> bool:
    """Whether the client is outside the group protocol, as consumers with `assign` and tools are.

    Such a consumer may still have an instance id; without a generation it counts as one where
    there is nobody whom it could be.
    """
    is_nobody = not command.member_id and command.group_instance_id is None
    return command.generation_id is None and (is_nobody or group.state in (S.EMPTY, S.DEAD))


def known_member(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> Member:
    """The member that asks, unless it has been removed or replaced."""
    if group_instance_id is not None:
        holder = group.holder_of(group_instance_id)
        if holder is None:
            raise UnknownMemberId(f"{group.group_id} has no instance {group_instance_id}")
        if holder.member_id != member_id:
            raise FencedInstanceId(f"{group_instance_id} is now {holder.member_id}")
        return holder
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"{group.group_id} has no member {member_id!r}")
    return member


def _current_member(
    group: ClassicGroup, command: SyncGroup | Heartbeat | CommitOffsets | CommitTxnOffsets
) -> Member:
    """The member that asks, if it speaks of the current generation."""
    member = known_member(group, command.member_id, command.group_instance_id)
    if command.generation_id != group.generation_id:
        raise IllegalGeneration(
            f"{group.group_id} is at generation {group.generation_id}, not {command.generation_id}"
        )
    return member
