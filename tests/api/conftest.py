"""Brokers for tests of the APIs over a real socket."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.api.in_process import InProcessBroker

#: Makes a broker with these settings, which is stopped when the test ends.
StartBroker = Callable[[Mapping[str, str]], InProcessBroker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """For tests that need settings of their own."""
    started: list[InProcessBroker] = []

    def start(settings: Mapping[str, str]) -> InProcessBroker:
        broker = InProcessBroker(tmp_path / f"data-{len(started)}", settings)
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def broker(start_broker: StartBroker) -> InProcessBroker:
    """A broker with its defaults, but for the wait of a group for its members."""
    return start_broker({})
