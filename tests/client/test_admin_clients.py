"""The admin clients of confluent-kafka and kafka-python, with their defaults, against our broker."""

import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import KafkaError, NewPartitions, NewTopic

import oncelog

with warnings.catch_warnings():
    # It reads its schemas with a function that Python 3.11 has deprecated and 3.13 has taken back.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition as PythonPartition
    from kafka import errors as kafka_errors
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType as PythonResourceType
    from kafka.admin import KafkaAdminClient

WAIT_S = 20.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with oncelog.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def python(bootstrap: str) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def done(futures: dict[Any, Future[Any]]) -> list[Any]:
    return [future.result(WAIT_S) for future in futures.values()]


def code(futures: dict[Any, Future[Any]]) -> int:
    with pytest.raises(KafkaException) as raised:
        done(futures)
    return int(raised.value.args[0].code())


# --- confluent-kafka ------------------------------------------------------------------------


def test_confluent_creates_describes_grows_and_deletes_a_topic(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("ca", 2, 1, config={"retention.ms": "5000"})]))
    assert code(confluent.create_topics([NewTopic("ca", 2, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS

    done(confluent.create_partitions([NewPartitions("ca", 3)]))
    topic = confluent.list_topics("ca", timeout=WAIT_S).topics["ca"]
    assert [topic.partitions[index].leader for index in range(3)] == [1, 1, 1]

    done(confluent.delete_topics(["ca"]))
    assert "ca" not in confluent.list_topics(timeout=WAIT_S).topics
    assert code(confluent.delete_topics(["ca"])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_only_asks_whether_a_topic_could_be_created(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("cb", 2, 1)], validate_only=True))

    assert "cb" not in confluent.list_topics(timeout=WAIT_S).topics


def test_confluent_changes_settings_of_a_topic(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("cc", 1, 1)]))
    changes = [
        ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    resource = ConfigResource(ResourceType.TOPIC, "cc", incremental_configs=changes)

    done(confluent.incremental_alter_configs([resource]))

    (configs,) = done(confluent.describe_configs([ConfigResource(ResourceType.TOPIC, "cc")]))
    assert configs["retention.ms"].value == "7000"
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert configs["cleanup.policy"].value == "compact,delete"
    assert configs["segment.ms"].is_default


def test_confluent_reads_the_settings_of_the_broker(confluent: AdminClient) -> None:
    (configs,) = done(confluent.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))

    assert configs["node.id"].value == "1"
    assert configs["node.id"].is_read_only
    # The test's own setting, which the broker was started with.
    assert configs["group.initial.rebalance.delay.ms"].source == (
        ConfigSource.STATIC_BROKER_CONFIG.value
    )


def test_confluent_describes_the_cluster_and_topics(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("cd", 2, 1)]))

    cluster = confluent.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    (topic,) = done(
        confluent.describe_topics(TopicCollection(["cd"]), include_authorized_operations=True)
    )

    assert [node.id for node in cluster.nodes] == [1]
    assert cluster.controller.id == 1
    assert cluster.authorized_operations
    assert (topic.name, len(topic.partitions)) == ("cd", 2)
    assert topic.authorized_operations


def test_confluent_deletes_records(confluent: AdminClient, bootstrap: str) -> None:
    done(confluent.create_topics([NewTopic("ce", 1, 1)]))
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in range(5):
        producer.produce("ce", b"%d" % value, partition=0)
    assert producer.flush(WAIT_S) == 0

    (deleted,) = done(confluent.delete_records([TopicPartition("ce", 0, 3)]))

    assert deleted.low_watermark == 3


def test_confluent_elects_leaders(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("cf", 1, 1)]))

    elected = confluent.elect_leaders(ElectionType.PREFERRED, [TopicPartition("cf", 0)]).result(
        WAIT_S
    )

    ((_, error),) = elected.items()
    assert error.code() == KafkaError.ELECTION_NOT_NEEDED


# --- kafka-python ---------------------------------------------------------------------------


def test_kafka_python_creates_describes_grows_and_deletes_a_topic(python: Any) -> None:
    python.create_topics({"pa": {"num_partitions": 2, "replication_factor": 1}})
    with pytest.raises(kafka_errors.TopicAlreadyExistsError):
        python.create_topics({"pa": {"num_partitions": 2, "replication_factor": 1}})

    python.create_partitions({"pa": 3})
    (topic,) = python.describe_topics(["pa"])
    assert len(topic["partitions"]) == 3
    assert "pa" in python.list_topics()

    python.delete_topics(["pa"])
    assert "pa" not in python.list_topics()


def test_kafka_python_changes_settings_of_a_topic(python: Any) -> None:
    python.create_topics({"pb": {"num_partitions": 1, "replication_factor": 1}})
    resource = PythonResource(PythonResourceType.TOPIC, "pb", configs={"retention.ms": "7000"})

    python.alter_configs([resource])

    described = python.describe_configs([PythonResource(PythonResourceType.TOPIC, "pb")])
    assert described["topic"]["pb"]["retention.ms"]["value"] == "7000"


def test_kafka_python_describes_the_cluster_and_its_disks(python: Any) -> None:
    python.create_topics({"pc": {"num_partitions": 1, "replication_factor": 1}})

    cluster = python.describe_cluster()
    directories = python.describe_log_dirs()

    assert [broker["broker_id"] for broker in cluster["brokers"]] == [1]
    assert "pc" in repr(directories)


def test_kafka_python_deletes_records_and_finds_no_moves(python: Any) -> None:
    python.create_topics({"pd": {"num_partitions": 1, "replication_factor": 1}})
    partition = PythonPartition("pd", 0)

    deleted = python.delete_records({partition: -1})

    assert deleted[partition]["low_watermark"] == 0
    assert not python.list_partition_reassignments()
