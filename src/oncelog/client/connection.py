"""One connection to one broker: requests go out at once, answers find their way back.

A `Connection` is an `asyncio.Protocol` and knows nothing but a transport, so that a simulated
network can stand in for a socket.
"""

import asyncio
import os
import ssl
from dataclasses import dataclass
from typing import Any, Final, cast

from oncelog import __version__
from oncelog.client.errors import (
    BadReply,
    ClientError,
    Disconnected,
    NoCommonVersion,
    NoReply,
    Refused,
    TlsFailed,
    Unreachable,
)
from oncelog.client.frames import (
    API_VERSIONS,
    FrameReader,
    correlation_id_of,
    decode_response,
    request_chunks,
)
from oncelog.client.sasl import Session
from oncelog.client.security import Credentials
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.index import NAMES

#: How long one answer may take unless the caller says otherwise.
REQUEST_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
#: How long a broker may take to say goodbye when TLS ends; it has nothing else to say by then.
_GOODBYE_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    api_key: int
    version: int
    reply: asyncio.Future[Any]


class Connection(asyncio.Protocol):
    """Open one with `Connection.open`; requests may overlap."""

    def __init__(self, client_id: str = "oncelog") -> None:
        """Only `open` and a simulated network make one directly."""
        self.client_id = client_id
        #: What the broker offers: API key -> its lowest and highest version.
        self.offered: dict[int, range] = {}
        #: The broker's own answer to ApiVersions, with its features.
        self.api_versions = ApiVersionsResponse()
        self._frames = FrameReader()
        self._waiting: dict[int, _Waiting] = {}
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._ended: ClientError | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "oncelog",
        negotiates: bool = True,
        timeout: float = CONNECT_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> "Connection":
        """Connect, ask which versions the broker speaks (unless told otherwise), and log in."""
        loop = asyncio.get_running_loop()
        goodbye = None if tls is None else _GOODBYE_TIMEOUT_S
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: cls(client_id), host, port, ssl=tls, ssl_shutdown_timeout=goodbye
                )
        except TimeoutError:
            raise Unreachable(f"{host}:{port} did not answer within {timeout:g} s.") from None
        except ssl.SSLError as error:
            raise TlsFailed(f"{host}:{port}: {_tls_reason(error)}") from error
        except OSError as error:
            reason = _reason(error, uses_tls=tls is not None)
            raise Unreachable(f"{host}:{port} cannot be reached: {reason}.") from error
        try:
            if negotiates:
                await connection.negotiate(timeout=timeout)
            if credentials is not None:
                await connection.log_in(credentials, timeout=timeout)
        except BaseException:
            connection.abort()
            raise
        return connection

    # --- requests ---

    async def request(
        self,
        message: Any,
        *,
        version: int | None = None,
        at_most: int | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        """Send a request in the highest version that both sides know, and await its response.

        `at_most` keeps to the versions that a caller understands. A given `version` is sent as it
        is, whatever the broker offers.
        """
        if self._session is not None:
            await self._stay_logged_in(self._session, timeout)
        return await self._ask(message, version=version, at_most=at_most, timeout=timeout)

    def send(self, message: Any, *, version: int | None = None) -> None:
        """Send a request that is never answered: a Produce with acks=0."""
        self._send(message, self.version_of(message) if version is None else version)

    def write(self, data: bytes) -> None:
        """Put bytes on the wire as they are; for tests of what a broker does with bad ones."""
        self._writable().write(data)

    def version_of(self, message: Any, *, at_most: int | None = None) -> int:
        """The highest version that both sides know."""
        api_key = message.API_KEY
        ours, theirs = message.VERSIONS, self.offered.get(api_key, range(0))
        if at_most is not None:
            ours = range(ours[0], at_most + 1)
        if not theirs:
            raise NoCommonVersion(f"The broker does not offer {_name(api_key)}.")
        version = min(ours[-1], theirs[-1])
        if version not in ours or version not in theirs:
            raise NoCommonVersion(
                f"The broker offers {_name(api_key)} in versions {theirs[0]}-{theirs[-1]}, we speak "
                f"{ours[0]}-{ours[-1]}."
            )
        return int(version)

    async def negotiate(self, *, timeout: float = REQUEST_TIMEOUT_S) -> None:
        """Ask for the broker's versions; an old broker answers a new question in version 0."""
        message = ApiVersionsRequest(
            client_software_name="oncelog", client_software_version=__version__
        )
        reply: ApiVersionsResponse = await self.request(message, version=3, timeout=timeout)
        if reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {api.api_key: api.max_version for api in reply.api_keys}
            again = min(known.get(API_VERSIONS, 0), 3)
            reply = await self.request(message, version=again, timeout=timeout)
        if reply.error_code:
            raise Refused(reply.error_code, "ApiVersions")
        self.api_versions = reply
        self.offered = {
            api.api_key: range(api.min_version, api.max_version + 1) for api in reply.api_keys
        }

    async def log_in(self, credentials: Credentials, *, timeout: float = REQUEST_TIMEOUT_S) -> None:
        """Say who we are, now and whenever the broker wants to hear it again."""
        session = Session(credentials)
        await self._stay_logged_in(session, timeout)
        self._session = session

    # --- the end ---

    @property
    def is_open(self) -> bool:
        """Whether a request can still be sent."""
        return self._transport is not None and self._ended is None

    async def close(self) -> None:
        """Hang up; whoever still waits for an answer is told."""
        self._end(Disconnected("The connection was closed."))
        if self._transport is not None:
            self._transport.close()
            await asyncio.shield(self._closed)

    def abort(self) -> None:
        """Hang up at once, without sending what is still to be sent."""
        self._end(Disconnected("The connection was closed."))
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self, *, timeout: float = REQUEST_TIMEOUT_S) -> None:
        """Wait until the broker has hung up."""
        async with asyncio.timeout(timeout):
            await asyncio.shield(self._closed)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The network gives us our transport."""
        # A stream's transport can write; uvloop's does not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes came: hand each whole answer to the one who waits for it."""
        try:
            for frame in self._frames.feed(data):
                self._deliver(frame)
        except BadReply as error:
            self._end(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker hung up, or we did."""
        if isinstance(exc, ssl.SSLError) and not self.offered:
            # In TLS 1.3 a broker looks at our certificate when we think that all is done.
            self._end(TlsFailed(f"The broker ended the connection. {_tls_reason(exc)}"))
        why = f": {exc}" if exc else ""
        self._end(Disconnected(f"The broker closed the connection{why}."))
        if not self._closed.done():
            self._closed.set_result(None)

    # --- the inside ---

    async def _ask(
        self,
        message: Any,
        *,
        version: int | None = None,
        at_most: int | None = None,
        timeout: float,
    ) -> Any:
        chosen = self.version_of(message, at_most=at_most) if version is None else version
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        correlation_id = self._send(message, chosen)
        # An answer that comes too late must still find its entry: it is awaited until it came.
        self._waiting[correlation_id] = _Waiting(message.API_KEY, chosen, reply)
        try:
            async with asyncio.timeout(timeout):
                return await reply
        except TimeoutError:
            raise NoReply(
                f"{_name(message.API_KEY)} was not answered within {timeout:g} s."
            ) from None

    async def _stay_logged_in(self, session: Session, timeout: float) -> None:
        await session.keep(lambda message: self._ask(message, timeout=timeout), abandon=self.abort)

    def _send(self, message: Any, version: int) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        chunks = request_chunks(
            message,
            version=version,
            correlation_id=self._correlation_id,
            client_id=self.client_id,
        )
        self._writable().writelines(chunks)
        return self._correlation_id

    def _writable(self) -> asyncio.Transport:
        if self._ended is not None:
            raise Disconnected(str(self._ended))
        assert self._transport is not None, "connection_made was not called"
        return self._transport

    def _deliver(self, frame: memoryview) -> None:
        correlation_id = correlation_id_of(frame)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise BadReply(f"An answer to request {correlation_id}, which nobody sent.")
        if waiting.reply.done():
            return
        try:
            reply = _decoded(frame, waiting)
        except BadReply as error:
            waiting.reply.set_exception(error)
            raise
        waiting.reply.set_result(reply)

    def _end(self, error: ClientError) -> None:
        if self._ended is None:
            self._ended = error
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.reply.done():
                one.reply.set_exception(self._ended)


def _decoded(frame: memoryview, waiting: _Waiting) -> Any:
    if waiting.api_key == API_VERSIONS and waiting.version > 0:
        # A broker that does not know our version answers in version 0, error 35 first.
        if bytes(frame[4:6]) == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big"):
            return decode_response(frame, api_key=API_VERSIONS, version=0)
    return decode_response(frame, api_key=waiting.api_key, version=waiting.version)


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the broker's certificate is not trusted ({error.verify_message}): check which "
            "authorities are trusted (ssl.ca.location or ssl.truststore.*), and the host name."
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "record layer failure" in reason:
        return (
            "it does not speak TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use "
            "the port of a TLS listener."
        )
    if "certificate" in reason:
        return (
            f"TLS failed ({reason}): the broker wants a certificate of ours that it trusts, see "
            "ssl.certificate.location or ssl.keystore.*."
        )
    return f"TLS failed ({reason})."


def _reason(error: OSError, *, uses_tls: bool) -> str:
    if uses_tls and isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return (
            "it hung up instead of speaking TLS; if the listener has no TLS, set security.protocol "
            "to PLAINTEXT or SASL_PLAINTEXT"
        )
    # asyncio puts the address where the reason should be; a failed look-up has no errno of the
    # operating system.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _name(api_key: int) -> str:
    return NAMES.get(api_key, f"API {api_key}")
