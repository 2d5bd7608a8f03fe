"""Offsets of many partitions in one small file, in Kafka's text format.

    0 \\n <count> \\n <topic> <partition> <offset> \\n ...

`recovery-point-offset-checkpoint` says up to where each log was synced, and
`log-start-offset-checkpoint` where it begins.
"""

from collections.abc import Mapping
from typing import Final

from oncelog.core.types import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"


def encode_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The text of the file."""
    lines = ["0", str(len(offsets))]
    lines += [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def decode_checkpoint(data: bytes | None) -> dict[TopicPartition, int]:
    """Read the file; a missing or damaged one says nothing, which is always safe to assume."""
    if data is None:
        return {}
    offsets = {}
    try:
        version, count, *lines = data.decode().split("\n")
        for line in filter(None, lines):
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        return offsets if version == "0" and int(count) == len(offsets) else {}
    except ValueError:
        return {}
