"""The Java client and Kafka's console tools, of today (4.3) and of 2021 (2.8), against our broker.

Each with its own defaults. `tests/peers/programs` has the programs; they print what they saw and the
tests judge it.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.peers.java import KAFKA, OLD_CLIENTS, run
from tests.peers.oncelog import Oncelog, running_oncelog

pytestmark = pytest.mark.peers

PROGRAMS = Path(__file__).parent / "programs"
EACH_PEER = pytest.mark.parametrize("peer", [KAFKA, OLD_CLIENTS])
#: What a shell script of Kafka's starts, by peer.
TOOLS = {
    KAFKA: {
        "topics": "org.apache.kafka.tools.TopicCommand",
        "producer": "org.apache.kafka.tools.ConsoleProducer",
        "consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "offsets": "org.apache.kafka.tools.GetOffsetShell",
        "configs": "kafka.admin.ConfigCommand",
    },
    OLD_CLIENTS: {
        "topics": "kafka.admin.TopicCommand",
        "producer": "kafka.tools.ConsoleProducer",
        "consumer": "kafka.tools.ConsoleConsumer",
        "groups": "kafka.admin.ConsumerGroupCommand",
        "offsets": "kafka.tools.GetOffsetShell",
        "configs": "kafka.admin.ConfigCommand",
    },
}
_numbers = count(1)


@pytest.fixture(scope="module")
def oncelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oncelog]:
    directory = tmp_path_factory.mktemp("oncelog")
    with running_oncelog(directory, {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def topic(oncelog: Oncelog) -> str:
    return oncelog.create_topic(f"topic-{next(_numbers)}", partitions=3)


def program(peer: str, name: str, *arguments: str) -> list[str]:
    """Run one of our programs; answers the lines that it printed."""
    return run(peer, str(PROGRAMS / f"{name}.java"), *arguments).stdout.splitlines()


def tool(peer: str, name: str, oncelog: Oncelog, *arguments: str, stdin: str = "") -> str:
    # The option's name in 2.8 for this one tool.
    is_old = (peer, name) == (OLD_CLIENTS, "offsets")
    option = "--broker-list" if is_old else "--bootstrap-server"
    address = (option, oncelog.bootstrap_servers)
    return run(peer, TOOLS[peer][name], *address, *arguments, stdin=stdin).stdout


@EACH_PEER
def test_an_idempotent_producer_writes_each_record_once(
    oncelog: Oncelog, topic: str, peer: str
) -> None:
    acknowledged = program(peer, "IdempotentProduce", oncelog.bootstrap_servers, topic, "2000")

    # The option got a longer name with 4.2.
    option = "--formatter-property" if peer == KAFKA else "--property"
    printed = tool(
        peer, "consumer", oncelog, "--topic", topic, "--from-beginning", "--max-messages", "2000",
        option, "print.partition=true", option, "print.offset=true", "--timeout-ms", "20000",
    )  # fmt: skip
    places = (line.split(" ") for line in acknowledged)
    expected = {f"Partition:{place[0]}\tOffset:{place[1]}\t{place[2]}" for place in places}
    assert len(acknowledged) == len(expected) == 2000
    assert Counter(printed.splitlines()) == Counter(expected)
    assert offsets_of(tool(peer, "offsets", oncelog, "--topic", topic), topic) == 2000


def offsets_of(printed: str, topic: str) -> int:
    """The sum of the lines `topic:partition:offset`."""
    lines = [line.split(":") for line in printed.splitlines() if line.startswith(f"{topic}:")]
    assert [line[1] for line in lines] == ["0", "1", "2"]
    return sum(int(line[2]) for line in lines)


@EACH_PEER
def test_two_members_share_the_work_and_nothing_is_read_twice(
    oncelog: Oncelog, topic: str, peer: str
) -> None:
    lines = program(peer, "GroupConsume", oncelog.bootstrap_servers, topic, "300")

    read = [line.split(" ") for line in lines]
    expected = [f"{when}-{number}" for when in ("before", "after") for number in range(300)]
    assert Counter(value for _, value in read) == Counter(expected)
    assert {member for member, value in read if value.startswith("after-")} == {"one", "two"}
    described = tool(peer, "groups", oncelog, "--describe", "--group", topic)
    rows = [line.split() for line in described.splitlines() if line.startswith(f"{topic} ")]
    # Group, topic, partition, current offset, end offset, lag.
    assert sorted(row[2:6] for row in rows) == [[str(p), "200", "200", "0"] for p in range(3)]


@EACH_PEER
def test_the_admin_client_is_answered(oncelog: Oncelog, peer: str) -> None:
    lines = program(peer, "AdminCalls", oncelog.bootstrap_servers, f"admin-{peer}")

    assert dict(line.split("=", 1) for line in lines) == {
        "nodes": "1",
        "controller": "1",
        "listed": "true",
        "partitions": "2",
        "leader": "1",
        "again": "exists",
        "more partitions": "3",
        "retention": "3600000 DYNAMIC_TOPIC_CONFIG",
        "policy": "compact DYNAMIC_TOPIC_CONFIG",
        "latest": "10",
        "deleted to": "4",
        "earliest": "4",
        "log dirs": "1",
        "committed": "7 note",
        "group listed": "true",
        "group state": "Empty",
        "group deleted": "true",
        "topic deleted": "true",
    }


@EACH_PEER
def test_the_console_tools_work_as_with_kafka(oncelog: Oncelog, peer: str) -> None:
    topic, group = f"console-{peer}", f"console-group-{peer}"
    lines = [f"{number}:line {number}" for number in range(100)]

    tool(peer, "topics", oncelog, "--create", "--topic", topic, "--partitions", "3")
    tool(
        peer, "producer", oncelog, "--topic", topic, stdin="\n".join(lines) + "\n",
    )  # fmt: skip
    consumed = tool(
        peer, "consumer", oncelog, "--topic", topic, "--from-beginning", "--group", group,
        "--max-messages", "100", "--timeout-ms", "20000",
    )  # fmt: skip
    again = tool(
        peer, "groups", oncelog, "--reset-offsets", "--to-earliest", "--execute",
        "--group", group, "--topic", topic,
    )  # fmt: skip

    assert Counter(consumed.splitlines()) == Counter(lines)
    assert offsets_of(tool(peer, "offsets", oncelog, "--topic", topic), topic) == 100
    assert topic in tool(peer, "topics", oncelog, "--list").splitlines()
    assert "PartitionCount: 3" in tool(peer, "topics", oncelog, "--describe", "--topic", topic)
    assert group in tool(peer, "groups", oncelog, "--list").splitlines()
    assert [line.split()[3] for line in again.splitlines() if topic in line] == ["0", "0", "0"]


@EACH_PEER
def test_the_config_tool_sets_shows_and_removes(oncelog: Oncelog, topic: str, peer: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)

    tool(peer, "configs", oncelog, "--alter", *entity, "--add-config", "retention.ms=86400000")
    shown = tool(peer, "configs", oncelog, "--describe", *entity)
    tool(peer, "configs", oncelog, "--alter", *entity, "--delete-config", "retention.ms")
    removed = tool(peer, "configs", oncelog, "--describe", *entity)

    assert "retention.ms=86400000" in shown
    assert "retention.ms" not in removed
