"""What becomes of a record that cannot be handled: a letter that says why, or the end of the listener.

A letter keeps the record's key, value and headers, and says in headers of its own what went wrong and
where the record stands.
"""

from typing import Final

from oncelog.apps.record import Headers, Record

ERROR_HEADER: Final = "oncelog.error"
TRIES_HEADER: Final = "oncelog.tries"
TOPIC_HEADER: Final = "oncelog.topic"
PARTITION_HEADER: Final = "oncelog.partition"
OFFSET_HEADER: Final = "oncelog.offset"
GROUP_HEADER: Final = "oncelog.group"

#: An error may quote the whole record: as much of it is told.
LONGEST_ERROR: Final = 1000


def letter_headers(record: Record, *, why: str, tries: int, group: str) -> Headers:
    """The headers of a record's letter: its own first, then ours."""
    ours = {
        ERROR_HEADER: why[:LONGEST_ERROR],
        TRIES_HEADER: str(tries),
        TOPIC_HEADER: record.topic,
        PARTITION_HEADER: str(record.partition),
        OFFSET_HEADER: str(record.offset),
        GROUP_HEADER: group,
    }
    # A letter that was consumed and failed again says where it failed last.
    kept = tuple((name, value) for name, value in record.headers if name not in ours)
    return (*kept, *((name, text.encode(errors="replace")) for name, text in ours.items()))


def reason(error: BaseException) -> str:
    """What a person is told of a handler's error."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
