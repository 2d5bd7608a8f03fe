"""How a Kafka message is declared: one dataclass for all of its versions.

A field says its wire type and the versions that carry it. Whatever a version does not carry keeps
its default when decoded and is left out when encoded, so the rest of the broker sees one shape.
`oncelog.wire.codec` compiles these declarations; `oncelog.wire.messages` holds them.
"""

from dataclasses import field
from typing import Any, ClassVar, Final, Protocol
from uuid import UUID

ZERO_UUID: Final = UUID(int=0)

#: What a field holds when nobody set it, by wire type.
DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
}

_NOT_GIVEN: Final = object()


class Struct(Protocol):
    """Any dataclass whose fields were declared with `wire`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Message(Struct, Protocol):
    """A request, a response, or a record value with a version of its own."""

    VERSIONS: ClassVar[range]
    FLEXIBLE_SINCE: ClassVar[int]


class Versions:
    """A closed or open range of versions, written as Kafka writes it: `3-7`, `9+`, `4`."""

    __slots__ = ("first", "last")

    def __init__(self, text: str) -> None:
        if text.endswith("+"):
            self.first, self.last = int(text[:-1]), 1 << 15
        else:
            first, _, last = text.partition("-")
            self.first, self.last = int(first), int(last or first)

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


def wire(
    kind: Any,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    default: object = _NOT_GIVEN,
) -> Any:
    """Declare a field: `kind` is a primitive's name, a struct's class, or a list of one of them."""
    metadata = {
        "kind": kind,
        "versions": Versions(versions),
        "nullable": Versions(nullable) if nullable is not None else None,
        "tag": tag,
        "tagged": Versions(tagged or versions) if tag is not None else None,
    }
    if default is not _NOT_GIVEN:
        return field(default=default, metadata=metadata)
    if isinstance(kind, list):
        return field(default=(), metadata=metadata)
    if isinstance(kind, str):
        return field(default=DEFAULTS[kind], metadata=metadata)
    return field(default_factory=kind, metadata=metadata)
