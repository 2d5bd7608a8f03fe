"""The clients of librdkafka that an app is made of, and the settings that each gets.

Settings have librdkafka's own names and are passed through, TLS and SASL among them. Those on which the
promise rests are ours alone.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from oncelog.apps.errors import Misconfigured
from oncelog.apps.failure import error_of, said

log = logging.getLogger("oncelog.apps")

#: What users may change.
_DEFAULTS: Final[Mapping[str, Any]] = {
    # Most of its own lines are for those who debug librdkafka.
    "log_level": 2,
    # How long a reply may take, after which the request is sent again.
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    # With the other strategy, offsets for a coordinator that is away for a moment can hang until the
    # transaction times out (librdkafka issue 5511).
    "metadata.recovery.strategy": "none",
}
_CONSUMER_DEFAULTS: Final[Mapping[str, Any]] = {
    # Members that come and go leave the others' partitions where they are.
    "partition.assignment.strategy": "cooperative-sticky",
    # What waits in memory for a slow handler is bounded.
    "queued.max.messages.kbytes": 16_384,
    # Going back after an abort waits for the fetch that is under way.
    "fetch.wait.max.ms": 100,
}
#: What decides about the promise, and how to ask for it instead.
_OURS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "it is the first argument of App",
    "transactional.id": "it is made of App's transactional_id= and instance=",
    "transaction.timeout.ms": "it is App's transaction_timeout_s=",
    "enable.idempotence": "a producer of an app always is idempotent",
    "acks": "a producer of an app always waits for all replicas",
    "group.id": "it is the listener's group=",
    "auto.offset.reset": "it is the listener's start=",
    "enable.auto.commit": "the listener's delivery= decides when offsets are committed",
    "enable.auto.offset.store": "the listener's delivery= decides when offsets are committed",
    "isolation.level": "listeners read what is committed",
    "enable.partition.eof": "listeners wait for more at the end of a partition",
    "error_cb": "errors go to the log oncelog.apps",
    "logger": "librdkafka's own lines go to the log oncelog.apps.librdkafka",
}
_QUIET_S: Final = 30.0


class Complaints:
    """What a client says of its connections: each complaint is logged once, until it is another."""

    def __init__(self, who: str) -> None:
        """`who` is the client, for the log."""
        self.last: KafkaError | None = None
        self._who = who
        self._lock = threading.Lock()
        self._told: dict[int, float] = {}

    def __call__(self, error: KafkaError) -> None:
        """For `error_cb`."""
        self.last = error
        code, now = error.code(), time.monotonic()
        with self._lock:
            is_new = now - self._told.get(code, -_QUIET_S) >= _QUIET_S
            if is_new:
                self._told[code] = now
        if is_new:
            log.warning("trouble", extra={"fields": {"client": self._who, "error": said(error)}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Makes an app's clients."""

    bootstrap_servers: str
    client_id: str
    transaction_timeout_s: float = 60.0
    #: For every client.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: For producers only.
    producer_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self.settings, origin="settings")
        check_settings(self.producer_settings, origin="producer_settings")

    def transactional(self, transactional_id: str, complaints: Complaints) -> Producer:
        """A producer that is still to be initialised."""
        timeout_ms = round(self.transaction_timeout_s * 1000)
        given = self._common(complaints, self.producer_settings)
        ours = {
            # librdkafka refuses a longer one.
            "socket.timeout.ms": min(int(given["socket.timeout.ms"]), timeout_ms),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
        with _refusals():
            return Producer(given | ours)

    def idempotent(self, complaints: Complaints) -> Producer:
        """A producer whose records are visible as soon as they are acknowledged."""
        given = self._common(complaints, self.producer_settings)
        with _refusals():
            return Producer(given | {"enable.idempotence": True})

    def consumer(
        self, group: str, *, start: str, settings: Mapping[str, Any], complaints: Complaints
    ) -> Consumer:
        """A member of a group that reads what is committed."""
        check_settings(settings, origin="the listener's settings")
        ours = {
            "group.id": group,
            "auto.offset.reset": start,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
        }
        settings = self._common(complaints, _CONSUMER_DEFAULTS, settings) | ours
        with _refusals():
            return Consumer(settings)

    def witness(self, group: str, complaints: Complaints) -> Consumer:
        """A consumer that joins nothing: it looks at a log, or at the offsets of a group."""
        ours = {
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        with _refusals():
            return Consumer(self._common(complaints) | ours)

    def _common(self, complaints: Complaints, *more: Mapping[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {"client.id": self.client_id, **_DEFAULTS}
        for settings in (*more, self.settings):
            given |= settings
        return given | {
            "bootstrap.servers": self.bootstrap_servers,
            "error_cb": complaints,
            "logger": log.getChild("librdkafka"),
        }


def check_settings(settings: Mapping[str, Any], *, origin: str) -> None:
    """Refuse what would break the promise, and say what to use."""
    for name in settings:
        if name in _OURS:
            raise Misconfigured(f"{origin} has {name}: remove it, {_OURS[name]}.")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as raised:
        raise Misconfigured(f"librdkafka refuses a setting: {said(error_of(raised))}.") from raised
    except (TypeError, ValueError) as raised:
        raise Misconfigured(f"librdkafka refuses a setting: {raised}.") from raised
