"""The pytest fixture `oncelog_broker`: a fresh broker for each test that asks for one.

@pytest.mark.oncelog(process=True, settings={"num.partitions": "4"})
def test_a_service_survives_a_crash(oncelog_broker): ...
"""

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.testing.broker import Broker


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "oncelog(settings=None, process=False): how the broker of `oncelog_broker` is started",
    )


@pytest.fixture
def oncelog_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker on a temporary directory; `fault` lets something go wrong with it."""
    marker = request.node.get_closest_marker("oncelog")
    wanted: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    with Broker(wanted.pop("settings", None), **{"faults": True, **wanted}) as broker:
        yield broker
