"""SaslHandshake (17), versions 0-1: which mechanism a client wants to authenticate with.

1 SaslAuthenticate follows instead of bare tokens. On an unsecured listener nobody has to say who
they are, and Kafka answers ILLEGAL_SASL_STATE whatever the mechanism: the client is already in.
"""

from oncelog.api.registry import RequestContext
from oncelog.runtime.node import Node
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    node: Node, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """Refuse: there is nothing to negotiate."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
