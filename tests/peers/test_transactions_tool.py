"""Kafka's own tools for transactions see ours: `kafka-transactions`, and the formatters of its log."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from oncelog.core.batch import TRANSACTIONAL
from oncelog.core.types import partition_for
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.core.batches import a_batch
from tests.peers.java import KAFKA, JavaFailed, run
from tests.peers.oncelog import Oncelog, running_oncelog
from tests.scenarios.wire import connect, hang_up, now_ms

pytestmark = pytest.mark.peers

TOOL = "org.apache.kafka.tools.TransactionsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
#: Without the check of KIP-890 a transaction can be left hanging, as old brokers left them.
SETTINGS = {
    "num.partitions": "2",
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "3",
}
LOG_PARTITIONS = 3
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT = range(5)


@pytest.fixture(scope="module")
def oncelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oncelog]:
    with running_oncelog(tmp_path_factory.mktemp("tool"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def open_one(oncelog: Oncelog) -> Iterator[Producer]:
    """`busy` has a transaction open in both partitions of `seen`; `idle` has committed one."""
    idle = a_producer(oncelog, "idle")
    idle.begin_transaction()
    idle.produce("seen", b"committed", partition=1)
    idle.commit_transaction(20)
    busy = a_producer(oncelog, "busy")
    busy.begin_transaction()
    for partition in (0, 1):
        busy.produce("seen", b"open", partition=partition)
    assert busy.flush(10) == 0
    yield busy
    busy.abort_transaction(20)


def a_producer(oncelog: Oncelog, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": oncelog.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 300_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(20)
    return producer


def tool(oncelog: Oncelog, *words: str) -> list[dict[str, str]]:
    """The table that the tool prints: one row for each line, by the names of its columns."""
    output = run(KAFKA, TOOL, "--bootstrap-server", oncelog.bootstrap_servers, *words)
    lines = [line.split("\t") for line in output.stdout.splitlines() if line.strip()]
    if not lines:
        return []
    names = [name.strip() for name in lines[0]]
    return [dict(zip(names, (cell.strip() for cell in line), strict=False)) for line in lines[1:]]


@pytest.mark.usefixtures("open_one")
def test_transactions_are_listed(oncelog: Oncelog) -> None:
    states = {row["TransactionalId"]: row["TransactionState"] for row in tool(oncelog, "list")}

    assert states == {"busy": "Ongoing", "idle": "CompleteCommit"}


@pytest.mark.usefixtures("open_one")
def test_filters_of_the_list_are_obeyed(oncelog: Oncelog) -> None:
    old = tool(oncelog, "list", "--duration-filter", "3600000")
    named = tool(oncelog, "list", "--transactional-id-pattern", "b.*")

    assert "busy" not in {row["TransactionalId"] for row in old}
    assert {row["TransactionalId"] for row in named} == {"busy"}


@pytest.mark.usefixtures("open_one")
def test_a_transaction_is_described_in_spite_of_fields_that_only_we_have(oncelog: Oncelog) -> None:
    (described,) = tool(oncelog, "describe", "--transactional-id", "busy")

    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "300000"
    assert abs(int(described["CurrentTransactionStartTimeMs"]) - now_ms()) < 120_000
    assert int(described["TransactionDurationMs"]) < 120_000
    assert described["TopicPartitions"] == "seen-0,seen-1"


@pytest.mark.usefixtures("open_one")
def test_producers_of_a_partition_are_described(oncelog: Oncelog) -> None:
    (busy,) = tool(oncelog, "describe", "--transactional-id", "busy")

    found = tool(oncelog, "describe-producers", "--topic", "seen", "--partition", "0")

    (producer,) = found
    assert producer["ProducerId"] == busy["ProducerId"]
    assert producer["LatestCoordinatorEpoch"] == "-1"
    assert producer["CurrentTransactionStartOffset"] == "0"


@pytest.mark.usefixtures("open_one")
def test_what_a_coordinator_owns_does_not_hang(oncelog: Oncelog) -> None:
    found = tool(
        oncelog, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0",
        "--topic", "seen",
    )  # fmt: skip

    assert found == []


def test_a_hanging_transaction_is_found_and_aborted(oncelog: Oncelog) -> None:
    oncelog.create_topic("stuck")
    producer_id = asyncio.run(hang(oncelog, "stuck"))
    search = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")

    (hanging,) = tool(oncelog, *search, "--topic", "stuck")
    tool(
        oncelog, "abort", "--topic", "stuck", "--partition", "0", "--start-offset",
        hanging["StartOffset"],
    )  # fmt: skip
    left = tool(oncelog, *search, "--topic", "stuck")
    (after,) = tool(oncelog, "describe-producers", "--topic", "stuck", "--partition", "0")

    assert (hanging["Topic"], hanging["Partition"]) == ("stuck", "0")
    assert (hanging["ProducerId"], hanging["StartOffset"]) == (str(producer_id), "0")
    assert left == []
    assert after["CurrentTransactionStartOffset"] == "None"


async def hang(oncelog: Oncelog, topic: str) -> int:
    """A transactional batch that nobody has announced; returns its producer id."""
    wire = await connect(oncelog.bootstrap_servers)
    request = InitProducerIdRequest(transactional_id="old", transaction_timeout_ms=60_000)
    producer_id: int = (await wire.ask(request, 4)).producer_id
    batch = a_batch(
        sequence=0, producer_id=producer_id, attributes=TRANSACTIONAL, timestamp_ms=now_ms()
    )
    reply: Any = await wire.produce(batch, topic=topic, version=9, transactional_id="old")
    assert reply.error_code == 0, reply
    await hang_up(wire)
    return producer_id


def test_a_transaction_is_terminated_by_force(oncelog: Oncelog) -> None:
    victim = a_producer(oncelog, "victim")
    victim.begin_transaction()
    victim.produce("forced", b"x")
    assert victim.flush(10) == 0

    tool(oncelog, "forceTerminateTransaction", "--transactionalId", "victim")

    (described,) = tool(oncelog, "describe", "--transactional-id", "victim")
    assert described["TransactionState"] in ("CompleteAbort", "Empty")
    assert described["TopicPartitions"] == ""


def test_an_id_that_nobody_knows_is_an_error_that_people_can_read(oncelog: Oncelog) -> None:
    with pytest.raises(JavaFailed, match="nobody"):
        tool(oncelog, "describe", "--transactional-id", "nobody")


# --- the transaction log ------------------------------------------------------------------------


def states(told: list[str]) -> list[int]:
    """The state in each record, as Kafka numbers it."""
    return [int(re.findall(r'"transactionStatus":(\d)', each)[0]) for each in told]


def test_the_console_consumer_formats_the_transaction_log(oncelog: Oncelog) -> None:
    writer = a_producer(oncelog, "logged")
    writer.begin_transaction()
    writer.produce("told", b"x", partition=0)
    writer.commit_transaction(20)

    output = run(
        KAFKA, CONSOLE, "--bootstrap-server", oncelog.bootstrap_servers,
        "--topic", "__transaction_state", "--partition",
        str(partition_for("logged", LOG_PARTITIONS)), "--offset", "earliest",
        "--formatter", FORMATTER, "--timeout-ms", "6000",
    )  # fmt: skip

    # It prints its objects without a break between them.
    told = [each for each in output.stdout.split('{"key":') if '"logged"' in each]
    assert states(told)[:3] == [EMPTY, ONGOING, PREPARE_COMMIT]
    assert '"transactionPartitions":[{"topic":"told","partitionIds":[0]}]' in told[1]
    assert '"transactionTimeoutMs":300000' in told[1]


def test_the_dump_tool_decodes_the_transaction_log(tmp_path: Path) -> None:
    with running_oncelog(tmp_path, SETTINGS) as stopped:
        writer = a_producer(stopped, "dumped")
        for ends in (writer.commit_transaction, writer.abort_transaction):
            writer.begin_transaction()
            writer.produce("told", b"x", partition=0)
            assert writer.flush(10) == 0
            ends(20)
    directory = stopped.data / f"__transaction_state-{partition_for('dumped', LOG_PARTITIONS)}"
    logs = sorted(directory.glob("*.log"))

    output = run(
        KAFKA, DUMP, "--files", ",".join(map(str, logs)), "--transaction-log-decoder",
    )  # fmt: skip

    assert output.stderr == ""
    told = [line for line in output.stdout.splitlines() if '"dumped"' in line]
    # The abort is answered once it is decided: the broker may have stopped before it was complete.
    expected = [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, ONGOING, PREPARE_ABORT]
    assert states(told)[:6] == expected
