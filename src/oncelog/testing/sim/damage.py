"""One wrong bit on the disk: whatever a reader is handed must still be right.

The promise is to refuse, not to guess: a partition may be refused at start or when its bytes are
read, and a client may find a batch whose checksum does not hold. Records that differ from what was
written, and records left out in silence, are failures.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

from oncelog.check.history import Record
from oncelog.core.errors import BrokerError
from oncelog.core.records import batches
from oncelog.runtime.config import BrokerConfig
from oncelog.server.meta_properties import WrongDirectory
from oncelog.testing.sim.client import Part, part_name
from oncelog.testing.sim.disk import SimDisk
from oncelog.testing.sim.faults import flip
from oncelog.testing.sim.loop import SimLoop
from oncelog.testing.sim.reading import as_read, delivered, fetch_request
from oncelog.testing.sim.world import Disconnected, SimBroker, SimConnection

#: What only Kafka's own format protects, and it does not: there is no checksum over these files.
UNPROTECTED: Final = (".txnindex", ".index", ".timeindex", "-checkpoint")
BASE_OFFSET_BYTES: Final = 8


async def damage(
    loop: SimLoop,
    config: BrokerConfig,
    disk: SimDisk,
    content: Mapping[Part, list[Record]],
    *,
    run: int,
    rng: Random,
) -> list[str]:
    """Flip one bit in a copy of the disk, start a broker on it, and read everything."""
    broker = SimBroker(loop, rng, config)
    broker.disk = disk.copy()
    files = broker.disk.files()
    paths = [path for path, inode in files.items() if inode.data and _is_protected(path)]
    path = rng.choice(paths)
    offsets = _base_offsets(files[path].data) if path.endswith(".log") else frozenset()
    flip(rng, files[path], offsets.__contains__)
    try:
        await broker.start()
    except (OSError, BrokerError, WrongDirectory):
        broker.kill()
        return []  # It is refused as a whole.
    failures = []
    for part, records in content.items():
        found, is_whole = await _read(broker, part, run)
        wrong = [record for record in found if record not in records]
        if wrong or (is_whole and len(found) != len(records)):
            what = f"returned {wrong[0]}" if wrong else f"lacks {len(records) - len(found)} records"
            failures.append(f"with one wrong bit in {path}, {part_name(part)} {what}")
    broker.kill()
    return failures


def _base_offsets(log: bytearray) -> frozenset[int]:
    """Where the offsets of batches stand: a batch's checksum begins behind its own."""
    found: set[int] = set()
    start = 0
    for header, _ in batches(bytes(log)):
        found.update(range(start, start + BASE_OFFSET_BYTES))
        start += header.size_bytes
    return frozenset(found)


def _is_protected(path: str) -> bool:
    return not path.endswith(UNPROTECTED)


async def _read(broker: SimBroker, part: Part, run: int) -> tuple[list[Record], bool]:
    """What a reader gets, and whether it came to the end."""
    found: list[Record] = []
    offset = 0
    connection = SimConnection(broker, "reader")
    try:
        while True:
            reply = await connection.request(fetch_request({part: offset}, wait_ms=10), 11)
            answer = reply.responses[0].partitions[0]
            if answer.error_code:
                return found, False
            if offset < answer.log_start_offset:
                offset = answer.log_start_offset
                continue
            records, after = delivered(answer, offset)
            found += [as_read(record, run) for record in records]
            if after == offset:
                return found, offset >= answer.last_stable_offset
            offset = after
    except (Disconnected, BrokerError):
        return found, False
    finally:
        connection.close()
        await asyncio.sleep(0)
