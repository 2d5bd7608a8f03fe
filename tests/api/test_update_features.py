"""UpdateFeatures over a real socket, in every version."""

import pytest

from oncelog.core.metadata.shard import FEATURES
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.api.in_process import InProcessBroker

VERSIONS = UpdateFeaturesRequest.VERSIONS


def update(
    broker: InProcessBroker, *updates: FeatureUpdateKey, version: int = 2
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=updates)
    response: UpdateFeaturesResponse = broker.ask(request, version)
    return response


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_feature_fails_the_request_as_a_whole(
    broker: InProcessBroker, version: int
) -> None:
    wanted = FeatureUpdateKey(feature="nowhere", max_version_level=1)

    response = update(broker, wanted, version=version)

    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "nowhere" in (response.error_message or "")
    assert list(response.results) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_to_update_succeeds(broker: InProcessBroker, version: int) -> None:
    response = update(broker, version=version)

    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_kind_of_upgrade_is_refused(broker: InProcessBroker, version: int) -> None:
    wanted = FeatureUpdateKey(feature="nowhere", max_version_level=1, upgrade_type=9)

    response = update(broker, wanted, version=version)

    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "9" in (response.error_message or "")


def test_every_feature_that_we_know_takes_its_highest_level(broker: InProcessBroker) -> None:
    highest = [
        FeatureUpdateKey(feature=name, max_version_level=high)
        for name, (_, high) in FEATURES.items()
    ]

    assert update(broker, *highest).error_code == ErrorCode.NONE
