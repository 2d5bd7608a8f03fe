"""`oncelog txn` and `oncelog producers` against a real broker, with a real client's transactions."""

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import oncelog
from oncelog.cli.main import main
from oncelog.cli.transaction_text import outlook, span
from oncelog.core.batch import TRANSACTIONAL
from oncelog.wire.messages.describe_transactions import TopicData, TransactionState
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.core.batches import a_batch
from tests.scenarios.wire import connect, hang_up, now_ms

#: Old brokers did not ask the coordinator whether a batch is part of a transaction. Without the
#: check ours can be left with a transaction that nobody ends, as they could.
UNVERIFIED = {"transaction.partition.verification.enable": "false", "num.partitions": "2"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(UNVERIFIED) as running:
        yield running


@pytest.fixture(autouse=True)
def _bootstrap(broker: oncelog.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", broker.bootstrap_servers)


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for a topic or a transactional id."""
    return f"n{next(_numbers)}"


class Shell:
    """Runs commands, and reads what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(words)
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def text(self, *words: str) -> str:
        code, out, err = self.run(*words)
        assert (code, err) == (0, ""), err
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, "--json"))


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def a_producer(broker: oncelog.Broker, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "client.id": f"client-of-{transactional_id}",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    producer.init_transactions(20)
    return producer


def open_transaction(producer: Producer, topic: str, *partitions: int) -> None:
    producer.begin_transaction()
    for partition in partitions or (0,):
        producer.produce(topic, b"x", partition=partition)
        assert producer.flush(10) == 0


def committed_values(broker: oncelog.Broker, topic: str, end: int) -> list[bytes]:
    """What a read_committed reader gets of partition 0, up to an offset that it must reach."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= end:
            consumer.close()
            return values
    raise AssertionError(f"the reader did not reach {end}")


async def hang(broker: oncelog.Broker, topic: str) -> int:
    """A transactional batch that nobody has announced; returns its producer id."""
    wire = await connect(broker.bootstrap_servers)
    request = InitProducerIdRequest(transactional_id=f"of-{topic}", transaction_timeout_ms=60_000)
    producer_id: int = (await wire.ask(request, 4)).producer_id
    batch = a_batch(
        sequence=0, producer_id=producer_id, attributes=TRANSACTIONAL, timestamp_ms=now_ms()
    )
    reply = await wire.produce(batch, topic=topic, version=9, transactional_id=f"of-{topic}")
    assert reply.error_code == 0, reply
    await hang_up(wire)
    return producer_id


# --- list -----------------------------------------------------------------------------------


def test_an_open_transaction_is_listed_with_its_client(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    producer = a_producer(broker, name, transaction_timeout_ms=50_000)
    open_transaction(producer, name, 0, 1)

    text = shell.text("txn", "list", "--pattern", name)
    (listed,) = shell.json("txn", "list", "--pattern", name)

    assert text.split()[:2] == ["TRANSACTIONAL", "ID"]
    assert f"client-of-{name}" in text
    assert listed["state"] == "Ongoing"
    assert listed["partitions"] == 2
    assert listed["timeout_ms"] == 50_000
    assert listed["times_out_at_ms"] == listed["started_at_ms"] + 50_000
    assert abs(listed["started_at_ms"] - now_ms()) < 30_000
    assert (listed["client_id"], listed["client_host"]) == (f"client-of-{name}", "127.0.0.1")


def test_filters_are_all_passed_or_the_id_is_not_listed(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    a_producer(broker, f"{name}-idle")
    producer = a_producer(broker, f"{name}-busy")
    open_transaction(producer, name)
    mine = ("txn", "list", "--pattern", f"{name}-.*")
    ids = {each["transactional_id"]: each["producer_id"] for each in shell.json(*mine)}

    def listed(*words: str) -> list[str]:
        return [each["transactional_id"] for each in shell.json(*mine, *words)]

    assert listed() == [f"{name}-busy", f"{name}-idle"]
    assert listed("--state", "ongoing") == [f"{name}-busy"]
    assert listed("--state", "Empty") == [f"{name}-idle"]
    assert listed("--producer-id", str(ids[f"{name}-idle"])) == [f"{name}-idle"]
    assert listed("--state", "Ongoing", "--producer-id", str(ids[f"{name}-idle"])) == []
    assert listed("--older-than", "0.001") == [f"{name}-busy"]
    assert listed("--older-than", "3600") == []


def test_a_pattern_that_cannot_be_read_is_refused_with_its_name(shell: Shell) -> None:
    code, out, err = shell.run("txn", "list", "--pattern", "(")

    assert (code, out) == (1, "")
    assert "INVALID_REGULAR_EXPRESSION" in err


# --- describe -------------------------------------------------------------------------------


def test_a_transaction_is_described_with_what_it_holds_up(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    plain.produce(name, b"before", partition=0)
    plain.flush(10)
    producer = a_producer(broker, name)
    open_transaction(producer, name, 0, 1)
    plain.produce(name, b"after", partition=0)
    plain.flush(10)

    text = shell.text("txn", "describe", name)
    described = shell.json("txn", "describe", name)

    zero, one = described["partitions"]
    assert (zero["first_offset"], zero["last_stable_offset"], zero["end_offset"]) == (1, 1, 3)
    assert (zero["lag"], zero["holds_readers"]) == (2, True)
    assert (one["first_offset"], one["lag"]) == (0, 1)
    assert "It times out at" in described["next"]
    assert f"client client-of-{name} at 127.0.0.1, last heard of at" in text
    assert "aborted then and its producer fenced" in text


def test_an_idle_id_says_that_nothing_is_open(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    producer = a_producer(broker, name)
    open_transaction(producer, name)
    producer.commit_transaction(20)

    # The markers follow the answer.
    deadline = time.monotonic() + 10
    while (described := shell.json("txn", "describe", name))["state"] != "CompleteCommit":
        assert time.monotonic() < deadline, described

    assert described["next"] == "Nothing is open."
    assert described["started_at_ms"] is None
    assert described["partitions"] == []


def test_an_id_that_nobody_knows_is_an_error(shell: Shell) -> None:
    code, _, err = shell.run("txn", "describe", "nobody")

    assert code == 1
    assert err == "oncelog: Transactional id nobody: TRANSACTIONAL_ID_NOT_FOUND\n"


# --- producers --------------------------------------------------------------------------------


def test_who_holds_up_the_readers_of_a_topic_is_named(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    first = a_producer(broker, f"{name}-first")
    open_transaction(first, name)
    second = a_producer(broker, f"{name}-second")
    open_transaction(second, name)

    text = shell.text("producers", name)
    held, free = shell.json("producers", name)

    assert (held["last_stable_offset"], held["end_offset"], held["lag"]) == (0, 2, 2)
    assert held["held_by"]["transactional_id"] == f"{name}-first"
    assert held["held_by"]["client_id"] == f"client-of-{name}-first"
    assert held["held_by"]["client_host"] == "127.0.0.1"
    assert [p["open_since_offset"] for p in held["producers"]] == [0, 1]
    assert free["held_by"] is None
    assert f"Readers of {name}-0 stop at 0, 2 offsets before its end." in text
    assert f"Held by: {name}-first, Ongoing since " in text
    assert "Next:    It times out at" in text


def test_a_topic_without_open_transactions_holds_nobody_up(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    producer = a_producer(broker, name)
    open_transaction(producer, name)
    producer.abort_transaction(20)

    text = shell.text("producers", name, "--partition", "0")

    assert "Readers" not in text
    assert "1 producer with an id" in text


def test_a_partition_that_is_not_there_is_an_error(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    open_transaction(a_producer(broker, name), name)

    code, _, err = shell.run("producers", name, "--partition", "9")

    assert code == 1
    assert err == f"oncelog: Topic {name} has no partition 9.\n"


# --- hanging ones: scenario 123 -----------------------------------------------------------------


def test_h123_a_hanging_transaction_is_found_and_aborted_and_readers_go_on(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    open_transaction(a_producer(broker, f"{name}-live"), name, 1)
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer_id = asyncio.run(hang(broker, name))
    plain.produce(name, b"behind", partition=0)
    plain.flush(10)

    young = shell.json("txn", "find-hanging", "--topic", name)
    (hanging,) = shell.json("txn", "find-hanging", "--topic", name, "--broker-max-timeout", "0.001")
    seen = shell.text("producers", name)
    place = ("--topic", name, "--partition", "0", "--start-offset", "0")
    refused = shell.run("txn", "abort", *place)
    aborted = shell.text("txn", "abort", *place, "--yes")

    assert young == [], "it is not older than transactions may be"
    assert (hanging["partition"], hanging["start_offset"]) == (0, 0)
    assert hanging["producer_id"] == producer_id
    assert hanging["transactional_id"] == f"of-{name}", "which does not know of the partition"
    assert "whose transaction no coordinator owns" in seen
    assert refused[0] == 2
    assert "add --yes" in refused[2]
    assert aborted == f"Aborted the transaction at offset 0 of {name}-0.\n"
    assert committed_values(broker, name, end=3) == [b"behind"]
    code, out, err = shell.run(
        "txn", "find-hanging", "--topic", name, "--broker-max-timeout", "0.1"
    )
    assert (code, out, err) == (0, "", "No transaction hangs.\n")


def test_a_transaction_that_its_coordinator_owns_is_not_torn_apart(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    producer = a_producer(broker, name)
    open_transaction(producer, name)

    code, _, err = shell.run(
        "txn", "abort", "--topic", name, "--partition", "0", "--start-offset", "0", "--yes"
    )

    assert code == 1
    assert f"`oncelog txn abort {name}`" in err
    producer.commit_transaction(20)


def test_where_nothing_is_open_nothing_is_aborted(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    open_transaction(a_producer(broker, name), name)
    place = ("--topic", name, "--partition", "0", "--start-offset")

    for offset in ("7", "-1"):
        code, _, err = shell.run("txn", "abort", *place, offset, "--yes")
        assert code == 1
        assert "No transaction is open at offset" in err


# --- abort and fence ----------------------------------------------------------------------------


def test_an_abort_ends_the_transaction_and_fences_its_producer(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    producer = a_producer(broker, name)
    open_transaction(producer, name)

    said = shell.text("txn", "abort", name, "--yes")

    assert said == f"Aborted the transaction of {name}; its producer is fenced.\n"
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(20)
    assert fenced.value.args[0].fatal()
    assert shell.json("txn", "describe", name)["next"] == "Nothing is open."
    assert committed_values(broker, name, end=2) == []


def test_there_is_nothing_to_abort_without_an_open_transaction(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    a_producer(broker, name)

    code, _, err = shell.run("txn", "abort", name, "--yes")

    assert code == 1
    assert f"{name} is Empty: there is nothing to abort." in err


def test_a_fenced_producer_is_shut_out_and_a_new_one_goes_on(
    broker: oncelog.Broker, shell: Shell, name: str
) -> None:
    old = a_producer(broker, name)

    said = shell.text("txn", "fence", name, "--yes")

    assert said == f"Fenced the producer of {name}.\n"
    with pytest.raises(KafkaException) as fenced:
        open_transaction(old, name)
    assert fenced.value.args[0].fatal()
    new = a_producer(broker, name)
    open_transaction(new, name)
    new.commit_transaction(20)


def test_an_id_that_nobody_knows_is_not_made_by_fencing_it(shell: Shell) -> None:
    code, _, err = shell.run("txn", "fence", "nobody", "--yes")

    assert code == 1
    assert err.endswith("oncelog: 1 of 1 ids could not be fenced.\n")
    assert shell.json("txn", "list", "--pattern", "nobody") == []


@pytest.mark.parametrize(
    "words",
    [
        ("abort",),
        ("abort", "x", "--topic", "t"),
        ("abort", "--topic", "t", "--partition", "0"),
        ("fence", "x"),
        ("find-hanging", "--partition", "0"),
    ],
)
def test_wrong_usage_is_told_apart_from_failure(shell: Shell, words: tuple[str, ...]) -> None:
    code, out, err = shell.run("txn", *words)

    assert (code, out) == (2, "")
    assert err.startswith("oncelog: ")


# --- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length_ms", "said"),
    [
        (-5, "less than 1 s"),
        (999, "less than 1 s"),
        (34_500, "34 s"),
        (60_000, "1 min"),
        (303_000, "5 min 3 s"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_span_is_told_in_its_largest_units(length_ms: int, said: str) -> None:
    assert span(length_ms) == said


def test_what_is_decided_waits_for_its_markers() -> None:
    txn = TransactionState(
        transactional_id="x",
        transaction_state="PrepareCommit",
        topics=[TopicData(topic="t", partitions=[0, 1])],
    )

    assert outlook(txn, 0) == (
        "It is decided: commit. The coordinator writes the markers until each is there; "
        "2 partitions to go."
    )


def test_what_is_overdue_says_so() -> None:
    txn = TransactionState(
        transaction_state="Ongoing", transaction_start_time_ms=0, transaction_timeout_ms=1000
    )

    assert (
        outlook(txn, 5000)
        == "It is overdue since 1970-01-01T00:00:01.000Z and about to be aborted."
    )
