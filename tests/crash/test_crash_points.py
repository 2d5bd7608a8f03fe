"""Group C: a broker that dies at each step of a transaction ends it as its log says.

One transaction writes to three partitions and commits an offset of a group. The broker is killed at a
named point (`launcher.py`), which is before or after each thing that it writes, and started again.
Once the decision is written, the outcome is carried out with no help; before it, the transaction goes
on where its producer repeats what was not answered, and is rolled back by the next instance or by
the timeout. (What a power cut takes back that was written and not synced, rows 35, 38 and 44, is
simulated: `tests/sim`. Here whatever was written stays.)

Partitions sort on both sides of `__consumer_offsets`, and markers are written in that order: the
third one is the group's.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.crash.brokers import Launcher, SocketLine
from tests.txn.producer import GROUP, OK, Producer, find_coordinator
from tests.txn.reader import ends, read
from tests.txn.world import create_topic

pytestmark = pytest.mark.slow

UPPER: Final = "T"  # sorts before __consumer_offsets
LOWER: Final = "t"  # sorts after it
PLACES: Final = ((UPPER, 0), (UPPER, 1), (LOWER, 0))
ID: Final = "x"
OLD_OFFSET, NEW_OFFSET = 3, 7
#: Longer than any test, unless it is about this.
TIMEOUT_MS: Final = 60_000
SHORT_TIMEOUT_MS: Final = 400
#: An overdue transaction is aborted within this time after its timeout.
GRACE_S: Final = 2.0

Step = Callable[[Producer], object]


# --- the transaction ------------------------------------------------------------------------


def send(topic: str, partition: int, producer: Producer) -> None:
    answer = producer.send(partition, f"new {topic}-{partition}".encode(), topic=topic)
    assert answer.error_code == OK, answer


def commit_offsets(producer: Producer) -> None:
    assert producer.commit_offsets({0: NEW_OFFSET}) == [OK]


def add(producer: Producer) -> None:
    codes = producer.add_all({UPPER: (0, 1), LOWER: (0,)})
    assert set(codes.values()) == {OK}, codes


def add_offsets(producer: Producer) -> None:
    assert producer.add_offsets() == OK


def end(committed: bool, producer: Producer) -> None:
    reply = producer.end(committed)
    assert reply.error_code == OK, reply


SENDS: Final[tuple[Step, ...]] = tuple(partial(send, *place) for place in PLACES)
WRITES: Final[Mapping[bool, tuple[Step, ...]]] = {
    False: (add, *SENDS, add_offsets, commit_offsets),
    True: (*SENDS, commit_offsets),
}


def steps_of(producer: Producer, *, committed: bool) -> tuple[Step, ...]:
    return (*WRITES[producer.is_v2], partial(end, committed))


def play(producer: Producer, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Take steps until the broker dies; answers those that were not answered."""
    for done, step in enumerate(steps):
        try:
            step(producer)
        except ConnectionError:
            return steps[done:]
    return ()


# --- what is seen ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What everybody can read."""

    values: tuple[tuple[bytes, ...], ...]
    #: None while a transaction over it is open.
    offset: int | None


def seen(line: SocketLine) -> Seen:
    values = tuple(tuple(read(line, topic=topic, partition=index)) for topic, index in PLACES)
    return Seen(values, offset_of_group(line))


def offset_of_group(line: SocketLine) -> int | None:
    topics = [OffsetFetchRequestTopic(name=UPPER, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=True)
    (topic,) = line.ask(request, 7).topics
    (partition,) = topic.partitions
    if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return None
    assert partition.error_code == OK
    offset: int = partition.committed_offset
    return offset


OLD: Final = Seen(tuple((b"old",) for _ in PLACES), OLD_OFFSET)
NEW: Final = Seen(
    tuple((b"old", f"new {topic}-{index}".encode()) for topic, index in PLACES), NEW_OFFSET
)


def settle(line: SocketLine, *, within_s: float = 2.0) -> None:
    """Wait until nothing is open: the coordinator says so, and every partition."""
    deadline = time.monotonic() + within_s
    while True:
        state = Producer(line, ID).state().transaction_state
        open_places = [
            place
            for place in PLACES
            if len(set(ends(line, topic=place[0], partition=place[1]))) > 1
        ]
        is_over = state in ("Empty", "CompleteCommit", "CompleteAbort")
        if is_over and not open_places and offset_of_group(line) is not None:
            return
        assert time.monotonic() < deadline, f"{state}, {open_places} after {within_s} s"


def probe(line: SocketLine, before: Seen) -> None:
    """The next instance commits a transaction of its own in all the same places."""
    producer = Producer(line, ID, is_v2=True, topic=UPPER, timeout_ms=TIMEOUT_MS).ready()
    for topic, index in PLACES:
        assert producer.send(index, b"probe", topic=topic).error_code == OK
    assert producer.commit_offsets({0: 11}) == [OK]
    producer.commit()
    settle(line)
    assert seen(line) == Seen(tuple((*values, b"probe") for values in before.values), 11)


# --- brokers --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    with Launcher(tmp_path_factory.mktemp("launcher") / "brokers.log") as launcher:
        yield launcher


@pytest.fixture(scope="module")
def template(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with topics, coordinators, and one transaction that is over."""
    data = tmp_path_factory.mktemp("template") / "data"
    launcher.start(data)
    line = SocketLine(launcher.port)
    create_topic(line, UPPER, 2)
    create_topic(line, LOWER, 1)
    find_coordinator(line, GROUP, key_type=0)
    producer = Producer(line, ID, topic=UPPER, timeout_ms=TIMEOUT_MS).ready()
    add(producer)
    add_offsets(producer)
    for topic, index in PLACES:
        assert producer.send(index, b"old", topic=topic).error_code == OK
    assert producer.commit_offsets({0: OLD_OFFSET}) == [OK]
    producer.commit()
    settle(line)
    assert seen(line) == OLD
    line.close()
    launcher.kill()
    return data


class Case:
    """One broker that will die, and its next life."""

    def __init__(self, launcher: Launcher, data: Path, settings: Mapping[str, str]) -> None:
        self._launcher = launcher
        self._data = data
        self._settings = settings
        self._lines: list[SocketLine] = []

    def start(self, crash_at: str | None = None) -> SocketLine | None:
        """A connection to a broker that is to die at this point; None if it died at once."""
        if not self._launcher.start(self._data, self._settings, crash_at=crash_at):
            return None
        self._lines.append(SocketLine(self._launcher.port))
        return self._lines[-1]

    def running(self, crash_at: str | None = None) -> SocketLine:
        line = self.start(crash_at)
        assert line is not None, f"died at {crash_at} before it listened"
        return line

    def crashed(self) -> None:
        """It did die, at the point that was named."""
        assert self._launcher.is_gone(within_s=10), "the crash point was not reached"

    def kill(self) -> None:
        self._launcher.kill()

    def close(self) -> None:
        for line in self._lines:
            line.close()
        if self._launcher.is_running:
            self._launcher.kill()


StartCase = Callable[[str], Case]


@pytest.fixture
def start_case(launcher: Launcher, template: Path, tmp_path: Path) -> Iterator[StartCase]:
    """Makes a case with a flush mode."""
    cases: list[Case] = []

    def start(flush: str) -> Case:
        shutil.copytree(template, tmp_path / "data")
        cases.append(Case(launcher, tmp_path / "data", {"oncelog.flush": flush}))
        return cases[-1]

    yield start
    for case in cases:
        case.close()


def a_producer(line: SocketLine, *, is_v2: bool, timeout_ms: int = TIMEOUT_MS) -> Producer:
    return Producer(line, ID, is_v2=is_v2, topic=UPPER, timeout_ms=timeout_ms).ready()


# --- the sweep ------------------------------------------------------------------------------

GENERATIONS: Final = pytest.mark.parametrize("is_v2", [False, True], ids=["V1", "V2"])
#: Both generations, outcomes and flush modes, and each pair of these, without all combinations.
WAYS: Final = pytest.mark.parametrize(
    ("is_v2", "committed", "flush"),
    [
        pytest.param(False, True, "sync", id="V1-commit-sync"),
        pytest.param(False, False, "os", id="V1-abort-os"),
        pytest.param(True, True, "os", id="V2-commit-os"),
        pytest.param(True, False, "sync", id="V2-abort-sync"),
    ],
)


def both(what: str, count: int = 1) -> list[str]:
    """Before and after each of so many."""
    return [f"{when}-{what}:{n}" for n in range(1, count + 1) for when in ("before", "after")]


#: C33, C34, C36: nothing is decided. A V1 producer adds twice, a V2 one with each partition.
ADDING: Final = {False: both("added", 2), True: both("added", 4)}
WRITING: Final = [*both("data", 3), *both("offsets")]
UNDECIDED: Final = [
    pytest.param(is_v2, point, id=f"{'V2' if is_v2 else 'V1'}-{point}")
    for is_v2 in (False, True)
    for point in (*ADDING[is_v2], *WRITING, "before-prepare")
]
#: Without those at which nothing more is written than one step earlier.
UNDECIDED_AND_LEFT: Final = [
    case for case in UNDECIDED if str(case.values[1]).startswith(("after-", "before-prepare"))
]
#: C39 to C44: the decision is written, and nothing, something or all of it is carried out.
DECIDED: Final = [
    "after-prepare", "committed-prepare", "decided", *both("marker", 4),
    "before-complete", "after-complete", "committed-complete",
]  # fmt: skip


@pytest.mark.parametrize(("is_v2", "point"), UNDECIDED)
def test_c33_c34_c36_before_the_decision_a_producer_that_repeats_itself_goes_on(
    start_case: StartCase, is_v2: bool, point: str
) -> None:
    """C33, C34, C36, C37: every repeat is harmless, and the commit is whole."""
    case = start_case("os")
    producer = a_producer(case.running(point), is_v2=is_v2)
    left = play(producer, steps_of(producer, committed=True))
    assert left, "the broker died under a request"
    case.crashed()

    line = case.running()
    values = seen(line).values
    assert values == OLD.values, "nothing of it is visible yet"
    twin = producer.twin(line)
    assert play(twin, left) == ()
    settle(line)

    assert seen(line) == NEW
    assert twin.partitions() == [], "nothing is left of it"
    probe(line, NEW)


@pytest.mark.parametrize(("is_v2", "point"), UNDECIDED_AND_LEFT)
def test_c33_to_c34_c36_to_c37_before_the_decision_the_next_instance_rolls_back(
    start_case: StartCase, is_v2: bool, point: str
) -> None:
    """C33 to C37: the producer is gone too. Nothing of it is seen, and its offset is the old one."""
    case = start_case("os")
    producer = a_producer(case.running(point), is_v2=is_v2)
    left = play(producer, steps_of(producer, committed=True))
    case.crashed()

    line = case.running()
    zombie = producer.twin(line)
    a_producer(line, is_v2=is_v2)
    settle(line)

    assert seen(line) == OLD
    # Whatever the old one still sends is refused.
    assert zombie.send(0, b"zombie", topic=UPPER).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end(True).error_code == ErrorCode.PRODUCER_FENCED
    assert left, "the broker died under a request"
    probe(line, OLD)


@WAYS
@pytest.mark.parametrize("point", DECIDED)
def test_c39_to_c43_after_the_decision_it_is_carried_out_with_no_help(
    start_case: StartCase, point: str, is_v2: bool, committed: bool, flush: str
) -> None:
    """C39 to C44: rolled forward at the restart; the producer's repeat learns what was decided."""
    case = start_case(flush)
    producer = a_producer(case.running(point), is_v2=is_v2)
    left = play(producer, steps_of(producer, committed=committed))
    case.crashed()

    line = case.running()
    settle(line)

    outcome = NEW if committed else OLD
    assert seen(line) == outcome
    twin = producer.twin(line)
    state = "CompleteCommit" if committed else "CompleteAbort"
    assert twin.state().transaction_state == state
    if left:  # It was not answered: the same again succeeds, the opposite does not.
        assert twin.twin().end(not committed).error_code == ErrorCode.INVALID_TXN_STATE
        assert play(twin, left) == ()
    # Either way the producer goes on.
    twin.topic = UPPER
    assert play(twin, WRITES[is_v2]) == ()
    twin.abort()
    settle(line)
    assert seen(line) == outcome
    probe(line, outcome)


@GENERATIONS
@pytest.mark.parametrize(
    "second", ["loading:2", "before-marker", "after-marker:2", "before-complete"]
)
@pytest.mark.parametrize("first", ["after-prepare", "after-marker:3"])
def test_c48_c50_a_second_crash_during_recovery_changes_nothing(
    start_case: StartCase, first: str, second: str, is_v2: bool
) -> None:
    """C48, C50, P14."""
    case = start_case("os")
    producer = a_producer(case.running(first), is_v2=is_v2)
    play(producer, steps_of(producer, committed=True))
    case.crashed()

    if case.start(second) is not None:
        case.crashed()
    line = case.running()
    settle(line)

    assert seen(line) == NEW
    probe(line, NEW)


@GENERATIONS
@pytest.mark.parametrize(
    "point",
    ["before-prepare", "after-prepare", "after-marker:1", "after-marker:4", "before-complete"],
)
def test_c45_an_overdue_transaction_is_aborted_whenever_the_broker_dies(
    start_case: StartCase, point: str, is_v2: bool
) -> None:
    """C45: the epoch is raised by the record that decides, so there is nothing in between."""
    case = start_case("os" if is_v2 else "sync")
    producer = a_producer(case.running(point), is_v2=is_v2, timeout_ms=SHORT_TIMEOUT_MS)
    assert play(producer, WRITES[is_v2]) == ()
    case.crashed()

    line = case.running()
    settle(line, within_s=SHORT_TIMEOUT_MS / 1000 + GRACE_S)

    assert seen(line) == OLD
    zombie = producer.twin(line)
    assert zombie.send(0, b"zombie", topic=UPPER).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert Producer(line, ID).state().producer_epoch > producer.producer_epoch
    probe(line, OLD)


@GENERATIONS
@pytest.mark.parametrize(
    "point",
    ["before-prepare", "after-prepare", "after-marker:1", "before-complete", "after-complete",
     "before-identity", "after-identity"],
)  # fmt: skip
def test_c46_an_instance_that_takes_over_does_so_whenever_the_broker_dies(
    start_case: StartCase, point: str, is_v2: bool
) -> None:
    """C46: the old transaction is aborted, the new identity works, and none is given twice."""
    case = start_case("sync" if is_v2 else "os")
    first = a_producer(case.running(), is_v2=is_v2)
    assert play(first, WRITES[is_v2]) == ()
    case.kill()

    second = Producer(case.running(point), ID, is_v2=is_v2, topic=UPPER)
    with pytest.raises(ConnectionError):
        second.init()
    case.crashed()
    line = case.running()
    third = a_producer(line, is_v2=is_v2)
    settle(line)

    assert seen(line) == OLD
    assert third.producer_epoch > first.producer_epoch
    assert first.twin(line).end(True).error_code == ErrorCode.PRODUCER_FENCED
    assert play(third, steps_of(third, committed=True)) == ()
    settle(line)
    assert seen(line) == NEW
    probe(line, NEW)


def test_c47_no_producer_id_is_given_twice(launcher: Launcher, tmp_path: Path) -> None:
    """C47: the broker dies while it takes a block of ids, and at any other time."""
    given: list[int] = []

    def take(line: SocketLine, count: int) -> None:
        for _ in range(count):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            reply = line.ask(request, 4)
            assert reply.error_code == OK
            given.append(reply.producer_id)

    points = ["before-producer-ids", "after-producer-ids", "after-producer-ids:2", None]
    for point in points * 2:
        launcher.start(tmp_path / "data", crash_at=point)
        line = SocketLine(launcher.port)
        if point is None:
            take(line, 300)
            launcher.kill()
        else:
            with pytest.raises(ConnectionError):
                take(line, 1100)
            assert launcher.is_gone()
        line.close()

    assert len(given) > 2500
    assert len(set(given)) == len(given)
