"""The pytest fixture `oncelog_broker`: a fresh broker for each test that asks for one."""

from collections.abc import Iterator

import pytest

from oncelog.testing.broker import Broker


@pytest.fixture
def oncelog_broker() -> Iterator[Broker]:
    """A running broker on a temporary directory."""
    with Broker() as broker:
        yield broker
