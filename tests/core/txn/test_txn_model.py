"""Any order of starts, additions, ends, repeats, timeouts, markers and crashes keeps the promises.

- A transaction has one outcome at most, and what is prepared is what is completed.
- Epochs of a producer id only grow, and a producer id belongs to one transactional id for ever.
- An identity is given to one producer; only that one's own repeats get it again.
- Once a newer instance is let in, or has begun to push out an older one, nothing that was given out
  before succeeds any more.
- A commit that was answered with success is in the log; so is no commit behind a successful abort.
- Nothing stays open: when the markers are written and time has passed, everybody can start anew.

Every request may be delivered again at any later time, and so may a timeout and the news that the
markers are written. An append may fail. The model knows nothing of tables: it reads the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.core.errors import BrokerError
from oncelog.core.txn.commands import (
    AddPartitions,
    Busy,
    EndTxn,
    ExpireIds,
    Identity,
    InitProducerId,
    Overdue,
    ProducerIdNeeded,
    WriteMarkers,
)
from oncelog.core.txn.machine import IDLE, PREPARED, TxnState
from oncelog.core.txn.records import Forgotten, Txn
from oncelog.core.types import Now, TopicPartition
from tests.core.txn.builders import (
    DAY_MS,
    P0,
    P1,
    P2,
    V1,
    V2,
    Coordinator,
    a_txn,
    add,
    end,
    identity,
    init,
    marked,
)

T = TypeVar("T")
S = TxnState
NAMES = ("a", "b")
PLACES = st.sampled_from([(), (P0,), (P1,), (P0, P2)])
#: Mostly what is recent: from the end of a list.
PICK = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 8])


@dataclass
class Producer:
    """An instance of an application: it knows what it was told, and may be a zombie."""

    number: int
    name: str
    version: int
    who: Identity | None = None


@dataclass
class Sent:
    """A request on the network, which may deliver it more than once."""

    producer: Producer
    command: InitProducerId | AddPartitions | EndTxn


@dataclass
class Past:
    """What the log has said of one transactional id."""

    last: Txn | None = None
    #: By producer id and epoch: the outcomes of what was open under it, oldest first.
    outcomes: dict[tuple[int, int], list[TxnState]] = field(default_factory=dict)

    def hear(self, txn: Txn) -> None:
        before = self.last
        match txn.state:
            case S.ONGOING:
                self._hear_ongoing(before, txn)
            case S.PREPARE_COMMIT | S.PREPARE_ABORT:
                self._hear_prepared(before, txn)
            case S.COMPLETE_COMMIT | S.COMPLETE_ABORT:
                self._hear_complete(before, txn)
            case S.EMPTY:
                assert before is None or before.state in IDLE, f"{before} became {txn}"
        self.last = txn

    def _hear_ongoing(self, before: Txn | None, txn: Txn) -> None:
        assert before is not None, f"{txn} came out of nothing"
        assert (before.producer_id, before.producer_epoch) == (txn.producer_id, txn.producer_epoch)
        if before.state is S.ONGOING:
            assert set(before.topic_partitions()) < set(txn.topic_partitions())
            assert before.started_at_ms == txn.started_at_ms
        else:
            assert before.state in IDLE, f"{before} became {txn}"
            assert before.started_at_ms != txn.started_at_ms

    def _hear_prepared(self, before: Txn | None, txn: Txn) -> None:
        assert before is not None, f"{txn} came out of nothing"
        assert before.producer_id == txn.producer_id
        if before.state is S.ONGOING:
            assert before.partitions == txn.partitions
            key = (before.producer_id, before.producer_epoch)
            self.outcomes.setdefault(key, []).append(txn.state)
        else:  # an abort of nothing
            assert before.state in IDLE, f"{before} became {txn}"
            assert txn.state is S.PREPARE_ABORT
            assert txn.producer_epoch == before.producer_epoch + 1

    def _hear_complete(self, before: Txn | None, txn: Txn) -> None:
        assert before is not None, f"{txn} came out of nothing"
        if before.state is txn.state:  # a new timeout
            assert before.partitions == txn.partitions
            return
        assert before.state.label.replace("Prepare", "Complete") == txn.state.label
        if before.next_producer_id is None:
            assert before.producer_epoch == txn.producer_epoch
        else:
            assert (txn.producer_id, txn.producer_epoch) == (before.next_producer_id, 0)


class Transactions(RuleBasedStateMachine):
    """Two transactional ids, and instances that fight over them."""

    @initialize(
        level=st.sampled_from([0, 1, 2, 2]),
        epochs=st.tuples(*[st.sampled_from([None, 0, 32_763, 32_766])] * len(NAMES)),
    )
    def begin(self, level: int, epochs: tuple[int | None, ...]) -> None:
        self.coordinator = Coordinator(level=level)
        # Below level 2 clients are not told of V2, and so do not speak it.
        self.versions = (V1, V2) if level == 2 else (V1,)
        self.pasts = {name: Past() for name in NAMES}
        self.producers: list[Producer] = []
        self.sent: list[Sent] = []
        self.heard = 0
        self.step = 0
        self.owners: dict[Identity, Producer] = {}
        self.given_at: dict[Identity, int] = {}
        self.fenced_at = dict.fromkeys(NAMES, 0)
        self.names_of: dict[int, str] = {}
        self.highest: dict[int, int] = {}
        for index, epoch in enumerate(epochs):
            if epoch is not None:
                txn = a_txn(name=NAMES[index], state=S.EMPTY, epoch=epoch, producer_id=index)
                self.coordinator.put(txn)
        self._listen()

    # --- what producers do

    @rule(name=st.sampled_from(NAMES), pick=st.integers(0, 1))
    def start(self, name: str, pick: int) -> None:
        """A new instance comes up, knowing nothing but its name."""
        version = self.versions[pick % len(self.versions)]
        self.producers.append(Producer(len(self.producers), name, version))
        self._send(self.producers[-1], init(name=name))

    @precondition(lambda self: self.producers)
    @rule(pick=PICK, timeout_ms=st.sampled_from([60_000, 1_000]))
    def recover(self, pick: int, timeout_ms: int) -> None:
        """KIP-360; one that was never told who it is asks like a new one."""
        producer = self._producer(pick)
        self._send(producer, init(producer.who, name=producer.name, timeout_ms=timeout_ms))

    @precondition(lambda self: self.producers)
    @rule(pick=PICK, places=PLACES)
    def add(self, pick: int, places: tuple[TopicPartition, ...]) -> None:
        producer = self._producer(pick)
        if producer.who is not None:
            version = producer.version
            self._send(producer, add(producer.who, *places, name=producer.name, version=version))

    @precondition(lambda self: self.producers)
    @rule(pick=PICK, committed=st.booleans())
    def end(self, pick: int, committed: bool) -> None:
        producer = self._producer(pick)
        if producer.who is not None:
            version = producer.version
            command = end(producer.who, committed=committed, name=producer.name, version=version)
            self._send(producer, command)

    @precondition(lambda self: self.producers)
    @rule(pick=PICK, committed=st.booleans())
    def transact(self, pick: int, committed: bool) -> None:
        """Begin and end one, as a client does when nothing goes wrong."""
        producer = self._producer(pick)
        self.add(pick, (P0,))
        self.end(pick, committed)
        self.write_the_markers_that_wait(producer.name)

    @precondition(lambda self: self.producers)
    @rule(pick=PICK)
    def replace(self, pick: int) -> None:
        """A new instance finds a transaction of an older one open, and has to wait."""
        self.add(pick, (P0,))
        self.start(self._producer(pick).name, pick % 2)

    @precondition(lambda self: self.sent)
    @rule(pick=PICK)
    def deliver_again(self, pick: int) -> None:
        """Late, and nobody waits for the answer."""
        self._deliver(recent(self.sent, pick))

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 200))
    def deliver_again_after_long(self, pick: int) -> None:
        self._deliver(recent(self.sent, pick))

    @precondition(lambda self: self.sent)
    @rule(pick=PICK)
    def fail_an_append(self, pick: int) -> None:
        """Decided, not written: as if it had never been asked."""
        try:
            self.coordinator.shard.decide(recent(self.sent, pick).command, self.coordinator.now)
        except (BrokerError, ProducerIdNeeded):
            pass

    # --- what happens around them

    @rule(pick=PICK)
    def write_markers(self, pick: int) -> None:
        """The markers of some transaction are written, or its completion is heard of again."""
        orders = self.coordinator.marker_orders()
        if orders:
            self._complete(recent(orders, pick))

    @rule(name=st.sampled_from(NAMES))
    def write_the_markers_that_wait(self, name: str) -> None:
        txn = self.coordinator.shard.get(name)
        if txn is not None and txn.state in PREPARED:
            self._complete(WriteMarkers(txn=txn, committed=txn.state is S.PREPARE_COMMIT))

    @rule(ms=st.sampled_from([0, 30_000, 60_000]), wall_ms=st.sampled_from([0, -60_000]))
    def let_time_pass(self, ms: int, wall_ms: int) -> None:
        self.coordinator.advance(ms=ms)
        now = self.coordinator.now
        self.coordinator.now = Now(now.wall_ms + wall_ms, now.monotonic_ms)

    @rule(pick=PICK)
    def time_out(self, pick: int) -> None:
        """Some timeout is carried out, or once more."""
        overdue = self.coordinator.overdue()
        if overdue:
            self._time_out(recent(overdue, pick))

    @precondition(lambda self: self.step % 7 == 3)
    @rule()
    def forget_idle_ids(self) -> None:
        self._pass(8 * DAY_MS)
        self.coordinator.ask(ExpireIds())
        self._listen()

    @rule()
    def crash(self) -> None:
        orders = self.coordinator.resumed()
        assert [order.txn for order in orders] == [
            txn for txn in self.coordinator.shard if txn.state in PREPARED
        ]
        self.coordinator.effects += orders

    # --- what must hold

    @invariant()
    def the_shard_is_what_the_log_says(self) -> None:
        for name in NAMES:
            assert self.coordinator.level == 0 or (
                self.coordinator.shard.get(name) == self.pasts[name].last
            )

    def teardown(self) -> None:
        """After healing: nothing stays open, and everybody can start anew."""
        if not hasattr(self, "coordinator"):
            return
        self.coordinator.advance(ms=120_000)
        for overdue in self.coordinator.overdue():
            self._time_out(overdue)
        for name in NAMES:
            self.write_the_markers_that_wait(name)
            txn = self.coordinator.shard.get(name)
            assert txn is None or txn.state in IDLE, f"{txn} stays open"
            self.start(name, 0)
            assert self.producers[-1].who is not None

    # --- how it is done

    def _producer(self, pick: int) -> Producer:
        return recent(self.producers, pick)

    def _pass(self, ms: int) -> None:
        now = self.coordinator.now
        self.coordinator.now = Now(now.wall_ms + ms, now.monotonic_ms)

    def _send(self, producer: Producer, command: InitProducerId | AddPartitions | EndTxn) -> None:
        self.sent.append(Sent(producer, command))
        answer = self._deliver(self.sent[-1])
        if answer is not None:
            producer.who = answer

    def _deliver(self, sent: Sent) -> Identity | None:
        self.step += 1
        command = sent.command
        was_known = self.coordinator.shard.get(command.transactional_id) is not None
        try:
            reply = self.coordinator.ask(command)
        except BrokerError:
            self._listen()
            return None
        self._listen()
        match command:
            case InitProducerId():
                self._check_start(sent.producer, command, reply, was_known=was_known)
            case AddPartitions():
                self._check_use(command.transactional_id, who_sent(command))
                self._check_added(command)
            case EndTxn():
                self._check_use(command.transactional_id, who_sent(command))
                self._check_outcome(command)
        if isinstance(reply, Identity):
            self._give(sent.producer, reply)
            return reply
        return None

    def _check_start(
        self, producer: Producer, command: InitProducerId, reply: object, *, was_known: bool
    ) -> None:
        assert isinstance(reply, Identity | Busy)
        if command.supplied is None or not was_known:
            self.fenced_at[producer.name] = self.step
        else:
            self._check_use(producer.name, identity(*command.supplied))

    def _check_use(self, name: str, who: Identity) -> None:
        assert self.given_at[who] >= self.fenced_at[name], f"{who} was fenced and succeeded"

    def _check_added(self, command: AddPartitions) -> None:
        for place, _ in command.partitions:
            who = who_sent(command)
            self.coordinator.shard.verify(
                command.transactional_id, who.producer_id, who.producer_epoch, place
            )

    def _check_outcome(self, command: EndTxn) -> None:
        """Check 120: what a client is told is what the log says of the transaction it meant."""
        who = who_sent(command)
        past = self.pasts[command.transactional_id]
        outcomes = past.outcomes.get((who.producer_id, who.producer_epoch), [])
        if command.client_version == V2:
            assert len(outcomes) <= 1, f"{who} had more than one transaction"
        if command.committed:
            assert outcomes[-1] is S.PREPARE_COMMIT, f"{command} succeeded"
        elif outcomes:
            assert outcomes[-1] is S.PREPARE_ABORT, f"{command} succeeded"

    def _give(self, producer: Producer, who: Identity) -> None:
        assert 0 <= who.producer_epoch <= 32_766
        owner = self.owners.setdefault(who, producer)
        assert owner is producer, f"{who} was given to {owner} and to {producer}"
        self.given_at.setdefault(who, self.step)

    def _complete(self, order: WriteMarkers) -> None:
        before = self.coordinator.shard.get(order.txn.transactional_id)
        size = len(self.coordinator.log)
        self.coordinator.ask(marked(order.txn))
        assert len(self.coordinator.log) == size or before == order.txn or self._is_old(before)
        self._listen()

    def _is_old(self, before: Txn | None) -> bool:
        # Without tags a crash takes away what tells a transaction's client and topic ids.
        return self.coordinator.level == 0 and before is not None and before.state in PREPARED

    def _time_out(self, overdue: Overdue) -> None:
        before = self.coordinator.shard.get(overdue.transactional_id)
        size = len(self.coordinator.log)
        self.coordinator.time_out(overdue)
        if len(self.coordinator.log) > size:
            assert before is not None
            assert before.started_at_ms == overdue.started_at_ms
        self._listen()

    def _listen(self) -> None:
        """Take in what the log has got since the last time."""
        for record in self._news():
            past = self.pasts[record.transactional_id]
            if isinstance(record, Forgotten):
                assert past.last is not None
                assert past.last.state in IDLE, f"{past.last} was forgotten"
                past.last = None
                continue
            past.hear(record)
            self._check_epoch(record)

    def _check_epoch(self, txn: Txn) -> None:
        owner = self.names_of.setdefault(txn.producer_id, txn.transactional_id)
        assert owner == txn.transactional_id, f"{txn.producer_id} is {owner}'s"
        assert self.highest.get(txn.producer_id, 0) <= txn.producer_epoch <= 32_767
        self.highest[txn.producer_id] = txn.producer_epoch

    def _news(self) -> list[Txn | Forgotten]:
        new = self.coordinator.decoded(self.heard)
        self.heard = len(self.coordinator.log)
        return new


def recent(items: Sequence[T], pick: int) -> T:
    return items[-1 - pick % len(items)]


def who_sent(command: AddPartitions | EndTxn) -> Identity:
    return identity(command.producer_id, command.producer_epoch)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- long lives: what hypothesis finds in few steps, chance finds in many ---------------------------

STEPS = 400
LEVELS = (0, 1, 2, 2, 2)
EPOCHS = (None, 0, 32_700, 32_760)
WEIGHTS: dict[Callable[[Transactions, Random], object], int] = {
    lambda m, r: m.start(r.choice(NAMES), r.randrange(2)): 2,
    lambda m, r: m.replace(r.randrange(4)): 2,
    lambda m, r: m.recover(r.randrange(4), r.choice((60_000, 1_000))): 3,
    lambda m, r: m.add(r.randrange(4), r.choice(((), (P0,), (P0, P2)))): 12,
    lambda m, r: m.end(r.randrange(4), r.random() < 0.5): 12,
    lambda m, r: m.transact(r.randrange(3), r.random() < 0.5): 6,
    lambda m, r: m.deliver_again(r.randrange(6)): 8,
    lambda m, r: m.deliver_again(r.randrange(10**6)): 4,
    lambda m, r: m.fail_an_append(r.randrange(6)): 2,
    lambda m, r: m.write_markers(r.randrange(4)): 8,
    lambda m, r: m.write_the_markers_that_wait(r.choice(NAMES)): 12,
    lambda m, r: m.let_time_pass(r.choice((0, 1, 30_000, 60_000)), r.choice((0, -60_000))): 3,
    lambda m, r: m.time_out(r.randrange(4)): 4,
    lambda m, r: m.crash(): 3,
}


@pytest.mark.parametrize("seed", range(40))
def test_a_long_random_life(seed: int) -> None:
    """Checks 118-120; the seed is all that is needed to see it again."""
    chance = Random(seed)
    machine = Transactions()
    machine.begin(LEVELS[seed % len(LEVELS)], tuple(chance.choice(EPOCHS) for _ in NAMES))
    for name in NAMES:
        machine.start(name, chance.randrange(2))
    for step in chance.choices([*WEIGHTS], [*WEIGHTS.values()], k=STEPS):
        step(machine, chance)
        machine.the_shard_is_what_the_log_says()
        if chance.random() < 0.003:
            machine.forget_idle_ids()
    machine.teardown()

    left = [machine.coordinator.shard.get(name) for name in NAMES]
    assert all(txn is None or txn.state in IDLE for txn in left)
