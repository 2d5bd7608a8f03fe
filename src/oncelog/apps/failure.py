"""What an error of librdkafka means for an app: one table from its codes to our errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from oncelog.apps.errors import AppError, Fenced, Misconfigured, NotAuthorised


class Kind(Enum):
    """What is to be done about an error."""

    RETRY = auto()  # the same call again
    ABORT = auto()  # the transaction is over, the producer is well
    FENCED = auto()  # another one has our id
    DENIED = auto()  # the brokers do not let us
    WRONG = auto()  # a setting does not work here
    BROKEN = auto()  # the producer is of no use any more, another one may be


_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
_DENIED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_WRONG: Final = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
#: Errors of a record, not of the brokers: the same record would fail again.
_OF_THE_RECORD: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


def kind_of(error: KafkaError) -> Kind:
    """What is to be done about an error."""
    code = error.code()
    if code in _DENIED:
        return Kind.DENIED
    if error.fatal() or code == KafkaError.FENCED_INSTANCE_ID:
        return Kind.FENCED if code in _FENCED else Kind.WRONG if code in _WRONG else Kind.BROKEN
    if error.txn_requires_abort():
        return Kind.ABORT
    if error.retriable() or code == KafkaError._TIMED_OUT:
        return Kind.RETRY
    return Kind.WRONG if code in _WRONG else Kind.BROKEN


def is_of_the_record(error: KafkaError) -> bool:
    """Whether a record was refused for what it is."""
    return error.code() in _OF_THE_RECORD


@contextmanager
def callbacks() -> Iterator[None]:
    """Around calls that serve callbacks: a producer that has failed for good says so in them.

    confluent-kafka raises a fatal error in the middle of a callback, and Python then finds fault with
    the call; what the error was comes out with the abort.
    """
    try:
        yield
    except SystemError as raised:
        if isinstance(raised.__cause__, Exception):
            raise raised.__cause__ from None
        raise KafkaException(KafkaError(KafkaError._STATE, "the producer has failed")) from raised


def error_of(raised: KafkaException) -> KafkaError:
    """What is inside of librdkafka's exception."""
    error = raised.args[0]
    assert isinstance(error, KafkaError), raised
    return error


def fatal_error(error: KafkaError, what: str, *, who: str) -> AppError | None:
    """The end of the app, if an error is one: `what` was done by `who` when it came."""
    match kind_of(error):
        case Kind.FENCED:
            return Fenced(
                f"{who} was replaced: another instance has taken over its transactional id, or one of "
                f"its transactions outlived transaction_timeout_s. It stops, and does not fence the "
                f"other one back. Replicas of a service need an instance= of their own. ({said(error)})"
            )
        case Kind.DENIED:
            return NotAuthorised(
                f"{who} is not allowed to {what}: {said(error)}. Check the security settings, and the "
                f"rights of its user on topics, groups and transactional ids."
            )
        case Kind.WRONG:
            return Misconfigured(f"{who} cannot {what}: {said(error)}.")
        case _:
            return None


def said(error: KafkaError) -> str:
    """Librdkafka's own words, with the name of the error."""
    text = error.str().strip().rstrip(".")
    return f"{text} [{error.name()}]"
