"""One Spark for all tests that need one, and one broker with topics of their own for each."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import oncelog
from tests.peers.java import SPARK_CONNECTOR, jars


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores that retries tasks, as plain `local` never does."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    directory = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("oncelog-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.noDataProgressEventInterval", "100")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        # Spark's own connector, for the tests that compare with it; to the others it is one more
        # format that they do not name.
        .config("spark.jars", ",".join(map(str, jars(SPARK_CONNECTOR))))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[oncelog.Broker]:
    """One broker for all of them."""
    with oncelog.Broker() as running:
        yield running
