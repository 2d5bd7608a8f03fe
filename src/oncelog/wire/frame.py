"""Frames: four bytes of length, then a request.

`FrameReader` is fed by a transport that writes into its buffer. Small frames are copied out of a
shared buffer; a large one gets memory of its own, as its bytes arrive and not when its length is
announced, and is then handed on without another copy.
"""

import struct
from typing import Final

from oncelog.wire.codec import Buffer, DecodeError, skip_tags

LENGTH_BYTES: Final = 4
#: Frames up to this size are read through the shared buffer.
SHARED_BYTES: Final = 64 << 10
#: A large frame's memory grows by doubling from here: what clients send by default needs no growing.
FIRST_BYTES: Final = 1 << 20

_LENGTH: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhih")


class BadFrame(Exception):
    """The peer does not speak our protocol, or asks for too much: the connection ends."""


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._shared = bytearray(SHARED_BYTES)
        self._filled = 0
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_filled = 0

    @property
    def is_midway(self) -> bool:
        """Whether part of a frame has arrived and the rest has not."""
        return self._large is not None or self._filled > 0

    def buffer(self) -> memoryview:
        """Where the transport writes next."""
        if self._large is None:
            return memoryview(self._shared)[self._filled :]
        if self._large_filled == len(self._large):
            size = min(self._large_size, 2 * len(self._large))
            grown = bytearray(size)
            grown[: self._large_filled] = self._large
            self._large = grown
        return memoryview(self._large)[self._large_filled :]

    def received(self, count: int) -> list[Buffer]:
        """Take note of `count` new bytes; returns the frames that are whole now."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < self._large_size:
                return []
            frame, self._large = self._large, None
            return [frame]
        self._filled += count
        return self._cut()

    def _cut(self) -> list[Buffer]:
        frames: list[Buffer] = []
        position, end = 0, self._filled
        while end - position >= LENGTH_BYTES:
            size = _LENGTH.unpack_from(self._shared, position)[0]
            if size < 0 or size > self._max_bytes:
                raise BadFrame(f"a frame of {size} bytes; the limit is {self._max_bytes}")
            start = position + LENGTH_BYTES
            if end - start >= size:
                frames.append(bytes(memoryview(self._shared)[start : start + size]))
                position = start + size
                continue
            if size > SHARED_BYTES - LENGTH_BYTES:
                self._begin_large(size, start, end)
                position = end
            break
        rest = end - position
        if position and rest:
            self._shared[:rest] = self._shared[position:end]
        self._filled = rest
        return frames

    def _begin_large(self, size: int, start: int, end: int) -> None:
        self._large = bytearray(min(size, max(FIRST_BYTES, end - start)))
        self._large[: end - start] = memoryview(self._shared)[start:end]
        self._large_size = size
        self._large_filled = end - start


class RequestHeader:
    """What precedes every request."""

    __slots__ = ("api_key", "body_start", "client_id", "correlation_id", "version")

    def __init__(self, frame: Buffer) -> None:
        if len(frame) < _HEADER.size:
            raise BadFrame(f"a request of {len(frame)} bytes has no header")
        self.api_key, self.version, self.correlation_id, length = _HEADER.unpack_from(frame)
        position = _HEADER.size
        self.client_id = ""
        if length >= 0:
            if length > len(frame) - position:
                raise BadFrame("the client id is longer than the frame")
            text = bytes(frame[position : position + length])
            self.client_id = text.decode("utf-8", "replace")
            position += length
        elif length != -1:
            raise BadFrame(f"a client id of length {length}")
        self.body_start = position

    def skip_tags(self, frame: Buffer) -> None:
        """Flexible versions have a tag buffer at the header's end."""
        try:
            self.body_start = skip_tags(memoryview(frame), self.body_start)
        except (DecodeError, IndexError) as error:
            raise BadFrame(f"the header's tags: {error}") from error


def response_prefix(correlation_id: int, body_bytes: int, *, flexible: bool) -> bytes:
    """Length and header of a response."""
    if flexible:
        return struct.pack(">iib", body_bytes + 5, correlation_id, 0)
    return struct.pack(">ii", body_bytes + 4, correlation_id)
