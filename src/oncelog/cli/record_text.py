"""Records as lines of text: what `consume` prints, `produce` reads back.

A JSON line is one object. Bytes that are UTF-8 stand as text, others as {"base64": "..."}; null is
null. Headers are a list of pairs, since a name may come twice and order counts.

    {"topic":"t","partition":0,"offset":7,"timestamp":1700000000000,"key":"k","value":"v",
     "headers":[["trace","1"]]}
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

Header = tuple[str, bytes | None]


class BadLine(Exception):
    """A line that is no record; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A record to be written; what is `None` is left to the producer and the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


#: What a JSON line may say. The place of a record that was consumed is of no use here: it is
#: allowed, so that the output of `consume --json` can be piped into `produce --json`.
_FIELDS: Final = frozenset({"key", "value", "headers", "partition", "timestamp", "topic", "offset"})


def read_plain(line: bytes, key_separator: bytes | None) -> Line:
    """A line of text: a value, or a key and a value."""
    if key_separator is None:
        return Line(value=line)
    key, found, value = line.partition(key_separator)
    if not found:
        raise BadLine(f"there is no {key_separator.decode(errors='replace')!r} in it")
    return Line(key=key, value=value)


def read_json(line: bytes) -> Line:
    """A JSON line."""
    try:
        given = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadLine(f"it is not JSON: {error}") from error
    except RecursionError:
        raise BadLine("it is nested too deeply") from None
    if not isinstance(given, dict):
        raise BadLine("it is not a JSON object")
    if unknown := sorted(given.keys() - _FIELDS):
        raise BadLine(f"it has a field {unknown[0]!r}; known are {', '.join(sorted(_FIELDS))}")
    return Line(
        key=_bytes(given.get("key"), "key"),
        value=_bytes(given.get("value"), "value"),
        headers=_headers(given.get("headers")),
        partition=_number(given.get("partition"), "partition", 2**31),
        timestamp_ms=_number(given.get("timestamp"), "timestamp", 2**63),
    )


def _bytes(given: Any, name: str) -> bytes | None:
    match given:
        case None:
            return None
        case str():
            try:
                return given.encode()
            except UnicodeEncodeError:
                raise BadLine(f"its {name} has half of a surrogate pair") from None
        case {"base64": str(text)} if len(given) == 1:
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise BadLine(f"its {name} is not base64") from None
        case _:
            raise BadLine(f'its {name} is neither text, null nor {{"base64": "..."}}')


def _headers(given: Any) -> tuple[Header, ...]:
    if isinstance(given, dict):
        given = list(given.items())
    if not isinstance(given, list | None):
        given = [given]
    headers = []
    for pair in given or ():
        match pair:
            case [str(name), value] | (str(name), value):
                _bytes(name, "header's name")
                headers.append((name, _bytes(value, f"header {name!r}")))
            case _:
                raise BadLine("its headers are not pairs of a name and a value")
    return tuple(headers)


def _number(given: Any, name: str, end: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < end:
        raise BadLine(f"its {name} is not a whole number of at least 0")
    return given


def as_plain(key: bytes | None, value: bytes | None, key_separator: bytes | None) -> bytes:
    """A line of text, byte for byte; null is written out, as Kafka's own tool does it."""
    shown = b"null" if value is None else value
    if key_separator is None:
        return shown
    return (b"null" if key is None else key) + key_separator + shown


def as_json(
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...],
) -> bytes:
    """A JSON line."""
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "key": _text(key),
        "value": _text(value),
        "headers": [[name, _text(content)] for name, content in headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _text(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
