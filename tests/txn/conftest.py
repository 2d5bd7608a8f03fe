"""Worlds for tests of transactions over the wire."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.txn.producer import TOPIC
from tests.txn.world import KAFKA_ANSWERS, World

#: Makes a world with these settings and a topic of three partitions.
StartWorld = Callable[[Mapping[str, str]], World]


@pytest.fixture
def start_world() -> Iterator[StartWorld]:
    """For tests that need settings of their own."""
    worlds: list[World] = []

    def start(settings: Mapping[str, str]) -> World:
        world = World(settings)
        worlds.append(world)
        world.create(TOPIC, partitions=3)
        return world

    yield start
    for world in worlds:
        world.close()


@pytest.fixture
def world(start_world: StartWorld) -> World:
    """A broker with its defaults."""
    return start_world({})


@pytest.fixture
def impatient(start_world: StartWorld) -> World:
    """A broker that answers CONCURRENT_TRANSACTIONS at once, as Kafka does."""
    return start_world(KAFKA_ANSWERS)
