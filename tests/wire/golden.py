"""The bytes that kafka-clients itself wrote for every message; `tools/golden` made them."""

import base64
import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from oncelog.wire.messages import request_class, response_class
from oncelog.wire.messages.index import NAMES
from tools.messages import snake

DIRECTORY: Final = Path(__file__).parent / "golden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One message in one version: its class, its bytes and, as Kafka printed it, its content."""

    cls: Any
    version: int
    variant: str
    data: bytes
    content: Any

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}-{self.variant}"


@cache
def goldens(api_key: int) -> tuple[Golden, ...]:
    """All of one API."""
    lines = json.loads((DIRECTORY / f"{NAMES[api_key]}.json").read_text())
    classes = {"request": request_class(api_key), "response": response_class(api_key)}
    return tuple(
        Golden(
            cls=classes[line["kind"]],
            version=line["version"],
            variant=line["variant"],
            data=bytes.fromhex(line["bytes"]),
            content=line["content"],
        )
        for line in lines
    )


def all_goldens() -> list[Golden]:
    """All of every API."""
    return [golden for api_key in NAMES for golden in goldens(api_key)]


def built(cls: Any, content: Any) -> Any:
    """Our message with Kafka's content; what Kafka did not print stays at our default."""
    fields = {field.name: field.metadata["kind"] for field in dataclasses.fields(cls)}
    # Kafka's JSON names start with a small letter, the definitions' with a capital one.
    values = {snake(name[0].upper() + name[1:]): value for name, value in content.items()}
    return cls(**{name: _value(fields[name], value) for name, value in values.items()})


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, list):
        return [_value(kind[0], element) for element in value]
    if kind == "uuid":
        return UUID(bytes=base64.urlsafe_b64decode(value + "=="))
    if kind in ("bytes", "records"):
        return base64.b64decode(value)
    return value if isinstance(kind, str) else built(kind, value)


def plain(value: Any) -> Any:
    """A message as dictionaries, lists and scalars, so that two can be compared and printed."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return bytes(value) if isinstance(value, memoryview) else value
