"""Plain consumers that see committed records only: one that looks on, and one for the audit."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from oncelog.demo.orders import PARTITIONS

#: Topic, partition, offset.
Place: TypeAlias = tuple[str, int, int]
Records: TypeAlias = dict[Place, bytes]

_POLL_MS: Final = 200
_PAUSE_S: Final = 0.2


async def look_on(servers: str, topics: Sequence[str], seen: Records) -> None:
    """Note every record as soon as it can be seen, until cancelled."""
    while True:
        try:
            async with _consumer(servers) as consumer:
                places = _assign(consumer, topics)
                for place in places:
                    mine = [o for (t, p, o) in seen if (t, p) == (place.topic, place.partition)]
                    consumer.seek(place, max(mine, default=-1) + 1)
                while True:
                    _note(await consumer.getmany(timeout_ms=_POLL_MS), seen)
        except (KafkaError, OSError):  # the broker is away
            await asyncio.sleep(_PAUSE_S)


async def read_all(servers: str, topics: Sequence[str]) -> Records:
    """Everything that is committed now."""
    found: Records = {}
    async with _consumer(servers) as consumer:
        places = _assign(consumer, topics)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            _note(await consumer.getmany(timeout_ms=_POLL_MS), found)
    return found


def _consumer(servers: str) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


def _assign(consumer: Any, topics: Sequence[str]) -> list[TopicPartition]:
    places = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
    consumer.assign(places)
    return places


def _note(batches: Any, records: Records) -> None:
    for place, some in batches.items():
        for record in some:
            records[place.topic, place.partition, record.offset] = record.value
