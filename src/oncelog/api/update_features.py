"""UpdateFeatures (57), versions 0-2: raise or lower the level of a feature.

1 dry runs, and kinds of downgrade instead of a switch; 2 no results per feature. One bad update
fails the request as a whole: nothing is written and the reason stands at the top.
"""

from typing import Final

from oncelog.api.registry import RequestContext
from oncelog.core.errors import BrokerError, InvalidUpdateVersion
from oncelog.core.metadata.shard import SetFeatures
from oncelog.runtime.node import Node
from oncelog.wire.errors import error_code
from oncelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


async def handle(
    node: Node, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    """Set all levels, or none."""
    try:
        for update in request.feature_updates:
            _check_direction(node, update, context.version)
        command = SetFeatures(
            levels={update.feature: update.max_version_level for update in request.feature_updates}
        )
        node.metadata.plan_features(command)
        if not request.validate_only:
            await node.change(command)
    except BrokerError as error:
        return UpdateFeaturesResponse(error_code=error_code(error), error_message=str(error))
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ],
    )


def _check_direction(node: Node, update: FeatureUpdateKey, version: int) -> None:
    kind = update.upgrade_type
    if version == 0:
        kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise InvalidUpdateVersion(f"{update.feature}: there is no upgrade type {kind}")
    level = node.metadata.feature_levels.get(update.feature, 0)
    if update.max_version_level < level and kind == UPGRADE:
        raise InvalidUpdateVersion(
            f"{update.feature} is at level {level}; going down to {update.max_version_level} has to "
            "be asked for as a downgrade"
        )
