"""Variable-length integers as Kafka writes them: seven bits to a byte, the lowest first (LEB128)."""

from typing import Final

#: Most of them are lengths and counts that fit into one byte.
_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))


def uvarint(value: int) -> bytes:
    """An unsigned one, as in messages."""
    if value < 128:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """A signed one of up to 64 bits, zig-zag, as in records."""
    return uvarint((value << 1) ^ (value >> 63))
