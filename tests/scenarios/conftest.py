"""Brokers that tests treat badly."""

import time
from collections.abc import Iterator

import pytest

import oncelog
from tests.scenarios.victim import HEALTHY, MIB, SETTINGS, Victim
from tests.scenarios.wire import OK, TOPIC, Wire


@pytest.fixture(scope="module")
def a_victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A broker with a topic that must not change, and one with 20 MiB."""
    with oncelog.Broker(
        SETTINGS, data_dir=tmp_path_factory.mktemp("victim") / "data", process=True
    ) as broker:
        victim = Victim(broker)

        async def prepare(wire: Wire) -> None:
            for name in (TOPIC, HEALTHY, "big"):
                assert await wire.create_topic(name) == OK
            assert (await wire.produce(wire.batch(count=3))).error_code == OK
            for _ in range(24):
                batch = wire.batch(padding=900_000)
                assert (await wire.produce(batch, topic="big")).error_code == OK

        victim.talk(prepare)
        yield victim


@pytest.fixture
def victim(a_victim: Victim) -> Iterator[Victim]:
    """K7, K8: afterwards others are served, the log is unchanged, memory and handles are free."""
    a_victim.check_health()
    digest, rss, handles = a_victim.digest(), a_victim.rss_bytes(), a_victim.sockets()
    yield a_victim
    a_victim.check_health()
    assert a_victim.digest() == digest
    assert a_victim.rss_bytes() < rss + 64 * MIB
    deadline = time.monotonic() + 30
    while a_victim.sockets() > handles:
        assert time.monotonic() < deadline, "connections are left behind"
        time.sleep(0.01)
