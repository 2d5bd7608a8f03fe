"""Logging in on a connection: SaslHandshake names the mechanism, SaslAuthenticate does the rest."""

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from oncelog.client.errors import AuthenticationFailed, describe
from oncelog.client.scram import Conversation, scram
from oncelog.client.security import Credentials, Mechanism
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: Sends a request and awaits its answer.
Ask = Callable[[Any], Awaitable[Any]]

#: Renewed after this part of its life, a session does not end while a request is on its way.
_RENEWED_AFTER: Final = 0.85
_NONCE_BYTES: Final = 24


class Session:
    """A login on one connection, which some brokers want renewed from time to time (KIP-368)."""

    def __init__(self, credentials: Credentials) -> None:
        """Nobody has logged in yet."""
        self._credentials = credentials
        self._is_due_at_s = -math.inf
        self._lock = asyncio.Lock()

    async def keep(self, ask: Ask, *, abandon: Callable[[], None]) -> None:
        """Log in if that is due, and let whoever comes meanwhile wait.

        A broker takes nothing but the login while it goes on, so one that stops halfway makes us
        `abandon` the connection. It takes a new login even when the session has ended, so nobody
        has to watch the clock of a connection that is idle.
        """
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if now_s < self._is_due_at_s:
                return
            try:
                life_s = await authenticate(ask, self._credentials) / 1000
            except BaseException:
                abandon()
                raise
            self._is_due_at_s = now_s + life_s * _RENEWED_AFTER if life_s > 0 else math.inf


async def authenticate(ask: Ask, credentials: Credentials) -> int:
    """Prove who we are; for how many milliseconds that holds, or 0 for ever."""
    mechanism = credentials.mechanism
    handshake: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=mechanism.value))
    if handshake.error_code:
        raise AuthenticationFailed(_no_mechanism(handshake, mechanism))
    conversation = _CONVERSATIONS[mechanism](credentials)
    message = next(conversation)
    while True:
        reply: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(auth_bytes=message))
        if reply.error_code:
            raise AuthenticationFailed(
                f"The broker did not let in the user {credentials.username!r} with {mechanism}: "
                f"{reply.error_message or describe(reply.error_code)}. Check the name, the "
                "password and the mechanism."
            )
        try:
            message = conversation.send(reply.auth_bytes)
        except StopIteration:
            return reply.session_lifetime_ms


def _no_mechanism(reply: SaslHandshakeResponse, wanted: Mechanism) -> str:
    match reply.error_code:
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(reply.mechanisms) or "none"
            return (
                f"The broker does not take {wanted} (it takes {offered}): set sasl.mechanism to "
                "one that it takes."
            )
        case ErrorCode.ILLEGAL_SASL_STATE:
            return (
                "The broker's listener lets everybody in and wants no user: set security.protocol "
                "to PLAINTEXT or SSL, or use the port of another listener."
            )
        case code:
            return f"The broker refused to let anybody log in: {describe(code)}."


def _plain(credentials: Credentials) -> Conversation:
    yield f"\0{credentials.username}\0{credentials.password}".encode()


def _scram(hash_name: str) -> Callable[[Credentials], Conversation]:
    def conversation(credentials: Credentials) -> Conversation:
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return scram(hash_name, credentials.username, credentials.password, nonce=nonce)

    return conversation


_CONVERSATIONS: Final[Mapping[Mechanism, Callable[[Credentials], Conversation]]] = {
    Mechanism.PLAIN: _plain,
    Mechanism.SCRAM_SHA_256: _scram("sha256"),
    Mechanism.SCRAM_SHA_512: _scram("sha512"),
}
