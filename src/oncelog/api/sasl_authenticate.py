"""SaslAuthenticate (36), versions 0-2: a client's proof of who it is.

1 session lifetime; 2 flexible. On an unsecured listener it comes at the wrong time, always.
"""

from oncelog.api.registry import RequestContext
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    node: Node, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Refuse: nobody asked."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener does not authenticate its clients",
    )
