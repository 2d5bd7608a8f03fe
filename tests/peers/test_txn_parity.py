"""The same transactions, request by request, to Apache Kafka 4.3 and to us: the same answers.

Each story is told to both brokers by the same script, and what they answer is written down under
labels: error codes, and of identities only how they follow from one another. We are told not to wait
for markers here, as Kafka does not. An answer of CONCURRENT_TRANSACTIONS that only says that markers
are still under way is asked again, since how long they take differs from run to run.

Where we differ on purpose, `ON_PURPOSE` says so; an entry that is no longer true fails as well. Not
asked here, since Kafka's answer would do harm, but tested in `tests/txn`: a zombie that supplies its
identity while its successor has a transaction open (Kafka aborts that), a victim of a newer instance
that asks for the epoch which was raised against it (Kafka gives it), DeleteRecords into an open
transaction (Kafka's last stable offset falls below the log start), markers from coordinators that do
not exist yet (Kafka shuts the real one out), and requests on connections that were left behind.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import oncelog
from oncelog.client.connection import Connection
from oncelog.core.batch import CONTROL, CRC_START, TRANSACTIONAL, checksum
from oncelog.core.packing import read_batches
from oncelog.core.types import partition_for
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.peers.kafka import Kafka
from tests.txn.markers import MarkerRequest, describe_producers
from tests.txn.offsets import commit_plainly, committed
from tests.txn.producer import Producer, a_batch, a_produce, find_coordinator
from tests.txn.reader import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    aborted,
    fetch,
    list_offset,
)
from tests.txn.world import create_topic

pytestmark = pytest.mark.peers

BUSY: Final = ErrorCode.CONCURRENT_TRANSACTIONS
FUTURE: Final = 1 << 20
PATIENCE_S: Final = 20.0
#: Kafka's `__consumer_offsets` and ours.
OFFSETS_PARTITIONS: Final = 50


class SocketLine:
    """A connection over a real socket, for plain code."""

    def __init__(self, runner: asyncio.Runner, port: int) -> None:
        self._runner = runner
        self._port = port
        self._connection = runner.run(Connection.open("127.0.0.1", port))

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def ask(self, message: Any, version: int) -> Any:
        return self._runner.run(self._connection.request(message, version=version))

    def another(self) -> "SocketLine":
        return SocketLine(self._runner, self._port)

    def close(self) -> None:
        self._runner.run(self._connection.close())


class Tale:
    """A story while it is told to one broker."""

    def __init__(self, line: SocketLine, name: str) -> None:
        self.line = line
        self.name = name
        self.answers: dict[str, Any] = {}
        self._count = 0

    def says(self, label: str, answer: Any) -> None:
        """Write an answer down."""
        assert label not in self.answers, f"{label} is told twice"
        self.answers[label] = answer

    def topic(self, partitions: int = 3) -> str:
        """A topic that nobody else has."""
        self._count += 1
        name = f"{self.name}-{self._count}"
        create_topic(self.line, name, partitions)
        for index in range(partitions):
            self._until(lambda: self._leader_code(name, index), (3, 5, 6))  # noqa: B023
        return name

    def _leader_code(self, topic: str, partition: int) -> int:
        return list_offset(self.line, LATEST, topic=topic, partition=partition).error_code

    def producer(self, topic: str = "t", *, is_v2: bool = False, ready: bool = True) -> Producer:
        """A producer with an id that nobody else has."""
        self._count += 1
        producer = Producer(self.line, f"{self.name}-{self._count}", is_v2=is_v2, topic=topic)
        return producer.ready() if ready else producer

    def patiently(self, ask: Callable[[], int]) -> int:
        """Ask until nothing is under way any more."""
        return self._until(ask, (BUSY,))

    def _until(self, ask: Callable[[], int], transient: tuple[int, ...]) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while (code := int(ask())) in transient and time.monotonic() < deadline:
            time.sleep(0.01)
        return code

    def begin(self, producer: Producer, *partitions: int) -> Producer:
        """A transaction with one record in each partition."""
        if not producer.is_v2:
            assert self.patiently(lambda: producer.add(*partitions)) == 0
        for index in partitions:
            assert self.patiently(lambda index=index: self.send(producer, index)) == 0  # type: ignore[misc]
        return producer

    def send(self, producer: Producer, index: int, **options: Any) -> int:
        return int(producer.send(index, b"v", **options).error_code)

    def state(self, producer: Producer, state: str) -> Producer:
        """Bring a producer's transaction into a state."""
        if state == "Empty":
            return producer
        self.begin(producer, 0)
        if state == "Ongoing":
            return producer
        producer.decide(state == "CompleteCommit")
        producer.settle()
        return producer


def relation(producer: Producer, reply: Any, before: tuple[int, int]) -> Any:
    """How an answer's identity follows from the one before."""
    if reply.error_code:
        return int(reply.error_code)
    kind = "same" if reply.producer_id == before[0] else "new"
    return kind, reply.producer_epoch - (before[1] if kind == "same" else 0)


def changed(batch: bytes, position: int, form: str, value: int) -> bytes:
    copy = bytearray(batch)
    struct.pack_into(form, copy, position, value)
    struct.pack_into(">I", copy, CRC_START - 4, checksum(copy))
    return bytes(copy)


# --- stories --------------------------------------------------------------------------------


def identities(tale: Tale) -> None:
    for version in range(6):
        first = tale.producer(ready=False)
        tale.says(f"v{version} new", first.init(version).producer_epoch)
        before = first.identity
        tale.says(f"v{version} again", relation(first, first.init(version), before))
        for timeout_ms in (0, -1, 900_000, 900_001, 2147483647):
            other = tale.producer(ready=False)
            code = other.init(version, timeout_ms=timeout_ms).error_code
            tale.says(f"v{version} timeout {timeout_ms}", code)
        empty = Producer(tale.line, "")
        tale.says(f"v{version} empty", empty.init(version).error_code)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-5)
        code = tale._until(lambda v=version: tale.line.ask(request, v).error_code, (14,))  # type: ignore[misc] # noqa: B023
        tale.says(f"v{version} null", code)


def recovery(tale: Tale) -> None:
    """KIP-360, in every state in which nothing is open."""
    for version in (3, 4, 5):
        for is_v2 in (False, True):
            for state in ("Empty", "CompleteCommit", "CompleteAbort"):
                topic = tale.topic(1)
                producer = tale.state(tale.producer(topic, is_v2=is_v2), state)
                told = f"v{version} {'V2' if is_v2 else 'V1'} {state}"
                before = producer.identity
                for label, supplied in {
                    "half id": (before[0], -1),
                    "half epoch": (-1, before[1]),
                    "foreign": (before[0] + 100_000, before[1]),
                    "newer": (before[0], before[1] + 1),
                    "older": (before[0], before[1] - 2 if before[1] > 1 else 7),
                    "current": before,
                    "current again": before,
                    "next": (before[0], before[1] + 1),
                    "long ago": before,
                }.items():
                    reply = producer.init(version, supplied=supplied)
                    tale.says(f"{told} {label}", relation(producer, reply, before))


def fencing(tale: Tale) -> None:
    for is_v2 in (False, True):
        for supplied in (False, True):
            topic = tale.topic(2)
            old = tale.begin(tale.producer(topic, is_v2=is_v2), 0)
            new = old.twin()
            told = f"{'V2' if is_v2 else 'V1'} {'supplied' if supplied else 'new'}"
            before = old.identity
            wanted = before if supplied else None
            tale.says(f"{told} first", new.init(supplied=wanted).error_code)
            last: list[Any] = []

            def ask(new: Producer = new, wanted: Any = wanted, last: list[Any] = last) -> int:
                last.append(new.init(supplied=wanted))
                return int(last[-1].error_code)

            tale.patiently(ask)
            tale.says(f"{told} then", relation(new, last[-1], before))
            for version in (3, 9, 11, 12):
                tale.says(f"{told} old sends v{version}", tale.send(old, 0, version=version))
                code = tale.send(old, 1, version=version, sequence=0)
                tale.says(f"{told} old sends elsewhere v{version}", code)
            for version in range(4):
                tale.says(f"{told} old adds v{version}", old.add(1, version=version))
                code = old.add_offsets(version=version)
                tale.says(f"{told} old adds offsets v{version}", code)
            for version in range(6):
                for commits in (True, False):
                    code = old.end(commits, version).error_code
                    tale.says(f"{told} old ends v{version} {commits}", code)
            for version in (3, 4, 5):
                code = old.init(version, supplied=(before[0], before[1] + 50)).error_code
                tale.says(f"{told} from the future v{version}", code)
            tale.begin(new, 1)
            new.commit()
            tale.says(f"{told} new commits", new.state().transaction_state)


def adding(tale: Tale) -> None:
    topic = tale.topic(3)
    find_coordinator(tale.line, "g", key_type=0)
    for version in range(6):
        producer = tale.producer(topic)
        told = f"v{version}"

        def add(label: str, partitions: dict[str, list[int]], **options: Any) -> None:
            codes = producer.add_all(partitions, version=version, **options)  # noqa: B023
            short = {(name.replace(topic, "t"), index): c for (name, index), c in codes.items()}
            tale.says(f"{told} {label}", short)  # noqa: B023

        add("unknown", {topic: [0, 9], "nowhere": [0]})
        add("older", {topic: [0]}, epoch=-1)
        add("newer", {topic: [0]}, epoch=1)
        add("foreign", {topic: [0]}, producer_id=999_999)
        if version < 4:
            add("internal", {topic: [0], "__consumer_offsets": [0], "__transaction_state": [0]})
        tale.says(f"{told} state", producer.state().transaction_state)
        add("good", {topic: [1, 0]})
        add("again", {topic: [0]})
        tale.says(f"{told} partitions", sorted(index for _, index in producer.partitions()))
        stranger = tale.producer(topic, ready=False)
        stranger.take_over(*producer.identity)
        tale.says(f"{told} stranger", stranger.add(0, version=version))
        nameless = Producer(tale.line, "", topic=topic)
        nameless.take_over(*producer.identity)
        tale.says(f"{told} nameless", nameless.add(0, version=version))
        if version >= 4:
            add("verify", {topic: [0, 2]}, verify_only=True)
            add("verify older", {topic: [0]}, verify_only=True, epoch=7)
            add("verify foreign", {topic: [0]}, verify_only=True, producer_id=999_999)
            producer.commit()
            add("verify after", {topic: [0]}, verify_only=True)
    for version in range(5):
        producer = tale.producer(topic)
        tale.says(f"offsets v{version} newer", producer.add_offsets(version=version, epoch=1))
        tale.says(f"offsets v{version} no name", producer.add_offsets("", version=version))
        tale.says(f"offsets v{version}", producer.add_offsets(version=version))
    nothing = tale.producer(topic)
    tale.says("nothing", nothing.add_all({}))
    tale.says("nothing, state", nothing.state().transaction_state)
    tale.says("nothing, commit", nothing.end(True).error_code)


def ending(tale: Tale) -> None:
    """Every state, every relation of epochs, every version, commit and abort."""
    topic = tale.topic(1)
    for version in range(6):
        for is_v2 in (False, True):
            for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"):
                for delta in (-1, 0, 1):
                    for commits in (True, False):
                        producer = tale.producer(topic, is_v2=is_v2)
                        before = producer.identity
                        assert producer.init(supplied=before).error_code == 0
                        tale.state(producer, state)
                        before = producer.identity
                        reply = producer.end(commits, version, epoch=before[1] + delta)
                        answer: Any = int(reply.error_code)
                        if version >= 5 and not answer:
                            answer = relation(producer, reply, before)
                        what = "commit" if commits else "abort"
                        kind = "V2" if is_v2 else "V1"
                        tale.says(f"v{version} {kind} {state} {what} {delta:+}", answer)
    for version in range(6):
        producer = tale.begin(tale.producer(topic), 0)
        code = producer.end(True, version, producer_id=999_999).error_code
        tale.says(f"v{version} foreign", code)
        stranger = tale.producer(topic, ready=False)
        stranger.take_over(*producer.identity)
        tale.says(f"v{version} stranger", stranger.end(True, version).error_code)
        tale.says(f"v{version} nameless", Producer(tale.line, "").end(True, version).error_code)
        tale.says(f"v{version} state", producer.state().transaction_state)
        producer.end(False)


def batches(tale: Tale) -> None:
    """What Produce says about transactions, in every version that names topics."""
    for version in (3, 5, 7, 8, 9, 10, 11, 12):
        topic = tale.topic(3)
        told = f"v{version}"
        producer = tale.producer(topic, is_v2=version >= 12)

        def send(label: str, index: int, who: Producer = producer, **options: Any) -> None:
            code = tale.patiently(lambda: tale.send(who, index, version=version, **options))  # noqa: B023
            tale.says(f"{told} {label}", code)  # noqa: B023

        send("nothing open", 0)
        tale.begin(producer, 1)
        if version < 12:
            send("not added", 0)
        send("newer epoch", 2, epoch=7)
        send("foreign id", 2, producer_id=999_999)
        send("gap", 1, sequence=9)
        send("repeat", 1, sequence=0)
        send("outside", 1, sequence=1, is_transactional=False)
        send("no sequence", 1, sequence=-1)
        stranger = tale.producer(topic, ready=False)
        stranger.take_over(*producer.identity)
        send("stranger", 2, stranger)
        batch = producer.batch(b"x", sequence=1)
        control = changed(batch, 21, ">h", CONTROL | TRANSACTIONAL)
        miscounted = changed(batch, 23, ">i", 4)
        flipped = bytearray(batch)
        flipped[-2] ^= 1
        for label, bad in {
            "control": control, "miscounted": miscounted, "flipped": bytes(flipped),
        }.items():  # fmt: skip
            reply = tale.line.ask(producer.a_produce({(topic, 1): bad}), version)
            code = reply.responses[0].partition_responses[0].error_code
            tale.says(f"{told} {label}", code)
        plain = a_batch(b"x", timestamp_ms=tale.line.now_ms)
        for label, request in {
            "no transactional id": a_produce({(topic, 1): batch, (topic, 2): plain}),
            "two producers": producer.a_produce(
                {
                    (topic, 1): batch,
                    (topic, 2): producer.batch(b"x", epoch=9),
                }
            ),
        }.items():
            reply = tale.line.ask(request, version)
            codes = [p.error_code for t in reply.responses for p in t.partition_responses]
            tale.says(f"{told} {label}", sorted(codes))
        producer.abort()
        for commits in (True, False):
            producer = tale.begin(tale.producer(topic, is_v2=version >= 12), 1)
            late = producer.twin()
            producer.decide(commits)
            producer.settle()
            what = "commit" if commits else "abort"
            send(f"repeat after {what}", 1, late, sequence=0)
            send(f"late after {what}", 1, late, sequence=1)
            send(f"late elsewhere after {what}", 2, late, sequence=0)


def sequences(tale: Tale) -> None:
    """V2 begins at zero; V1 goes on."""
    topic = tale.topic(2)
    new = tale.producer(topic, is_v2=True)
    tale.says("V2 first at 3", tale.send(new, 0, sequence=3))
    tale.says("V2 first at 0", tale.send(new, 0, sequence=0))
    new.commit()
    for sequence in (1, 0):
        code = tale.patiently(lambda s=sequence: tale.send(new, 0, sequence=s))  # type: ignore[misc]
        tale.says(f"V2 next at {sequence}", code)
    new.commit()
    old = tale.begin(tale.producer(topic), 1)
    old.commit()
    assert tale.patiently(lambda: old.add(1)) == 0
    for sequence in (5, 0, 1, 1):
        answer = old.send(1, b"v", sequence=sequence)
        label = f"V1 next at {sequence}"
        while label in tale.answers:
            label += " again"
        tale.says(label, (answer.error_code, answer.base_offset))
    old.commit()
    fresh = tale.producer(topic)
    assert fresh.add(0) == 0
    tale.says("V1 first at 7", tale.send(fresh, 0, sequence=7))
    fresh.abort()


def log_starts(tale: Tale) -> None:
    """Check 22."""
    topic = tale.topic(1)
    producer = tale.begin(tale.producer(topic), 0)
    gap = producer.send(0, b"v", sequence=9)
    tale.says("gap", (gap.error_code, gap.log_start_offset))
    producer.commit()
    late = producer.send(0, b"v", sequence=1)
    tale.says("not added", (late.error_code, late.log_start_offset))
    new = producer.twin()
    assert new.init(supplied=producer.identity).error_code == 0
    tale.begin(new, 0)
    old = producer.send(0, b"v", sequence=1)
    tale.says("old epoch", (old.error_code, old.log_start_offset))
    new.abort()


def markers_of(tale: Tale) -> None:
    for version in (1, 2):
        topic = tale.topic(3)
        producer = tale.begin(tale.producer(topic), 0)
        told = f"v{version}"

        def send(label: str, who: Producer = producer, **options: Any) -> None:
            wanted: dict[str, Any] = {
                "producer_id": who.producer_id,
                "producer_epoch": who.producer_epoch,
                "committed": False,
                "topic": topic,  # noqa: B023
                "coordinator_epoch": 0,
                **options,
            }
            tale.says(f"{told} {label}", MarkerRequest(**wanted).send(tale.line, version))  # noqa: B023

        send("unknown partition", partition=9)
        send("unknown topic", topic="nowhere")
        send("older coordinator, nothing known", coordinator_epoch=-1)
        tale.begin(producer, 1)
        producer.commit()
        tale.begin(producer, 0)
        send("older coordinator", coordinator_epoch=-1)
        send("same epoch ends it")
        tale.says(f"{told} stable", fetch(tale.line, topic=topic).last_stable_offset)
        send("no data", partition=2, producer_epoch=5)
        end = fetch(tale.line, topic=topic, partition=2).high_watermark
        tale.says(f"{told} no data, end", end)
        send("older epoch", partition=2, producer_epoch=4)
        code = tale.send(producer, 2, version=9)
        tale.says(f"{told} fenced by a marker", code)
        new = tale.begin(tale.producer(topic, is_v2=True), 1)
        strict = {"partition": 1, "transaction_version": 2}
        send("V2 equal, open", new, **strict)
        if version == 2:
            new.commit()
            send("V2 equal, nothing open", new, **strict)
            tale.begin(new, 1)
        tale.says(f"{told} end", new.end(False).error_code)
        two = [
            MarkerRequest(
                producer_id=77,
                producer_epoch=0,
                committed=False,
                topic=topic,
                partition=index,
                coordinator_epoch=0,
            ).marker()
            for index in (1, 2)
        ]
        reply = tale.line.ask(WriteTxnMarkersRequest(markers=two), version)
        codes = {
            part.partition_index: part.error_code
            for result in reply.markers
            for found in result.topics
            for part in found.partitions
        }
        tale.says(f"{told} two markers of one producer", (len(reply.markers), codes))


def admins(tale: Tale) -> None:
    """After an administrator's abort the coordinator still has the transaction open."""
    topic = tale.topic(1)
    for is_v2 in (False, True):
        told = "V2" if is_v2 else "V1"
        producer = tale.begin(tale.producer(topic, is_v2=is_v2), 0)
        (known,) = [
            each
            for each in describe_producers(tale.line, topic=topic)
            if each.producer_id == producer.producer_id
        ]
        marker = MarkerRequest(
            producer_id=producer.producer_id,
            producer_epoch=known.producer_epoch,
            committed=False,
            coordinator_epoch=max(known.coordinator_epoch, 0),
            topic=topic,
        )
        tale.says(f"{told} abort", marker.send(tale.line, 1))
        tale.says(f"{told} state", producer.state().transaction_state)
        tale.says(f"{told} goes on", tale.send(producer, 0))
        tale.says(f"{told} commits", producer.end(True).error_code)
        producer.settle()
        data = fetch(tale.line, topic=topic)
        tale.says(f"{told} stable", data.last_stable_offset == data.high_watermark)


def describing(tale: Tale) -> None:
    topic = tale.topic(2)
    empty = tale.producer(topic)
    opened = tale.begin(tale.producer(topic), 0, 1)
    done = tale.begin(tale.producer(topic, is_v2=True), 0)
    done.commit()
    names = [empty.transactional_id, opened.transactional_id, done.transactional_id, "nowhere", ""]
    states = tale.line.ask(
        DescribeTransactionsRequest(transactional_ids=names), 0
    ).transaction_states
    for label, state in zip(["empty", "open", "done", "unknown", "nameless"], states, strict=True):
        tale.says(
            f"describe {label}",
            (
                state.error_code,
                state.transaction_state,
                state.transaction_timeout_ms,
                state.producer_epoch,
                state.transaction_start_time_ms >= 0,
                sorted(i for found in state.topics for i in found.partitions),
            ),
        )
    mine = f"{tale.name}-.*"

    def listed(label: str, version: int, **filters: Any) -> None:
        wanted = {"transactional_id_pattern": None, **filters}
        reply = tale.line.ask(ListTransactionsRequest(**wanted), version)
        found = sorted(
            (state.transactional_id, state.transaction_state)
            for state in reply.transaction_states
            if state.transactional_id.startswith(tale.name)
        )
        unknown = sorted(reply.unknown_state_filters)
        tale.says(f"list v{version} {label}", (reply.error_code, unknown, found))

    for version in range(3):
        listed("all", version)
        listed("open", version, state_filters=["Ongoing"])
        listed("some unknown", version, state_filters=["Ongoing", "Sleeping"])
        listed("all unknown", version, state_filters=["ongoing", "Sleeping"])
        listed("producer", version, producer_id_filters=[opened.producer_id])
        listed("no producer", version, producer_id_filters=[999_999])
        if version >= 1:
            listed("old", version, duration_filter=3_600_000, state_filters=["Ongoing"])
            listed("any age", version, duration_filter=0, state_filters=["Ongoing"])
            listed("aged, any state", version, duration_filter=3_600_000)
        if version >= 2:
            listed("pattern", version, transactional_id_pattern=mine)
            listed("half a pattern", version, transactional_id_pattern=tale.name[:-1])
            listed("no pattern", version, transactional_id_pattern="")
            listed("bad pattern", version, transactional_id_pattern="[")
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic, partition_indexes=[0, 9]),
            TopicRequest(name="nowhere", partition_indexes=[0]),
            TopicRequest(name="bad name", partition_indexes=[0]),
        ]
    )
    reply = tale.line.ask(request, 0)
    codes = [p.error_code for found in reply.topics for p in found.partitions]
    tale.says("producers, codes", sorted(codes))
    for label, producer in {"open": opened, "done": done}.items():
        (known,) = [
            each
            for each in describe_producers(tale.line, topic=topic)
            if each.producer_id == producer.producer_id
        ]
        tale.says(
            f"producer {label}",
            (
                known.producer_epoch,
                known.last_sequence,
                known.current_txn_start_offset,
                known.coordinator_epoch >= 0,
                known.last_timestamp > 0,
            ),
        )
    opened.abort()


def reading(tale: Tale) -> None:
    """Where readers have to stop, and what they are told to leave out."""
    topic = tale.topic(2)
    one, two = tale.producer(topic), tale.producer(topic, is_v2=True)
    names = {one.producer_id: "one", two.producer_id: "two"}
    start_ms = tale.line.now_ms

    def look(label: str) -> None:
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            for offset in range(10):
                data = fetch(tale.line, offset, topic=topic, isolation=isolation)
                found = aborted(data)
                seen = [header.base_offset for header, _ in read_batches(data.records or b"")]
                tale.says(
                    f"{label} fetch {isolation} at {offset}",
                    (
                        data.error_code,
                        data.last_stable_offset,
                        data.high_watermark,
                        seen,
                        None if found is None else [(names[p], first) for p, first in found],
                    ),
                )
            for version in (2, 7):
                for timestamp in (LATEST, EARLIEST):
                    found_at = list_offset(
                        tale.line, timestamp, topic=topic, isolation=isolation, version=version
                    )
                    tale.says(f"{label} v{version} {isolation} {timestamp}", found_at.offset)
            for timestamp in (start_ms, start_ms + 50_000, MAX_TIMESTAMP):
                found_at = list_offset(tale.line, timestamp, topic=topic, isolation=isolation)
                tale.says(f"{label} time {isolation} {timestamp - start_ms}", found_at.offset)

    start_ms = 0
    look("empty")
    tale.begin(one, 0)
    look("one is open")
    tale.begin(two, 0)
    one.abort()
    look("one has aborted")
    tale.begin(one, 0)
    two.commit()
    look("two has committed")
    one.abort()
    look("all are done")
    for version in range(4, 13):
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            data = fetch(tale.line, 0, topic=topic, isolation=isolation, version=version)
            found = aborted(data)
            tale.says(
                f"fetch v{version} {isolation}",
                (data.last_stable_offset, None if found is None else len(found)),
            )
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        for label, wanted in {"nowhere": (0, 9), "out of range": (99, 0)}.items():
            data = fetch(
                tale.line, wanted[0], topic=topic, partition=wanted[1], isolation=isolation
            )
            tale.says(
                f"fetch {label} {isolation}",
                (data.error_code, data.last_stable_offset, data.high_watermark, aborted(data)),
            )


def offsets(tale: Tale) -> None:
    topic = "t"
    for version in range(6):
        group = f"{tale.name}-{version}"
        find_coordinator(tale.line, group, key_type=0)
        assert tale._until(lambda g=group: commit_plainly(tale.line, 3, group=g), (14, 15, 16)) == 0  # type: ignore[misc]
        producer = tale.producer(topic, is_v2=version >= 5)

        def commit(label: str, offsets: dict[int, int], **options: Any) -> None:
            wanted = {"group": group, "version": version, **options}  # noqa: B023
            codes: list[int] = []

            def ask() -> int:
                codes[:] = producer.commit_offsets(offsets, **wanted)  # noqa: B023
                return codes[0]

            tale.patiently(ask)
            tale.says(f"v{version} {label}", sorted(codes))  # noqa: B023

        commit("not added", {0: 5})
        if version < 5:
            assert producer.add_offsets(group, version=min(version, 4)) == 0
        commit("added", {0: 5, 99: 7})
        commit("no group", {0: 5}, group="")
        commit("older", {0: 5}, epoch=9)
        if version >= 3:
            commit("unknown member", {0: 6}, member=("nobody", 1))
            commit("unknown group", {0: 6}, member=("nobody", 1), group=f"{group}-other")
        seen = committed(tale.line, 0, 1, group=group, require_stable=True)
        tale.says(f"v{version} stable", seen)
        tale.says(f"v{version} loose", committed(tale.line, 0, 1, group=group))
        commits = version % 2 == 0
        producer.decide(commits)
        producer.settle()
        seen = committed(tale.line, 0, 1, group=group, require_stable=True)
        tale.says(f"v{version} afterwards", seen)
        assert 0 <= partition_for(group, OFFSETS_PARTITIONS) < OFFSETS_PARTITIONS


def coordinators(tale: Tale) -> None:
    find_coordinator(tale.line, "x")
    for version in range(1, 7):
        for key_type in (0, 1, 9):
            request = FindCoordinatorRequest(
                key="x", key_type=key_type, coordinator_keys=["x", "", "y"]
            )
            reply = tale.line.ask(request, version)
            found = [(c.key, c.error_code) for c in reply.coordinators]
            told = f"v{version} type {key_type}"
            if version < 4:
                tale.says(told, reply.error_code)
            else:
                tale.says(told, sorted(found))


STORIES: Final[dict[str, Callable[[Tale], None]]] = {
    story.__name__: story
    for story in (
        identities, recovery, fencing, adding, ending, batches, sequences, log_starts, markers_of,
        admins, describing, reading, offsets, coordinators,
    )
}  # fmt: skip

#: Story and label -> Kafka's answer, ours, and why ours is another.
ON_PURPOSE: Final[dict[tuple[str, str], tuple[Any, Any, str]]] = {
    **{
        ("ending", f"v5 V1 {state} {what} -1"): (their, 90, "the epoch before never had this end")
        for state, what, their in (
            ("CompleteCommit", "commit", ("same", 0)),
            ("CompleteCommit", "abort", 48),
            ("CompleteAbort", "commit", 48),
            ("CompleteAbort", "abort", ("same", 0)),
        )
    },
    ("sequences", "V1 next at 1"): (
        (45, -1), (0, 2), "a repeat that was refused does not stand in the way of what follows it",
    ),
    ("sequences", "V1 next at 1 again"): ((45, -1), (0, 2), "the same"),
    ("log_starts", "not added"): (
        (120, -1), (120, 0), "the log start is always told: clients judge lost state by it",
    ),
    ("log_starts", "old epoch"): ((47, -1), (47, 0), "the same"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def ours(runner: asyncio.Runner) -> Iterator[SocketLine]:
    with oncelog.Broker({"oncelog.transaction.busy.wait.ms": "0"}) as broker:
        line = SocketLine(runner, int(broker.bootstrap_servers.rpartition(":")[2]))
        create_topic(line, "t")
        yield line
        line.close()


@pytest.fixture(scope="module")
def theirs(runner: asyncio.Runner, kafka_broker: Kafka) -> Iterator[SocketLine]:
    line = SocketLine(runner, kafka_broker.port)
    create_topic(line, "t")
    # Its coordinator has fifty partitions, and each takes a moment after the first request.
    for partition in range(50):
        name = next(f"w{n}" for n in range(10_000) if partition_for(f"w{n}", 50) == partition)
        Producer(line, name).ready()
    yield line
    line.close()


@pytest.mark.parametrize("story", STORIES)
def test_both_brokers_give_the_same_answers(
    story: str, ours: SocketLine, theirs: SocketLine
) -> None:
    told: list[dict[str, Any]] = []
    for line in (theirs, ours):
        tale = Tale(line, f"parity-{story}")
        STORIES[story](tale)
        told.append(tale.answers)
    kafka, oncelog_ = told

    assert list(kafka) == list(oncelog_)
    different = {
        label: (kafka[label], oncelog_[label]) for label in kafka if kafka[label] != oncelog_[label]
    }
    expected = {
        label: (their, our)
        for (name, label), (their, our, _) in ON_PURPOSE.items()
        if name == story
    }
    assert different == expected
