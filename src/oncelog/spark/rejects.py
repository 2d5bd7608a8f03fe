"""Rows that cannot be written: an error that names the row, or a letter to the dead-letter topic.

A letter keeps the row's key, value and headers, and says in headers of its own what was wrong and
where the row wanted to go. What does not fit even there is left out piece by piece, and counted.
"""

from dataclasses import dataclass
from typing import Final

from oncelog.core.packing import encode_batch
from oncelog.core.records import Record
from oncelog.spark.headers import Headers, pack

ERROR_HEADER: Final = "oncelog.error"
TOPIC_HEADER: Final = "oncelog.topic"
PARTITION_HEADER: Final = "oncelog.partition"
DROPPED_HEADER: Final = "oncelog.dropped.bytes"

_SHOWN: Final = 40


class BadRow(ValueError):
    """A row can neither be written nor become a dead letter; the batch fails as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A row with what is wrong with it."""

    reason: str
    number: int  # of the row, in its upstream partition
    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers

    def error(self, origin: int) -> BadRow:
        """The error that fails the batch."""
        return BadRow(
            f"row {self.number} of the DataFrame's partition {origin} cannot be written: "
            f"{self.reason} (topic {self.topic!r}, partition {self.partition}, "
            f"key {_shortened(self.key)}). Correct it, or name a dead-letter topic that takes such rows."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What is written in place of a rejected row."""

    key: bytes | None
    value: bytes | None
    headers: bytes  # packed


def letter(reject: Reject, *, max_message_bytes: int) -> Letter | None:
    """As much of the row as a topic with this limit takes; None if not even the reason fits."""
    partition = None if reject.partition is None else str(reject.partition).encode()
    topic = None if reject.topic is None else reject.topic.encode()
    about = (
        (ERROR_HEADER, reject.reason.encode()),
        (TOPIC_HEADER, topic),
        (PARTITION_HEADER, partition),
    )
    headers = tuple(reject.headers)
    whole = _size(reject.key, reject.value, headers)
    for key, value, kept in (
        (reject.key, reject.value, headers),
        (reject.key, None, headers),
        (reject.key, None, ()),
        (None, None, ()),
    ):
        dropped = whole - _size(key, value, kept)
        note = ((DROPPED_HEADER, str(dropped).encode()),) if dropped else ()
        record = Record(0, 0, key, value, kept + about + note)
        if len(encode_batch([record])) <= max_message_bytes:
            return Letter(key=key, value=value, headers=pack(record.headers))
    return None


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    return len(key or b"") + len(value or b"") + sum(len(k) + len(v or b"") for k, v in headers)


def _shortened(key: bytes | None) -> str:
    if key is None or len(key) <= _SHOWN:
        return repr(key)
    return f"{key[:_SHOWN]!r}... of {len(key)} bytes"
