"""Source, sink and pipeline through TLS and SASL, towards an Apache Kafka that insists on them."""

import asyncio

import pytest
from pyspark.sql import SparkSession

from oncelog.client.admin import create_topic
from oncelog.client.cluster import Cluster
from oncelog.client.settings import parse_settings
from oncelog.spark import Pipeline, Sink, Source, write
from tests.peers.secured import SecuredKafka
from tests.spark.logs import fresh

pytestmark = pytest.mark.peers

VALUES = [f"{number:03}" for number in range(50)]


@pytest.mark.parametrize(
    ("listener", "mechanism", "words"),
    [
        ("SSL", None, "librdkafka"),
        ("SASL_PLAINTEXT", "PLAIN", "java"),
        ("SASL_SSL", "SCRAM-SHA-256", "java"),
        ("SASL_SSL", "SCRAM-SHA-512", "librdkafka"),
    ],
)
def test_rows_go_in_through_a_pipeline_and_out_again(
    spark: SparkSession,
    secured_broker: SecuredKafka,
    listener: str,
    mechanism: str | None,
    words: str,
) -> None:
    spell = secured_broker.options if words == "librdkafka" else secured_broker.java_options
    settings = dict(spell(listener, mechanism) if mechanism else spell(listener))
    servers = settings.pop("bootstrap.servers")
    source, target, name = fresh("in"), fresh("out"), fresh("job")

    async def make() -> None:
        given = parse_settings({**settings, "bootstrap.servers": servers})
        async with await Cluster.connect(given) as cluster:
            for topic in (source, target):
                await create_topic(cluster, topic, partitions=2)

    asyncio.run(make())
    rows = spark.createDataFrame([(value,) for value in VALUES], "value string")
    write(rows, servers, topic=source, key=name, settings=settings)
    prefixed = {f"kafka.{key}": value for key, value in settings.items()}
    summary = Pipeline(
        source=Source(servers, subscribe=source, **prefixed),
        sink=Sink(servers, topic=target, transactional_id=name, settings=settings),
        transform=lambda read: read.select("key", "value"),
        trigger="available_now",
    ).run(spark)
    assert summary.rows == 50
    reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", servers)
    for key, value in prefixed.items():
        reader = reader.option(key, value)
    found = reader.option("subscribe", target).load().select("value").collect()
    assert sorted(row.value.decode() for row in found) == VALUES


def test_a_wrong_password_is_one_sentence_and_no_retry(
    spark: SparkSession, secured_broker: SecuredKafka
) -> None:
    from oncelog.client.errors import AuthenticationFailed

    settings = dict(secured_broker.options("SASL_PLAINTEXT", "PLAIN"))
    servers = settings.pop("bootstrap.servers")
    settings["sasl.password"] = "wrong"
    rows = spark.createDataFrame([("x",)], "value string")
    with pytest.raises(AuthenticationFailed) as failed:
        write(rows, servers, topic="any", key=fresh("key"), settings=settings)
    assert "wrong" not in str(failed.value).replace("wrong password", "")
