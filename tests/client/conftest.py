"""One broker for all clients, as users run it: a process of its own, with its default durability."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.peers.oncelog import Oncelog, running_oncelog

_numbers = count(1)


@pytest.fixture(scope="session")
def oncelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oncelog]:
    """A broker that answers the first member of a group at once."""
    directory = tmp_path_factory.mktemp("oncelog")
    with running_oncelog(directory, {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def topic(oncelog: Oncelog) -> str:
    """A new topic with three partitions; its name serves as a group's name too."""
    return oncelog.create_topic(f"topic-{next(_numbers)}", partitions=3)
