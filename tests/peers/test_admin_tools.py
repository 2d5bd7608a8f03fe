"""Kafka's own command line, of 4.3 and 2.8, against our broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import oncelog
from tests.peers.java import KAFKA, OLD_CLIENTS, JavaFailed, run

pytestmark = pytest.mark.peers

TOPICS: Final = {
    KAFKA: "org.apache.kafka.tools.TopicCommand",
    OLD_CLIENTS: "kafka.admin.TopicCommand",
}
CONFIGS: Final = "kafka.admin.ConfigCommand"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
ELECTIONS: Final = "org.apache.kafka.tools.LeaderElectionCommand"
MOVES: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, str]]:
    with oncelog.Broker() as broker:
        yield "--bootstrap-server", broker.bootstrap_servers


def line(output: str, *parts: str) -> str:
    """The one line that has all of these in it, told by tabs."""
    found = [each for each in output.splitlines() if all(part in each for part in parts)]
    assert len(found) == 1, output
    return found[0]


@pytest.mark.parametrize("peer", [KAFKA, OLD_CLIENTS])
def test_a_topic_is_created_described_grown_and_deleted(server: tuple[str, str], peer: str) -> None:
    tool, topic = TOPICS[peer], f"grown-by-{peer}"

    settings = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=5000")
    run(peer, tool, *server, "--create", "--topic", topic, *settings)
    run(peer, tool, *server, "--create", "--topic", topic, "--if-not-exists", *settings)
    run(peer, tool, *server, "--alter", "--topic", topic, "--partitions", "3")
    described = run(peer, tool, *server, "--describe", "--topic", topic).stdout
    run(peer, tool, *server, "--delete", "--topic", topic)
    left = run(peer, tool, *server, "--list").stdout

    head = line(described, "PartitionCount: 3")
    assert "retention.ms=5000" in head
    for index in range(3):
        assert "Leader: 1\tReplicas: 1\tIsr: 1" in line(described, f"Partition: {index}\t")
    assert topic not in left.split()


def test_a_topic_that_exists_is_an_error_that_people_can_read(server: tuple[str, str]) -> None:
    run(KAFKA, TOPICS[KAFKA], *server, "--create", "--topic", "twice")

    with pytest.raises(JavaFailed, match="TopicExistsException"):
        run(KAFKA, TOPICS[KAFKA], *server, "--create", "--topic", "twice")


@pytest.mark.parametrize("peer", [KAFKA, OLD_CLIENTS])
def test_settings_of_a_topic_are_changed_and_described(server: tuple[str, str], peer: str) -> None:
    topic = f"set-by-{peer}"
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run(KAFKA, TOPICS[KAFKA], *server, "--create", "--topic", topic, "--config", "segment.ms=9000")

    added = "cleanup.policy=[compact,delete],max.message.bytes=2000"
    change = ("--alter", "--add-config", added, "--delete-config", "segment.ms")
    run(peer, CONFIGS, *server, *entity, *change)
    described = run(peer, CONFIGS, *server, *entity, "--describe").stdout

    assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete" in line(described, "cleanup.policy")
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in line(described, "max.message.bytes=2000")
    assert "segment.ms" not in described


def test_settings_of_brokers_are_changed_and_described(server: tuple[str, str]) -> None:
    every = ("--entity-type", "brokers", "--entity-default")
    one = ("--entity-type", "brokers", "--entity-name", "1")

    run(KAFKA, CONFIGS, *server, *every, "--alter", "--add-config", "log.retention.ms=70000")
    run(KAFKA, CONFIGS, *server, *one, "--alter", "--add-config", "log.retention.ms=80000")
    described = run(KAFKA, CONFIGS, *server, *one, "--describe").stdout
    defaults = run(KAFKA, CONFIGS, *server, *every, "--describe").stdout

    found = line(described, "log.retention.ms=80000")
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=80000" in found
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=70000" in found
    assert "log.retention.ms=70000" in line(defaults, "log.retention.ms")
    with pytest.raises(JavaFailed, match=r"node\.id cannot change while the broker runs"):
        run(KAFKA, CONFIGS, *server, *one, "--alter", "--add-config", "node.id=7")


def test_log_directories_are_described(server: tuple[str, str]) -> None:
    run(KAFKA, TOPICS[KAFKA], *server, "--create", "--topic", "sized", "--partitions", "2")

    output = run(KAFKA, LOG_DIRS, *server, "--describe", "--topic-list", "sized").stdout

    (broker,) = json.loads(output.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    assert {each["partition"] for each in directory["partitions"]} == {"sized-0", "sized-1"}


def test_elections_and_moves_find_nothing_to_do(server: tuple[str, str], tmp_path: Path) -> None:
    run(KAFKA, TOPICS[KAFKA], *server, "--create", "--topic", "still", "--partitions", "1")
    plan = tmp_path / "plan.json"
    here = {"topic": "still", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [here]}))
    file = ("--reassignment-json-file", str(plan))

    elected = run(
        KAFKA, ELECTIONS, *server, "--election-type", "preferred", "--topic", "still",
        "--partition", "0",
    ).stdout  # fmt: skip
    moved = run(KAFKA, MOVES, *server, *file, "--execute").stdout
    verified = run(KAFKA, MOVES, *server, *file, "--verify").stdout
    listed = run(KAFKA, MOVES, *server, "--list").stdout

    assert "Valid replica already elected for partitions still-0" in elected
    assert "Successfully started partition reassignment for still-0" in moved
    assert "Reassignment of partition still-0 is completed." in verified
    assert "No partition reassignments found." in listed


def test_records_are_deleted(server: tuple[str, str], tmp_path: Path) -> None:
    run(KAFKA, TOPICS[KAFKA], *server, "--create", "--topic", "trimmed")
    wanted = tmp_path / "offsets.json"
    all_of_it = {"topic": "trimmed", "partition": 0, "offset": -1}
    wanted.write_text(json.dumps({"version": 1, "partitions": [all_of_it]}))

    output = run(KAFKA, RECORDS, *server, "--offset-json-file", str(wanted)).stdout

    assert "low_watermark: 0" in line(output, "trimmed-0")
