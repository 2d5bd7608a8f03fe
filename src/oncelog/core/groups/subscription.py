"""Reads the topics out of what a consumer tells its group.

The metadata that a member of type `consumer` sends is opaque to a broker, with one exception: its
topics. They tell which committed offsets are in use. Kafka's clients all write

    int16 version, int32 count, count x (int16 length, topic), ... (user data, owned partitions)

but nothing forces a client to, so whatever does not parse is unknown rather than an error.
"""

import struct
from typing import Final

CONSUMER: Final = "consumer"  # the protocol type of Kafka's own consumers


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The topics a consumer subscribes to, or None if these bytes do not say."""
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or count < 0:
            return None
        topics = set()
        position = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            end = position + 2 + size
            if size < 0 or end > len(metadata):
                return None
            topics.add(metadata[position + 2 : end].decode())
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
