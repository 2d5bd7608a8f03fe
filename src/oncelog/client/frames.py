"""Frames as a client sees them: pure functions between messages and bytes.

    request   size:int32 | api_key:int16 | version:int16 | correlation_id:int32 | client_id | body
    response  size:int32 | correlation_id:int32 | body

A flexible version has a tag buffer behind each header, but for one exception: the response header
of ApiVersions never has one, since a client reads it before it knows what the broker speaks.
"""

import struct
from typing import Any, Final

from oncelog.client.errors import BadReply
from oncelog.wire.codec import (
    Buffer,
    DecodeError,
    decode,
    encode_chunks,
    is_flexible,
    join_small,
    skip_tags,
)
from oncelog.wire.messages import response_class

API_VERSIONS: Final = 18

#: Larger than any answer that we ask for; a size beyond it is not a size.
FRAME_MAX_BYTES: Final = 256 * 1024 * 1024

#: How TLS answers what is not TLS; as a size it would be beyond the largest.
_TLS_ALERT: Final = b"\x15\x03"

_SIZE: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")


def encode_request(message: Any, *, version: int, correlation_id: int, client_id: str) -> bytes:
    """One whole frame, its size included."""
    return b"".join(
        request_chunks(message, version=version, correlation_id=correlation_id, client_id=client_id)
    )


def request_chunks(
    message: Any, *, version: int, correlation_id: int, client_id: str
) -> list[Buffer]:
    """One whole frame in pieces: a large record batch stays where it is."""
    name = client_id.encode()
    header = b"".join(
        (
            _HEADER.pack(message.API_KEY, version, correlation_id),
            len(name).to_bytes(2, "big"),
            name,
            b"\0" if is_flexible(type(message), version) else b"",
        )
    )
    chunks = [header, *encode_chunks(message, version)]
    return join_small([_SIZE.pack(sum(map(len, chunks))), *chunks])


def correlation_id_of(frame: memoryview) -> int:
    """Which request a frame (without its size) answers."""
    if len(frame) < _SIZE.size:
        raise BadReply(f"A response of {len(frame)} bytes is too short to be one.")
    (correlation_id,) = _SIZE.unpack_from(frame)
    return int(correlation_id)


def decode_response(frame: memoryview, *, api_key: int, version: int) -> Any:
    """The message in a frame (without its size)."""
    cls = response_class(api_key)
    try:
        position = _SIZE.size
        if api_key != API_VERSIONS and is_flexible(cls, version):
            position = skip_tags(frame, position)
        return decode(cls, version, frame, position)
    except (DecodeError, IndexError) as error:
        raise BadReply(f"{cls.__name__} v{version} cannot be read: {error}.") from error


class FrameReader:
    """Cuts a stream of bytes into frames, however they arrive.

    A frame within one piece is a view of it. One that came in many is put together once, when its
    last byte is there: an answer may have tens of megabytes.
    """

    def __init__(self, max_bytes: int = FRAME_MAX_BYTES) -> None:
        """`max_bytes` bounds what a peer can make us hold."""
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._missing = _SIZE.size  # bytes until there is anything to cut

    def feed(self, data: bytes) -> list[memoryview]:
        """Take some bytes and give back the frames that are now whole, without their sizes."""
        if data:
            self._pieces.append(data)
            self._missing -= len(data)
        if self._missing > 0:
            return []
        stream = memoryview(b"".join(self._pieces))
        frames = []
        start, end = 0, self._end(stream, 0)
        while end <= len(stream):
            frames.append(stream[start + _SIZE.size : end])
            start, end = end, self._end(stream, end)
        # A copy of what is left, so that it does not keep the frames before it in memory.
        self._pieces = [bytes(stream[start:])] if start < len(stream) else []
        self._missing = end - len(stream)
        return frames

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here without loss."""
        return not self._pieces

    def _end(self, stream: memoryview, start: int) -> int:
        """Where the frame ends that starts here, or its size while that is not there."""
        if len(stream) - start < _SIZE.size:
            return start + _SIZE.size
        (size,) = _SIZE.unpack_from(stream, start)
        if not 0 <= size <= self._max_bytes:
            if bytes(stream[start : start + len(_TLS_ALERT)]) == _TLS_ALERT:
                raise BadReply(
                    "The broker speaks TLS on this port: set security.protocol to SSL or SASL_SSL."
                )
            raise BadReply(f"A frame of {size} bytes: the peer does not speak Kafka.")
        return start + _SIZE.size + int(size)
