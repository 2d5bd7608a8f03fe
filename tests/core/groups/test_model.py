"""Any order of joins, syncs, heartbeats, commits, leaves, silence and crashes keeps the promises.

- A generation is begun once: its number never comes back with other members, crash or not.
- Within a generation no partition is handed to two members, and nobody is told two things.
- Nobody is parked for ever once time passes.
- What was committed is what is found, before and after a crash.
- What was committed inside a transaction is found when the transaction is, unless something was
  committed after it; until then everyone is told that it is undecided.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.core.errors import (
    BrokerError,
    FencedInstanceId,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.core.groups.classic import NEW_MEMBER_JOIN_TIMEOUT_MS
from oncelog.core.groups.commands import Alive, Joined, MemberIdAssigned, Synced
from oncelog.core.groups.config import GroupConfig
from tests.core.groups.builders import REBALANCE_MS, Coordinator, Ticket, protocols

PARTITIONS = 6
# Groups that nobody uses are not swept away here: a group that is deleted may begin at 1 again.
CONFIG = GroupConfig(
    group_initial_rebalance_delay_ms=200, offsets_retention_check_interval_ms=10**12
)
CLIENTS = st.integers(0, 4)
PRODUCERS = st.integers(7, 9)
TOPICS = st.sampled_from([("in",), ("in", "more")])


@dataclass
class Client:
    """What one consumer believes."""

    name: str
    instance: str | None
    lives: int = 0
    member_id: str = ""
    generation_id: int = -1
    owes_sync: bool = False
    leads: tuple[str, ...] = ()  # the members, if it leads and has to assign
    tickets: list[Ticket] = field(default_factory=list)

    def forget(self) -> None:
        self.member_id, self.generation_id, self.owes_sync, self.leads = "", -1, False, ()


class Groups(RuleBasedStateMachine):
    """Five consumers, two of them static, and one group."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(CONFIG)
        self.clients = [
            Client(name=name, instance=name.upper() if name in "ab" else None) for name in "abcde"
        ]
        self.owners: dict[str, Client] = {}  # by member id, for ever
        self.begun: dict[int, frozenset[str]] = {}  # the clients of each generation
        self.shares: dict[int, dict[str, bytes]] = {}  # what each client of a generation was told
        self.commits = 0  # counts those that were accepted: the later one wins
        self.committed: tuple[int, int] | None = None  # its number and the offset
        self.pending: dict[int, tuple[int, int]] = {}  # the same by producer id

    # --- what clients do

    @rule(index=CLIENTS, topics=TOPICS, is_old=st.booleans())
    def join(self, index: int, topics: tuple[str, ...], is_old: bool) -> None:
        client = self.clients[index]
        fresh = f"{client.name}-{client.lives}"
        client.lives += 1
        self.owners[fresh] = client
        command = self.coordinator.a_join(
            fresh,
            member_id=client.member_id,
            instance=client.instance,
            offers=protocols("range", topics=topics),
            needs_id=not is_old,
            can_skip=not is_old,
        )
        try:
            reply = self.coordinator.ask(command)
        except (UnknownMemberId, FencedInstanceId):
            client.forget()
            return
        if isinstance(reply, MemberIdAssigned):
            client.member_id = reply.member_id
        elif isinstance(reply, Joined):
            self._hear_joined(client, reply)
        else:
            client.tickets.append(Ticket(command.ticket, self.coordinator))

    @rule(index=CLIENTS)
    def restart(self, index: int) -> None:
        """The process dies without a word and comes back knowing nothing."""
        self.clients[index].forget()
        self.clients[index].tickets.clear()

    @precondition(lambda self: any(client.member_id for client in self.clients))
    @rule(index=CLIENTS, order=st.permutations(range(PARTITIONS)))
    def sync(self, index: int, order: list[int]) -> None:
        client = self.clients[index]
        assignment = {
            member_id: bytes(order[place :: len(client.leads)])
            for place, member_id in enumerate(client.leads)
        }
        try:
            ticket = self.coordinator.sync(
                client.member_id, client.generation_id, assignment, instance=client.instance
            )
        except BrokerError as refused:
            self._hear_refusal(client, refused)
            return
        client.leads, client.owes_sync = (), False
        if isinstance(ticket.answer, Synced):
            self._hear_synced(client, ticket.answer)
        else:
            client.tickets.append(ticket)

    @precondition(lambda self: any(client.member_id for client in self.clients))
    @rule(index=CLIENTS)
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        try:
            reply = self.coordinator.heartbeat(
                client.member_id, client.generation_id, instance=client.instance
            )
        except BrokerError as refused:
            self._hear_refusal(client, refused)
            return
        assert isinstance(reply, Alive)
        if reply.is_rebalancing and not client.tickets:
            self.join(index, ("in",), False)

    @rule(index=CLIENTS)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self.coordinator.leave(client.member_id)
        client.forget()

    @rule(index=CLIENTS, offset=st.integers(0, 1_000))
    def commit(self, index: int, offset: int) -> None:
        client = self.clients[index]
        try:
            self.coordinator.commit(
                offset,
                member_id=client.member_id,
                generation_id=None if client.generation_id < 0 else client.generation_id,
                instance=client.instance if client.member_id else None,
            )
        except BrokerError as refused:
            self._hear_refusal(client, refused)
            return
        self.commits += 1
        self.committed = (self.commits, offset)

    @rule(
        index=CLIENTS,
        producer_id=PRODUCERS,
        offset=st.integers(0, 1_000),
        says_who_it_is=st.booleans(),
    )
    def commit_in_txn(
        self, index: int, producer_id: int, offset: int, says_who_it_is: bool
    ) -> None:
        client = self.clients[index]
        is_known = says_who_it_is and client.generation_id >= 0
        try:
            self.coordinator.commit_in_txn(
                offset,
                producer_id=producer_id,
                member_id=client.member_id if is_known else "",
                generation_id=client.generation_id if is_known else None,
                instance=client.instance if is_known else None,
            )
        except BrokerError as refused:
            self._hear_refusal(client, refused)
            return
        self.commits += 1
        self.pending[producer_id] = (self.commits, offset)

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.coordinator.end_transaction(producer_id, committed=committed)
        pending = self.pending.pop(producer_id, None)
        if committed and pending is not None:
            self.committed = max(pending, self.committed or pending)

    @rule(
        order=st.permutations(range(5)),
        partitions=st.permutations(range(PARTITIONS)),
        rounds=st.sampled_from([1, 2, 5, 10]),
    )
    def go_on(self, order: list[int], partitions: list[int], rounds: int) -> None:
        """Everyone does what a consumer does: join, sync, heartbeat, join again if told to."""
        for index in order * rounds:
            client = self.clients[index]
            if client.tickets:
                continue
            if client.generation_id < 0:
                self.join(index, ("in",), False)
            elif client.owes_sync:
                self.sync(index, partitions)
            else:
                self.heartbeat(index)
            self.coordinator.advance(ms=100)
            self.answers_arrive()

    # --- what happens to them

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 9_999, 10_000, 30_000, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.coordinator.advance(ms=ms)

    @rule()
    def crash(self) -> None:
        self.coordinator.crash()
        for client in self.clients:
            client.tickets.clear()

    @rule()
    def wait_long(self) -> None:
        """Every timeout there is runs out: nobody may be left waiting."""
        self.coordinator.advance(ms=NEW_MEMBER_JOIN_TIMEOUT_MS + 2 * REBALANCE_MS)
        for client in self.clients:
            for ticket in client.tickets:
                assert ticket.answer is not None, f"{client.name} waits for ever"

    # --- what clients conclude

    @invariant()
    def answers_arrive(self) -> None:
        for client in self.clients:
            waiting, client.tickets = client.tickets, []
            for ticket in waiting:
                match ticket.answer:
                    case None:
                        client.tickets.append(ticket)
                    case Joined() as joined:
                        self._hear_joined(client, joined)
                    case Synced() as synced:
                        self._hear_synced(client, synced)
                    case refused:
                        self._hear_refusal(client, refused)

    def _hear_joined(self, client: Client, joined: Joined) -> None:
        self.owners[joined.member_id] = client
        client.member_id, client.generation_id = joined.member_id, joined.generation_id
        client.leads, client.owes_sync = (), True
        if not joined.members:
            return
        names = frozenset(self.owners[member.member_id].name for member in joined.members)
        generation_id = joined.generation_id
        if generation_id not in self.begun:
            assert generation_id > max(self.begun, default=0), f"{generation_id} comes late"
            self.begun[generation_id] = names
        assert self.begun[generation_id] == names, f"{generation_id} was begun twice"
        if joined.leader == joined.member_id and not joined.skip_assignment:
            client.leads = tuple(member.member_id for member in joined.members)

    def _hear_synced(self, client: Client, synced: Synced) -> None:
        shares = self.shares.setdefault(client.generation_id, {})
        assert shares.setdefault(client.name, synced.assignment) == synced.assignment
        owned = [partition for share in shares.values() for partition in share]
        assert len(owned) == len(set(owned)), f"a partition has two owners: {shares}"

    def _hear_refusal(self, client: Client, refused: BrokerError) -> None:
        assert isinstance(
            refused, UnknownMemberId | FencedInstanceId | IllegalGeneration | RebalanceInProgress
        ), refused
        if isinstance(refused, UnknownMemberId | FencedInstanceId):
            client.forget()
        else:
            client.generation_id, client.owes_sync = -1, False

    @invariant()
    def what_was_committed_is_found(self) -> None:
        fetched = self.coordinator.fetched()
        found = None if fetched.committed is None else fetched.committed.offset
        assert found == (None if self.committed is None else self.committed[1])
        assert fetched.is_stable == (not self.pending)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=60)
