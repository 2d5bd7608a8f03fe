"""What can go wrong between a client and a broker. Each says what is known of the request."""

from oncelog.wire.errors import ErrorCode


class ClientError(Exception):
    """A request that brought no usable answer; its text is a sentence for a person."""


class BadAddress(ClientError):
    """A list of brokers that cannot be read. Nothing was sent."""


class BadSettings(ClientError):
    """Settings that cannot be read, or that we cannot honour. Nothing was sent."""


class Unreachable(ClientError):
    """No connection could be made. Nothing was sent."""


class TlsFailed(ClientError):
    """The two sides could not agree on a secure connection. Nothing was sent."""


class AuthenticationFailed(ClientError):
    """The broker does not take us for the user, or is not who it should be. Nothing was sent."""


class NoCommonVersion(ClientError):
    """The broker and we share no version of the API. Nothing was sent."""


class Disconnected(ClientError):
    """The connection ended before the answer came. The outcome is unknown."""


class NoReply(ClientError):
    """The answer did not come in time. The outcome is unknown."""


class BadReply(ClientError):
    """The answer is not what the protocol says. The outcome is unknown."""


class Refused(ClientError):
    """The broker answered with an error."""

    def __init__(self, code: int, subject: str = "", detail: str | None = None) -> None:
        """`subject` is what the request was about, `detail` the broker's own sentence."""
        self.code = code
        super().__init__(": ".join(part for part in (subject, describe(code), detail) if part))


def describe(code: int) -> str:
    """An error code by name, or by number if we do not know it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
