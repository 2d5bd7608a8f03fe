"""SaslHandshake and SaslAuthenticate on a listener that asks nobody who they are."""

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.api.in_process import InProcessBroker


@pytest.mark.parametrize("version", SaslHandshakeRequest.VERSIONS)
def test_a_handshake_comes_at_the_wrong_time(broker: InProcessBroker, version: int) -> None:
    response = broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)

    assert (response.error_code, list(response.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", SaslAuthenticateRequest.VERSIONS)
def test_a_token_comes_at_the_wrong_time(broker: InProcessBroker, version: int) -> None:
    response = broker.ask(SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), version)

    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert response.error_message
