"""The examples do what they say, against a broker of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import oncelog
from oncelog.spark import AuditReport, Topics, audit
from oncelog.spark.launch import load, pipeline_of
from tests.spark.topics import Topic

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with oncelog.Broker({"num.partitions": "2"}, process=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def addresses(servers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", servers)
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "checkpoint"))
    monkeypatch.setattr(sys, "path", sys.path[:])


def topic(servers: str, name: str, *values: Any, timestamp: int = 0) -> Topic:
    made = Topic(servers, name=name, partitions=2)
    for number, value in enumerate(values):
        text = value if isinstance(value, str) else json.dumps(value)
        made.write([text], partition=number % 2, timestamp=timestamp)
    return made


def records(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def values(spark: SparkSession, servers: str, topic: str) -> list[Any]:
    rows = records(spark, servers, topic).collect()
    return sorted((json.loads(row.value) for row in rows), key=lambda value: sorted(value.items()))


@pytest.mark.timeout(240)  # it starts a Spark of its own
def test_events_are_cleaned_or_set_aside(spark: SparkSession, servers: str) -> None:
    """As a process of its own, as people start it; SIGTERM ends it after a batch."""
    good = {"user": "ada", "action": "LOGIN", "at": "2026-01-31T08:00:00Z"}
    topic(servers, "events", good, "not JSON", {"user": "bob", "action": "logout"})
    outputs = topic(servers, "events-clean"), topic(servers, "events-bad")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }
    job = subprocess.Popen(
        [sys.executable, EXAMPLES / "clean_events.py"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        deadline = time.monotonic() + 150
        while sum(len(each.consumed(2)) for each in outputs) < 3:
            assert job.poll() is None, "the example ended by itself"
            assert time.monotonic() < deadline, "the example writes nothing"
            time.sleep(0.5)
        job.send_signal(signal.SIGTERM)
        said, _ = job.communicate(timeout=30)
    finally:
        job.kill()
        job.wait()

    assert "clean-events: 3 rows in 1 batch," in said
    (clean,) = records(spark, servers, "events-clean").collect()
    assert clean.key == b"ada"
    assert json.loads(clean.value) == {
        "user": "ada",
        "action": "login",
        "at": "2026-01-31T08:00:00.000Z",
        "day": "2026-01-31",
    }
    bad = records(spark, servers, "events-bad").collect()
    assert {(row.value[:8], row.headers[0].value) for row in bad} == {
        (b"not JSON", b"there is no user"),
        (b'{"user":', b"there is no time"),
    }


def test_orders_are_split_and_the_audit_agrees(spark: SparkSession, servers: str) -> None:
    orders = [
        {"id": str(number), "customer": f"c{number % 3}", "total": 10.0 + number, "paid": paid}
        for number, paid in enumerate([True, False, True, True, False])
    ]
    topic(servers, "orders", *orders)
    outputs = ("invoices", "shipments", "reminders")
    for name in outputs:
        topic(servers, name)
    module = load(EXAMPLES / "split_orders.py")
    pipeline = pipeline_of(module)
    pipeline.trigger = "available_now"

    def audited() -> AuditReport:
        return audit(
            spark,
            input=Topics(servers, "orders"),
            output=Topics(servers, *outputs),
            by=["key", "value"],
            expected=module.split,
        )

    assert audited().lost.count == 8
    assert pipeline.run(spark).rows == 8
    assert pipeline.run(spark).batches == 0
    report = audited()
    assert report.ok, report
    assert values(spark, servers, "invoices")[0] == {"id": "0", "total": 10.0, "tax": 2.0}
    assert [each["id"] for each in values(spark, servers, "reminders")] == ["1", "4"]


def test_views_are_counted_by_the_minute(spark: SparkSession, servers: str) -> None:
    views = topic(servers, "views", "/", "/", "/about", timestamp=60_000)
    topic(servers, "views-per-minute")
    counting = load(EXAMPLES / "page_views.py").counting

    def run() -> None:
        query = counting(spark).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert query.exception() is None

    run()
    assert values(spark, servers, "views-per-minute") == []
    views.write(["/"], timestamp=5 * 60_000)
    views.write(["/late"], timestamp=60_001, partition=1)
    run()
    run()

    found = values(spark, servers, "views-per-minute")
    assert sorted((each["page"], each["minute"][11:16], each["count"]) for each in found) == [
        ("/", "00:01", 2),
        ("/about", "00:01", 1),
        ("/late", "00:01", 1),
    ]
