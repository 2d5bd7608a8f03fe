"""Two brokers for the same tests: ours, and Apache Kafka."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import oncelog
from oncelog import App

_numbers = count(1)


@pytest.fixture(scope="session")
def oncelog_servers() -> Iterator[str]:
    """One broker for the tests that do it no harm."""
    with oncelog.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.peers)])
def servers(request: pytest.FixtureRequest) -> str:
    """A broker of each kind in turn."""
    if request.param == "oncelog":
        found = request.getfixturevalue("oncelog_servers")
    else:
        found = request.getfixturevalue("kafka_broker").bootstrap_servers
    assert isinstance(found, str)
    return found


@pytest.fixture
def name() -> str:
    """A name that no other test has: for topics, groups and transactional ids."""
    return f"t{next(_numbers)}"


def make_topic(servers: str, topic: str, **config: str) -> str:
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    client.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result(20)
    return topic


def write(servers: str, topic: str, *values: str | bytes) -> None:
    """Plain records, spread over two partitions."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=str(number), partition=number % 2)
    assert producer.flush(20) == 0


def read(servers: str, *topics: str, isolation: str = "read_committed") -> list[Message]:
    """All records of some topics that a reader may see now, in the order of their keys."""
    settings = {
        "bootstrap.servers": servers,
        "log_level": 0,
        "group.id": f"reader-{next(_numbers)}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    found: list[Message] = []
    with closing(Consumer(settings)) as consumer:
        metadata = consumer.list_topics(timeout=10)
        left = {(topic, p) for topic in topics for p in metadata.topics[topic].partitions}
        consumer.subscribe(list(topics))
        deadline = time.monotonic() + 20
        while left:
            assert time.monotonic() < deadline, f"not read to the end: {left}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                found.append(message)
            else:
                left.discard((message.topic(), message.partition()))
    return sorted(found, key=lambda each: (each.topic() or "", each.key() or b""))


def values(servers: str, *topics: str, isolation: str = "read_committed") -> list[bytes]:
    return [each.value() or b"" for each in read(servers, *topics, isolation=isolation)]


def until(what: str, condition: Callable[[], bool], within_s: float = 40.0) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)


@contextmanager
def running(app: App) -> Iterator[None]:
    """The app at work in a thread; its error is raised at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            app.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join()
        app.close()
    for error in errors:
        raise error
