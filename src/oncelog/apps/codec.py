"""From values to bytes and back: bytes, text and JSON, and a protocol for all others."""

import json
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class Codec(Protocol[T]):
    """Writes values of one kind as bytes, and reads them. Whatever it raises reaches the caller."""

    def encode(self, topic: str, value: T) -> bytes | None:
        """The bytes of a record's value; None is a tombstone."""

    def decode(self, topic: str, data: bytes | None) -> T:
        """The value that some bytes stand for."""


class Json:
    """JSON in UTF-8, as compact as it gets. It has no NaN and no infinity."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        """The value as JSON; None is `null`, not a tombstone."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()

    def decode(self, topic: str, data: bytes | None) -> Any:
        """What the JSON says; a tombstone is None."""
        return None if data is None else json.loads(data)


class ByType:
    """What an app does unless it is told otherwise: bytes as they are, text as UTF-8, the rest as JSON."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        """None is a tombstone."""
        match value:
            case None | bytes():
                return value
            case bytearray() | memoryview():
                return bytes(value)
            case str():
                return value.encode()
            case _:
                return JSON.encode(topic, value)

    def decode(self, topic: str, data: bytes | None) -> Any:
        """Bytes do not say what they are: they stay as they are."""
        return data


JSON: Final = Json()
BY_TYPE: Final = ByType()
