"""`oncelog serve --metrics`: what Prometheus reads of a broker that has done something."""

import contextlib
import http.client
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.cli.serving import Serving, serving

TOPICS = tuple(f"held-{number:02}" for number in range(22))


class Page:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = {
            name: float(value)
            for name, value in (
                line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")
            )
        }

    def __getitem__(self, name: str) -> float:
        return self.samples[name]

    def all(self, prefix: str) -> dict[str, float]:
        return {name: value for name, value in self.samples.items() if name.startswith(prefix)}


class Watched:
    """A broker with its metrics."""

    def __init__(self, broker: Serving, address: str) -> None:
        self.bootstrap = broker.bootstrap
        self.address = address

    def ask(self, path: str, method: str = "GET") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(self.address, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path)
            reply = connection.getresponse()
            return reply.status, reply.headers["Content-Type"], reply.read().decode()

    def scrape(self) -> Page:
        status, kind, text = self.ask("/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        return Page(text)

    def until(self, name: str, value: float) -> Page:
        """Scrape until a sample has this value: markers are written after the answer."""
        deadline = time.monotonic() + 10
        while (page := self.scrape())[name] != value:
            assert time.monotonic() < deadline, page.all(name)
        return page

    def producer(self, transactional_id: str, **settings: Any) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": transactional_id,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        producer.init_transactions(20)
        return producer


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    data = tmp_path_factory.mktemp("watched")
    with serving(data, "--metrics", "127.0.0.1:0", "--set", "num.partitions=2") as broker:
        assert broker.process.stdout is not None
        found = re.fullmatch(
            r"oncelog metrics on http://(127\.0\.0\.1:\d+)/metrics\n",
            broker.process.stdout.readline(),
        )
        assert found is not None
        yield Watched(broker, found[1])


def test_it_says_that_the_broker_is_well(watched: Watched) -> None:
    assert watched.ask("/healthz") == (200, "text/plain; charset=utf-8", "ok\n")


def test_what_is_not_there_is_not_found(watched: Watched) -> None:
    assert watched.ask("/")[0] == 404
    assert watched.ask("/metrics", "POST")[0] == 405
    assert watched.ask("/metrics", "HEAD")[::2] == (200, "")


def test_what_is_no_http_is_closed(watched: Watched) -> None:
    host, _, port = watched.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as nonsense:
        nonsense.sendall(b"\0" * 20_000)

        with contextlib.suppress(ConnectionError):
            assert nonsense.recv(100) == b""


def test_names_end_in_a_unit_and_each_has_a_help_and_a_type(watched: Watched) -> None:
    text = watched.scrape().text

    names = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    units = ("_total", "_seconds", "_records", "_transactions", "_markers", "partitions", "_groups",
             "_connections")  # fmt: skip
    assert len(names) > 15
    for name, kind in names:
        assert name.startswith("oncelog_")
        assert name.endswith(units), name
        assert (kind == "counter") == name.endswith("_total"), name
        assert f"# HELP {name} " in text


def test_the_ends_of_transactions_are_counted(watched: Watched) -> None:
    before = watched.scrape()

    producer = watched.producer("ends")
    for number in range(3):
        producer.begin_transaction()
        producer.produce("ended", b"x")
        producer.flush(10)
        producer.commit_transaction(20) if number else producer.abort_transaction(20)

    page = watched.until("oncelog_ending_transactions", 0)
    committed, aborted = (
        "oncelog_transactions_committed_total",
        "oncelog_transactions_aborted_total",
    )
    assert page[committed] - before[committed] == 2
    assert page[aborted] - before[aborted] == 1
    count = "oncelog_commit_seconds_count"
    assert page[count] - before[count] == 2
    assert page["oncelog_completion_seconds_count"] == page[committed] + page[aborted]
    assert page["oncelog_commit_seconds_sum"] > 0
    assert page["oncelog_waiting_markers"] == 0
    assert page['oncelog_requests_total{api="EndTxn"}'] >= 3
    assert page['oncelog_requests_total{api="Produce"}'] >= 3
    assert page["oncelog_connections"] > 0


def test_an_open_transaction_is_seen_until_it_times_out(watched: Watched) -> None:
    before = watched.scrape()
    producer = watched.producer("slow", transaction_timeout_ms=2000)
    producer.begin_transaction()
    producer.produce("waited-for", b"x", partition=0)
    producer.flush(10)
    producer.produce("waited-for", b"y", partition=0)
    producer.flush(10)

    page = watched.scrape()

    lag = "oncelog_last_stable_offset_lag_records"
    assert page["oncelog_open_transactions"] == 1
    assert 0 <= page["oncelog_oldest_open_transaction_seconds"] < 60
    assert page[lag + '{topic="waited-for"}'] == 2
    aborted, timed_out = (
        "oncelog_transactions_aborted_total",
        "oncelog_transactions_timed_out_total",
    )
    watched.until(aborted, before[aborted] + 1)
    page = watched.until("oncelog_ending_transactions", 0)
    assert page[timed_out] == before[timed_out] + 1
    assert page["oncelog_open_transactions"] == 0
    assert page["oncelog_oldest_open_transaction_seconds"] == 0
    assert page.all(lag) == {lag + '{topic="(other)"}': 0}


def test_a_newer_producer_is_counted_as_fencing(watched: Watched) -> None:
    before = watched.scrape()
    zombie = watched.producer("fought-over")
    zombie.begin_transaction()
    zombie.produce("fought", b"x")
    zombie.flush(10)

    watched.producer("fought-over")

    fenced = "oncelog_transactions_fenced_total"
    assert watched.scrape()[fenced] == before[fenced] + 1


def test_only_the_topics_that_are_furthest_behind_are_named(watched: Watched) -> None:
    producer = watched.producer("many")
    producer.begin_transaction()
    for number, topic in enumerate(TOPICS):
        for _ in range(number + 1):
            producer.produce(topic, b"x", partition=0)
    producer.flush(20)

    lags = watched.scrape().all("oncelog_last_stable_offset_lag_records")
    producer.abort_transaction(20)

    named = {re.findall('"(.*)"', name)[0]: value for name, value in lags.items()}
    assert named.pop("(other)") == 1 + 2
    assert named == {topic: n + 1 for n, topic in enumerate(TOPICS) if n >= 2}


def test_partitions_and_groups_are_counted(watched: Watched) -> None:
    page = watched.scrape()

    assert page["oncelog_partitions"] > 50
    assert page["oncelog_offline_partitions"] == 0
    assert page['oncelog_groups{state="Stable"}'] == 0
