"""An independent judge: reads the history of a run and names what the log did wrong.

It shares no code with the broker, so that a mistake in one cannot hide in the other.
"""

from oncelog.check.history import (
    HARNESS,
    Effect,
    Effects,
    End,
    Ends,
    Event,
    Group,
    History,
    Kind,
    Op,
    Pipe,
    Range,
    Read,
    Record,
    Run,
    Unreadable,
    Write,
    open_history,
    parse_history,
)
from oncelog.check.payload import BadPayload, Payload, decode_payload, encode_payload, value_of
from oncelog.check.recorder import Recorder
from oncelog.check.verdict import Report, Verdict, as_json, as_text, judge

__all__ = [
    "HARNESS",
    "BadPayload",
    "Effect",
    "Effects",
    "End",
    "Ends",
    "Event",
    "Group",
    "History",
    "Kind",
    "Op",
    "Payload",
    "Pipe",
    "Range",
    "Read",
    "Record",
    "Recorder",
    "Report",
    "Run",
    "Unreadable",
    "Verdict",
    "Write",
    "as_json",
    "as_text",
    "decode_payload",
    "encode_payload",
    "judge",
    "open_history",
    "parse_history",
    "value_of",
]
