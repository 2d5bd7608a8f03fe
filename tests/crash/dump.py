"""K2: a reader that shares no code with the broker walks the files of a data directory."""

import struct
from pathlib import Path

from crc32c import crc32c

# base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and last
# time, producer id, producer epoch, base sequence, count
_BATCH = struct.Struct(">qiibIhiqqqhii")


def walk(directory: Path) -> int:
    """Check every batch of every segment in a partition's directory; returns the end offset."""
    expected = 0
    sequences: set[tuple[int, int, int]] = set()
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        assert int(path.stem) == expected, f"{path.name} should begin at {expected}"
        position = 0
        while position < len(data):
            batch = _BATCH.unpack_from(data, position)
            end = position + 12 + batch[1]
            where = f"{path.name} at byte {position}"
            assert batch[0] == expected, f"{where}: offset {batch[0]}, not {expected}"
            assert end <= len(data), f"{where}: a batch that is cut"
            assert batch[3] == 2, f"{where}: magic {batch[3]}"
            assert crc32c(data[position + 21 : end]) == batch[4], f"{where}: checksum"
            assert batch[12] == batch[6] + 1, f"{where}: {batch[12]} records"
            if batch[9] >= 0:
                place = (batch[9], batch[10], batch[11])
                assert place not in sequences, f"{where}: {place} stands in the log twice"
                sequences.add(place)
            expected = batch[0] + batch[6] + 1
            position = end
    return expected
