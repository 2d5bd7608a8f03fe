"""ApiVersions (18), versions 0-4: what this broker speaks, and at which feature levels.

1 throttle time; 3 flexible, client software names, features; 4 features whose minimum is 0. The
response header is always the oldest one: a client that asks in a version we do not know is answered
in version 0 with UNSUPPORTED_VERSION and the ranges (the connection sees to that).
"""

import re

from oncelog.api.registry import APIS, RequestContext
from oncelog.core.metadata.shard import FEATURES
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Answer with everything we serve."""
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=_ranges(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in FEATURES.items()
            # KAFKA-17011: older clients fail on a minimum of 0.
            if low > 0 or context.version >= 4
        ],
        finalized_features_epoch=node.metadata_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(node.metadata.feature_levels.items())
            if level > 0
        ],
    )


def unsupported() -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that we do not know; it is sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges())


def _ranges() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.advertised_first, max_version=api.last)
        for api in APIS.values()
    ]
