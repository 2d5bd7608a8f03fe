"""From one generation to the next: collect the joins, begin anew, and what time does to a group.

A generation is written down before anyone is told of it, so that generations only grow, crash or
not. Kafka first writes it with the leader's assignment and may hand out the same number twice.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from oncelog.core.decision import Decision
from oncelog.core.errors import BrokerError, RebalanceInProgress, UnknownMemberId
from oncelog.core.groups.changes import GroupChanged, GroupDecision
from oncelog.core.groups.commands import (
    PARKED,
    Answer,
    GroupRebalanced,
    Joined,
    JoinedMember,
    MemberExpired,
    Reply,
)
from oncelog.core.groups.config import GroupConfig
from oncelog.core.groups.group import ClassicGroup, GroupState, InitialDelay, Member
from oncelog.core.groups.machine import NEXT, Hold, Input, refusal
from oncelog.core.types import Now

S = GroupState

#: How often to look again whether one of the absent static members has come back to lead.
MIN_WAIT_FOR_STATIC_MEMBERS_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A group on its way through one decision, and what was caused so far."""

    group: ClassicGroup
    answers: tuple[Answer, ...] = ()
    notes: tuple[object, ...] = ()
    is_written: bool = False

    def then(self, step: Callable[[ClassicGroup], "Change"]) -> "Change":
        """One step further; what was caused before it stays in front."""
        after = step(self.group)
        return Change(
            group=after.group,
            answers=self.answers + after.answers,
            notes=self.notes + after.notes,
            is_written=self.is_written or after.is_written,
        )

    def decision(self, reply: Reply) -> GroupDecision:
        """What the shard is to do with all this."""
        if not self.is_written:
            changed = GroupChanged(group=self.group)
            return Decision(reply=reply, records=(changed,), effects=self.answers, notes=self.notes)
        written = self.group.metadata()
        changed = GroupChanged(group=replace(self.group, written=written))
        return Decision(
            reply=reply, records=(written, changed), effects=self.answers, notes=self.notes
        )

    def decision_for(self, ticket: int) -> GroupDecision:
        """Like `decision`; if the asker's own answer is among them, it need not be parked."""
        own = next((a.outcome for a in self.answers if a.ticket == ticket), PARKED)
        assert not isinstance(own, BrokerError), f"ticket {ticket} parked and refused at once"
        others = tuple(answer for answer in self.answers if answer.ticket != ticket)
        return replace(self, answers=others).decision(own)


def move(group: ClassicGroup, step: Input, now: Now, config: GroupConfig) -> Change:
    """Take the step of the table for a change of membership that has been made."""
    match NEXT[step][group.state]:
        case S.PREPARING_REBALANCE if group.state is S.PREPARING_REBALANCE:
            return _complete_if_all_joined(group, now)
        case S.PREPARING_REBALANCE:
            return _prepare(group, now, config)
        case Hold() as hold:
            raise refusal(hold, group)
        case GroupState() as state:
            raise AssertionError(f"{step} does not lead from {group.state} to {state}")


def _prepare(group: ClassicGroup, now: Now, config: GroupConfig) -> Change:
    """Begin to collect joins; whoever waits for an assignment is told that none will come."""
    again = RebalanceInProgress(f"{group.group_id} rebalances")
    answers = refuse((m.sync_ticket for m in group.members.values()), again)
    released = (
        m if m.sync_ticket is None else replace(m, sync_ticket=None).heard(now.monotonic_ms)
        for m in group.members.values()
    )
    is_first = group.state in (S.EMPTY, S.DEAD)
    delay_ms = config.group_initial_rebalance_delay_ms if is_first else 0
    timeout_ms = group.rebalance_timeout_ms
    delay = InitialDelay(remaining_ms=max(timeout_ms - delay_ms, 0)) if delay_ms else None
    preparing = replace(
        group.with_members(replace(member, owes_sync=False) for member in released),
        state=S.PREPARING_REBALANCE,
        state_since_ms=now.wall_ms,
        initial_delay=delay,
        phase_ends_at_ms=now.monotonic_ms + (delay_ms or timeout_ms),
    )
    change = Change(group=preparing, answers=answers)
    if is_first and not delay_ms:
        return change.then(lambda g: _complete_join(g, now))
    return change.then(lambda g: _complete_if_all_joined(g, now))


def _complete_if_all_joined(group: ClassicGroup, now: Now) -> Change:
    is_waiting = group.state is S.PREPARING_REBALANCE and group.initial_delay is None
    if is_waiting and group.has_all_joined:
        return _complete_join(group, now)
    return Change(group=group)


def _complete_join(group: ClassicGroup, now: Now) -> Change:
    """Begin the next generation with those who have joined; static members keep their place."""
    change = Change(group=group)
    for member in group.members.values():
        if member.join_ticket is None and member.group_instance_id is None:
            change = change.then(partial(_expel, member=member))
    return change.then(lambda g: _begin_with_joined(g, now))


def _begin_with_joined(group: ClassicGroup, now: Now) -> Change:
    if not group.members:
        return _begin_empty(group, now)
    joined = [m.member_id for m in group.members.values() if m.join_ticket is not None]
    if not joined:
        # Only absent static members are left: one that comes back leads, or all of them expire.
        wait_ms = max(group.rebalance_timeout_ms, MIN_WAIT_FOR_STATIC_MEMBERS_MS)
        waiting = replace(group, initial_delay=None, phase_ends_at_ms=now.monotonic_ms + wait_ms)
        return Change(group=waiting)
    leader = group.leader if group.leader in joined else joined[0]
    return _begin_generation(replace(group, leader=leader), now)


def _begin_empty(group: ClassicGroup, now: Now) -> Change:
    state = NEXT[Input.DESERTED][group.state]
    assert isinstance(state, GroupState), f"{group.group_id} is {group.state}: {state}"
    empty = replace(
        group,
        state=state,
        state_since_ms=now.wall_ms,
        generation_id=group.generation_id + 1,
        protocol_name=None,
        leader=None,
        initial_delay=None,
        phase_ends_at_ms=None,
    )
    return Change(group=empty, notes=(_rebalanced(empty),), is_written=True)


def _begin_generation(group: ClassicGroup, now: Now) -> Change:
    state = NEXT[Input.JOINED][group.state]
    assert isinstance(state, GroupState), f"{group.group_id} is {group.state}: {state}"
    begun = replace(
        group.with_members(_begin(member, now) for member in group.members.values()),
        state=state,
        state_since_ms=now.wall_ms,
        generation_id=group.generation_id + 1,
        protocol_name=group.elected_protocol(),
        initial_delay=None,
        phase_ends_at_ms=now.monotonic_ms + group.rebalance_timeout_ms,
    )
    answers = tuple(
        Answer(ticket=member.join_ticket, outcome=welcome(begun, member))
        for member in group.members.values()
        if member.join_ticket is not None
    )
    return Change(group=begun, answers=answers, notes=(_rebalanced(begun),), is_written=True)


def _begin(member: Member, now: Now) -> Member:
    """A member at the start of a generation: no assignment, and a sync owed if it was told."""
    if member.join_ticket is None:
        return replace(member, assignment=b"")
    told = replace(member, assignment=b"", join_ticket=None, is_new=False, owes_sync=True)
    return told.heard(now.monotonic_ms)


def _rebalanced(group: ClassicGroup) -> GroupRebalanced:
    return GroupRebalanced(
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_count=len(group.members),
    )


def refuse(tickets: Iterable[int | None], error: BrokerError) -> tuple[Answer, ...]:
    """The same answer for all who wait."""
    return tuple(Answer(ticket=t, outcome=error) for t in tickets if t is not None)


def welcome(group: ClassicGroup, member: Member) -> Joined:
    """What a member is told of the current generation."""
    assert group.leader is not None, f"{group.group_id} has members and no leader"
    is_leader = member.member_id == group.leader
    members = (
        JoinedMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            metadata=each.metadata_for(group.protocol_name),
        )
        for each in group.members.values()
    )
    return Joined(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader,
        member_id=member.member_id,
        members=tuple(members) if is_leader else (),
    )


def remove(group: ClassicGroup, member: Member) -> Change:
    """Take a member out; if it waits for something, it hears that it is out."""
    gone = UnknownMemberId(f"{member.member_id} was removed from {group.group_id}")
    answers = refuse((member.join_ticket, member.sync_ticket), gone)
    return Change(group=group.without(member.member_id), answers=answers)


def after_removal(change: Change, before: ClassicGroup, now: Now, config: GroupConfig) -> Change:
    """Rebalance if a member is gone; one who never joined is only no longer waited for."""
    if len(change.group.members) < len(before.members):
        return change.then(lambda g: move(g, Input.LEAVE, now, config))
    return change.then(lambda g: _complete_if_all_joined(g, now))


def expire(group: ClassicGroup, now: Now, config: GroupConfig) -> Change:
    """Everything that is due in this group."""
    change = Change(group=group)
    for member_id, deadline_at_ms in group.pending.items():
        if deadline_at_ms <= now.monotonic_ms:
            change = replace(change, group=change.group.without_pending(member_id))
    for member in group.members.values():
        if member.deadline_at_ms is not None and member.deadline_at_ms <= now.monotonic_ms:
            change = change.then(partial(_expel, member=member))
    change = after_removal(change, group, now, config)
    ends_at_ms = change.group.phase_ends_at_ms
    if ends_at_ms is not None and ends_at_ms <= now.monotonic_ms:
        change = change.then(lambda g: _end_phase(g, now, config))
    return change


def _expel(group: ClassicGroup, *, member: Member) -> Change:
    note = MemberExpired(group_id=group.group_id, member_id=member.member_id)
    return replace(remove(group, member), notes=(note,))


def _end_phase(group: ClassicGroup, now: Now, config: GroupConfig) -> Change:
    delay = group.initial_delay
    if delay is not None and delay.has_newcomer and delay.remaining_ms > 0:
        wait_ms = min(config.group_initial_rebalance_delay_ms, delay.remaining_ms)
        longer = replace(
            group,
            initial_delay=InitialDelay(remaining_ms=delay.remaining_ms - wait_ms),
            phase_ends_at_ms=now.monotonic_ms + wait_ms,
        )
        return Change(group=longer)
    if group.state is S.PREPARING_REBALANCE:
        return _complete_join(group, now)
    change = Change(group=replace(group, phase_ends_at_ms=None))
    for member in group.members.values():
        if member.owes_sync:
            change = change.then(partial(_expel, member=member))
    return after_removal(change, group, now, config)


def wake(group: ClassicGroup, now: Now, config: GroupConfig) -> ClassicGroup:
    """A group as it comes from the log, with its clocks started anew."""
    members = tuple(member.heard(now.monotonic_ms) for member in group.members.values())
    awake = group.with_members(members)
    if group.state is S.STABLE and len(members) > config.group_max_size:
        awake = replace(awake, state=S.PREPARING_REBALANCE)
    if awake.state is not S.PREPARING_REBALANCE:
        return awake
    return replace(awake, phase_ends_at_ms=now.monotonic_ms + awake.rebalance_timeout_ms)
