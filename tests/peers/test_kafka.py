"""The peer itself works: Kafka starts, its tools run, and it speaks what we were told it speaks."""

import pytest

from oncelog.wire.messages import request_class
from oncelog.wire.messages.index import NAMES
from tests.peers.java import KAFKA, OLD_CLIENTS, JavaFailed, run
from tests.peers.kafka import Kafka, api_versions

pytestmark = pytest.mark.peers

#: API key -> the first and the last version that Apache Kafka 4.3.0 offers to clients.
OFFERED = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 32: (1, 4), 33: (0, 2), 35: (1, 5),
    36: (0, 2), 37: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0),
    47: (0, 0), 57: (0, 2), 60: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1),
    69: (0, 1), 74: (0, 1), 75: (0, 0),
}  # fmt: skip


def test_kafka_offers_the_versions_that_we_know_of(kafka_broker: Kafka) -> None:
    response = api_versions(kafka_broker.port)

    offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert response.error_code == 0
    assert {key: offered[key] for key in NAMES} == OFFERED


def test_we_read_every_version_that_kafka_offers(kafka_broker: Kafka) -> None:
    # Produce 0-2 are offered for the sake of librdkafka and refused when they come.
    removed = {(0, 0), (0, 1), (0, 2)}

    offered = {
        (api.api_key, version)
        for api in api_versions(kafka_broker.port).api_keys
        for version in range(api.min_version, api.max_version + 1)
        if api.api_key in NAMES
    }

    ours = {(key, version) for key in NAMES for version in request_class(key).VERSIONS}
    assert offered - removed <= ours


@pytest.mark.parametrize(
    ("peer", "main"),
    [
        (KAFKA, "org.apache.kafka.tools.TopicCommand"),
        (OLD_CLIENTS, "kafka.admin.TopicCommand"),
    ],
)
def test_the_console_tools_of_each_peer_run(kafka_broker: Kafka, peer: str, main: str) -> None:
    address = ("--bootstrap-server", kafka_broker.bootstrap_servers)

    run(peer, main, *address, "--create", "--topic", f"made-by-{peer}", "--partitions", "2")
    output = run(peer, main, *address, "--describe", "--topic", f"made-by-{peer}")

    assert "PartitionCount: 2" in output.stdout


def test_a_tool_that_fails_says_what_it_printed() -> None:
    with pytest.raises(JavaFailed, match="bootstrap-server"):
        run(KAFKA, "org.apache.kafka.tools.TopicCommand", "--list")
