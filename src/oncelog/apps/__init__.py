"""Transactions for plain Python services: functions and listeners, on Oncelog and on Apache Kafka.

`App` is where it begins; docs/apps.md is the guide.
"""

try:
    import confluent_kafka as _installed
except ImportError as error:
    raise ImportError(
        "oncelog.App needs confluent-kafka, which is not installed: pip install 'oncelog[apps]'.",
        name=error.name,
    ) from error

from oncelog.apps.app import App
from oncelog.apps.codec import BY_TYPE, JSON, ByType, Codec, Json
from oncelog.apps.errors import (
    Aborted,
    AppError,
    BadRecord,
    Busy,
    Closed,
    Doomed,
    Fatal,
    Fenced,
    Misconfigured,
    NotAuthorised,
    NoTransaction,
    NotStopped,
    OutcomeUnknown,
    Poisoned,
    TooSlow,
    Unreachable,
)
from oncelog.apps.listener import Counts
from oncelog.apps.record import Record
from oncelog.apps.scope import Scope, Sender
from oncelog.core.delivery import Delivery

del _installed

__all__ = [
    "BY_TYPE",
    "JSON",
    "Aborted",
    "App",
    "AppError",
    "BadRecord",
    "Busy",
    "ByType",
    "Closed",
    "Codec",
    "Counts",
    "Delivery",
    "Doomed",
    "Fatal",
    "Fenced",
    "Json",
    "Misconfigured",
    "NoTransaction",
    "NotAuthorised",
    "NotStopped",
    "OutcomeUnknown",
    "Poisoned",
    "Record",
    "Scope",
    "Sender",
    "TooSlow",
    "Unreachable",
]
