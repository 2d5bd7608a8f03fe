"""Turns messages into bytes and back.

For each (class, version) a decoder and an encoder are compiled on first use: straight-line Python
in which neighbouring fields of fixed size share one `struct` call. Every length is checked
against what is left of the frame before anything is allocated, so no frame can claim more elements
than it has bytes. Record batches stay views of the frame on the way in and separate, uncopied
chunks on the way out.
"""

import dataclasses
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar
from uuid import UUID

from oncelog.core.varints import uvarint
from oncelog.wire.schema import ZERO_UUID, Struct

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

FORMATS: Final[dict[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}

#: Encoded record batches above this size are not copied into the response.
CHUNK_BYTES: Final = 4096


class DecodeError(Exception):
    """The bytes are not the message they claim to be. Nothing was done with them."""


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> T:
    """Read one message; bytes left over are ignored, as Kafka ignores them."""
    message, _ = decode_from(cls, version, memoryview(buffer), position)
    return message


def decode_from(cls: type[T], version: int, view: memoryview, position: int) -> tuple[T, int]:
    """Read one message and say where it ended."""
    try:
        decoder = _decoder(cls, version)  # type: ignore[arg-type] # classes are hashable
        return decoder(view, position)  # type: ignore[no-any-return] # compiled
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from error


def encode(message: Struct, version: int) -> bytes:
    """The bytes of one message."""
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Struct, version: int) -> list[Buffer]:
    """The bytes of one message as a list that leaves large record batches where they are."""
    out: list[Buffer] = []
    _encoder(type(message), version)(message, out)
    return out


def join_small(chunks: list[Buffer]) -> list[Buffer]:
    """Merge neighbours until only large chunks stand alone: fewer, larger writes to the socket."""
    merged: list[Buffer] = []
    small: list[Buffer] = []
    for chunk in chunks:
        if len(chunk) < CHUNK_BYTES:
            small.append(chunk)
            continue
        if small:
            merged.append(b"".join(small))
            small = []
        merged.append(chunk)
    if small:
        merged.append(b"".join(small))
    return merged


# --- variable-length integers ---------------------------------------------------------------


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit LEB128 and say where it ended; longer ones are refused."""
    value = shift = 0
    try:
        while shift <= 28:
            byte = view[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                if value > 0xFFFFFFFF:
                    raise DecodeError("variable-length integer above 32 bits")
                return value, position
            shift += 7
    except IndexError:
        raise DecodeError("the bytes end within a variable-length integer") from None
    raise DecodeError("variable-length integer of more than 5 bytes")


def skip_tags(view: memoryview, position: int) -> int:
    """Step over a tag buffer in which nothing is known to us."""
    count, position = read_uvarint(view, position)
    previous = -1
    for _ in range(count):
        tag, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        previous = _next_tag(previous, tag, size, len(view) - position)
        position += size
    return position


def _next_tag(previous: int, tag: int, size: int, left: int) -> int:
    if tag <= previous:
        raise DecodeError(f"tag {tag} repeated or out of order")
    if size > left:
        raise DecodeError(f"tag {tag} of {size} bytes with {left} left")
    return tag


def _check_end(position: int, end: int, name: str) -> None:
    if position != end:
        raise DecodeError(f"{name} ends {position - end} bytes after its tag does")


def _take(view: memoryview, position: int, size: int) -> memoryview:
    if size < 0 or size > len(view) - position:
        raise DecodeError(f"length {size} with {len(view) - position} bytes left")
    return view[position : position + size]


def _check_count(count: int, view: memoryview, position: int) -> int:
    # An element takes at least one byte, so a longer array cannot be in this frame.
    if count < 0 or count > len(view) - position:
        raise DecodeError(f"array of {count} elements with {len(view) - position} bytes left")
    return count


def _null_refused(name: str) -> Any:
    raise DecodeError(f"{name} is null")


def _null_forbidden(expression: str, version: int) -> None:
    raise ValueError(f"{expression.removeprefix('m.')} may not be null in version {version}")


def _check_version(cls: type, version: int) -> None:
    # Called once for each compiled version. A number off the wire must not fill the cache.
    if version not in getattr(cls, "VERSIONS", (version,)):
        raise DecodeError(f"{cls.__name__} has no version {version}")


# --- compiling ------------------------------------------------------------------------------


class _Source:
    """Lines of a function being written, and the objects it refers to."""

    def __init__(self, signature: str) -> None:
        self.lines = [f"def compiled({signature}):"]
        self.indent = 1
        self.names: dict[str, Any] = {
            "uvarint": uvarint,
            "read_uvarint": read_uvarint,
            "take": _take,
            "check_count": _check_count,
            "next_tag": _next_tag,
            "check_end": _check_end,
            "null_refused": _null_refused,
            "null_forbidden": _null_forbidden,
            "UUID": UUID,
            "ZERO_UUID": ZERO_UUID,
        }

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, value: Any) -> str:
        key = f"g{len(self.names)}"
        self.names[key] = value
        return key

    def compile(self) -> Callable[..., Any]:
        exec("\n".join(self.lines), self.names)  # our own text, no input in it
        return self.names["compiled"]  # type: ignore[no-any-return] # defined by that text


def _fields(cls: type, version: int, *, tagged: bool) -> list[dataclasses.Field[Any]]:
    found = []
    for field in dataclasses.fields(cls):
        meta = field.metadata
        if version not in meta["versions"]:
            continue
        if (meta["tag"] is not None and version in meta["tagged"]) == tagged:
            found.append(field)
    return sorted(found, key=lambda f: int(f.metadata["tag"])) if tagged else found


def _is_nullable(field: dataclasses.Field[Any], version: int) -> bool:
    return field.metadata["nullable"] is not None and version in field.metadata["nullable"]


def is_flexible(cls: type, version: int) -> bool:
    """Whether this version uses compact lengths and tag buffers."""
    return version >= _flexible_since(cls)


def _flexible_since(cls: type) -> int:
    return int(cls.FLEXIBLE_SINCE)  # type: ignore[attr-defined] # every declared struct has it


@cache
def _decoder(cls: type, version: int) -> Callable[..., Any]:
    _check_version(cls, version)
    source = _Source("b, p")
    flexible = is_flexible(cls, version)
    plain = _fields(cls, version, tagged=False)
    index = 0
    while index < len(plain):
        run = _fixed_run(plain, index)
        if run:
            pattern = struct.Struct(">" + "".join(FORMATS[f.metadata["kind"]] for f in run))
            targets = ", ".join(f"v_{f.name}" for f in run)
            source.add(f"{targets}, = {source.name(pattern.unpack_from)}(b, p)")
            source.add(f"p += {pattern.size}")
            index += len(run)
        else:
            _decode_field(source, plain[index], version, flexible)
            index += 1
    arguments = [f"{f.name}=v_{f.name}" for f in plain]
    if flexible:
        tags = _fields(cls, version, tagged=True)
        for field in tags:
            source.add(f"v_{field.name} = {_fresh_default(source, field)}")
            arguments.append(f"{field.name}=v_{field.name}")
        _decode_tags(source, tags, version)
    source.add(f"return {source.name(cls)}({', '.join(arguments)}), p")
    return source.compile()


def _fixed_run(fields: list[dataclasses.Field[Any]], start: int) -> list[dataclasses.Field[Any]]:
    run = []
    for field in fields[start:]:
        kind = field.metadata["kind"]
        if not isinstance(kind, str) or kind not in FORMATS:
            break
        run.append(field)
    return run


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    assert field.default_factory is not dataclasses.MISSING, f"{field.name} has no default"
    return field.default_factory()


def _fresh_default(source: _Source, field: dataclasses.Field[Any]) -> str:
    """An expression; a struct is made anew each time, for two messages must not share one."""
    if field.default_factory is not dataclasses.MISSING:
        return f"{source.name(field.default_factory)}()"
    return source.name(field.default)


def _decode_tags(source: _Source, tags: list[dataclasses.Field[Any]], version: int) -> None:
    source.add("n = b[p]; p += 1")
    source.add("if n > 127: n, p = read_uvarint(b, p - 1)")
    source.add("t = -1")
    source.add("for _ in range(n):")
    source.indent += 1
    source.add("tag, p = read_uvarint(b, p)")
    source.add("size, p = read_uvarint(b, p)")
    source.add("t = next_tag(t, tag, size, len(b) - p)")
    source.add("end = p + size")
    for field in tags:
        source.add(f"if tag == {field.metadata['tag']}:")
        source.indent += 1
        _decode_field(source, field, version, flexible=True)
        source.add(f"check_end(p, end, '{field.name}')")
        source.indent -= 1
    source.add("p = end")
    source.indent -= 1


def _decode_field(
    source: _Source, field: dataclasses.Field[Any], version: int, flexible: bool
) -> None:
    kind, target = field.metadata["kind"], f"v_{field.name}"
    nullable = _is_nullable(field, version)
    if isinstance(kind, list):
        _read_length(source, "int32", flexible)
        null = "None" if nullable else f"null_refused('{field.name}')"
        source.add(f"if n < 0: {target} = {null}")
        source.add("else:")
        source.indent += 1
        source.add("check_count(n, b, p)")
        _decode_elements(source, kind[0], target, version, flexible)
        source.indent -= 1
    else:
        _decode_one(source, kind, target, field.name, version, flexible, nullable)


def _decode_elements(source: _Source, kind: Any, target: str, version: int, flexible: bool) -> None:
    if isinstance(kind, str) and kind in FORMATS:
        size = struct.calcsize(">" + FORMATS[kind])
        unpack = source.name(struct.unpack)
        source.add(f"{target} = {unpack}(f'>{{n}}{FORMATS[kind]}', take(b, p, n * {size}))")
        source.add(f"p += n * {size}")
        return
    source.add(f"{target} = []")
    source.add("for _ in range(n):")
    source.indent += 1
    _decode_one(source, kind, "x", "element", version, flexible, nullable=False)
    source.add(f"{target}.append(x)")
    source.indent -= 1


def _read_length(source: _Source, fixed: str, flexible: bool) -> None:
    if flexible:
        source.add("n = b[p] - 1; p += 1")
        source.add("if n > 126: n, p = read_uvarint(b, p - 1); n -= 1")
    else:
        pattern = struct.Struct(">" + FORMATS[fixed])
        source.add(f"n, = {source.name(pattern.unpack_from)}(b, p); p += {pattern.size}")


def _decode_one(
    source: _Source,
    kind: Any,
    target: str,
    name: str,
    version: int,
    flexible: bool,
    nullable: bool,
) -> None:
    if kind in FORMATS:
        pattern = struct.Struct(">" + FORMATS[kind])
        source.add(f"{target}, = {source.name(pattern.unpack_from)}(b, p); p += {pattern.size}")
    elif kind == "uuid":
        source.add(f"{target} = UUID(bytes=bytes(take(b, p, 16))); p += 16")
    elif kind in ("string", "bytes", "records"):
        _read_length(source, "int16" if kind == "string" else "int32", flexible)
        # Null records are told apart from empty ones by the handler, whatever the schema says.
        null = "None" if nullable or kind == "records" else f"null_refused('{name}')"
        value = {
            "string": "str(take(b, p, n), 'utf-8')",
            "bytes": "bytes(take(b, p, n))",
            "records": "take(b, p, n)",
        }[kind]
        source.add(f"if n == -1: {target} = {null}")
        source.add(f"else: {target} = {value}; p += n")
    else:
        decoder = source.name(_decoder(kind, version))
        if nullable:
            source.add(f"{target} = None; p += 1")
            source.add(f"if b[p - 1] < 128: {target}, p = {decoder}(b, p)")
        else:
            source.add(f"{target}, p = {decoder}(b, p)")


@cache
def _encoder(cls: type, version: int) -> Callable[..., Any]:
    assert version in getattr(cls, "VERSIONS", (version,)), f"{cls.__name__} has no v{version}"
    source = _Source("m, out")
    flexible = is_flexible(cls, version)
    plain = _fields(cls, version, tagged=False)
    source.add("add = out.append")
    index = 0
    while index < len(plain):
        run = _fixed_run(plain, index)
        if run:
            pattern = struct.Struct(">" + "".join(FORMATS[f.metadata["kind"]] for f in run))
            values = ", ".join(f"m.{f.name}" for f in run)
            source.add(f"add({source.name(pattern.pack)}({values}))")
            index += len(run)
        else:
            field = plain[index]
            _encode_field(source, field, f"m.{field.name}", version, flexible)
            index += 1
    if flexible:
        _encode_tags(source, _fields(cls, version, tagged=True), version)
    return source.compile()


def _differs_from_default(source: _Source, field: dataclasses.Field[Any]) -> str:
    value, default = f"m.{field.name}", _default_of(field)
    if default == ():
        return f"{value} is None or len({value})"  # an empty list is the default too
    return f"{value} != {source.name(default)}"


def _encode_tags(source: _Source, tags: list[dataclasses.Field[Any]], version: int) -> None:
    if not tags:
        source.add("add(b'\\0')")
        return
    source.add("tags = []")
    for field in tags:
        source.add(f"if {_differs_from_default(source, field)}:")
        source.indent += 1
        source.add("outer, out = out, []; add = out.append")
        _encode_field(source, field, f"m.{field.name}", version, flexible=True)
        source.add("body = b''.join(out); out = outer; add = out.append")
        source.add(f"tags.append(uvarint({field.metadata['tag']}) + uvarint(len(body)) + body)")
        source.indent -= 1
    source.add("add(uvarint(len(tags)))")
    source.add("out.extend(tags)")


def _encode_field(
    source: _Source, field: dataclasses.Field[Any], value: str, version: int, flexible: bool
) -> None:
    kind = field.metadata["kind"]
    if not isinstance(kind, list):
        _encode_one(source, kind, value, version, flexible, _is_nullable(field, version))
        return
    source.add(f"items = {value}")
    null = _null(value, "int32", version, flexible, _is_nullable(field, version))
    source.add(f"if items is None: {null}")
    source.add("else:")
    source.indent += 1
    source.add(_length("len(items)", "int32", flexible, source))
    if isinstance(kind[0], str) and kind[0] in FORMATS:
        pack = source.name(struct.pack)
        source.add(f"add({pack}(f'>{{len(items)}}{FORMATS[kind[0]]}', *items))")
    elif isinstance(kind[0], str):
        source.add("for x in items:")
        source.indent += 1
        _encode_one(source, kind[0], "x", version, flexible, nullable=False)
        source.indent -= 1
    else:
        encoder = source.name(_encoder(kind[0], version))
        source.add(f"for x in items: {encoder}(x, out)")
    source.indent -= 1


def _null(value: str, fixed: str, version: int, flexible: bool, nullable: bool) -> str:
    if not nullable:
        return f"null_forbidden('{value}', {version})"
    null = b"\0" if flexible else struct.pack(">" + FORMATS[fixed], -1)
    return f"add({null!r})"


def _length(expression: str, fixed: str, flexible: bool, source: _Source) -> str:
    if flexible:
        return f"add(uvarint({expression} + 1))"
    return f"add({source.name(struct.Struct('>' + FORMATS[fixed]).pack)}({expression}))"


def _encode_one(
    source: _Source, kind: Any, value: str, version: int, flexible: bool, nullable: bool
) -> None:
    if kind in FORMATS:
        source.add(f"add({source.name(struct.Struct('>' + FORMATS[kind]).pack)}({value}))")
    elif kind == "uuid":
        source.add(f"add({value}.bytes)")
    elif kind in ("string", "bytes", "records"):
        fixed = "int16" if kind == "string" else "int32"
        source.add(f"x = {value}")
        null = _null(value, fixed, version, flexible, nullable or kind == "records")
        source.add(f"if x is None: {null}")
        source.add("else:")
        source.indent += 1
        if kind == "string":
            source.add("x = x.encode()")
        source.add(_length("len(x)", fixed, flexible, source))
        source.add("add(x)")
        source.indent -= 1
    else:
        encoder = source.name(_encoder(kind, version))
        if nullable:
            source.add(f"if {value} is None: add(b'\\xff')")
            source.add(f"else: add(b'\\1'); {encoder}({value}, out)")
        else:
            source.add(f"{encoder}({value}, out)")
