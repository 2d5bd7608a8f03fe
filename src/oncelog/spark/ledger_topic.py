"""The topic that holds the ledger: made when it is missing, read by replay, written with a batch."""

import time
from typing import Final

import pyarrow as pa

from oncelog.client.admin import EARLIEST, LATEST, create_topic, list_offsets, topics
from oncelog.client.cluster import Cluster, raise_for
from oncelog.client.errors import Refused
from oncelog.client.fetching import Isolation, Range, fetch
from oncelog.client.identity import Identity, Transactional
from oncelog.client.sending import Sender
from oncelog.core.batch import HEADER_BYTES
from oncelog.core.packing import encode_batch, unpack
from oncelog.core.records import Record
from oncelog.core.types import TopicPartition
from oncelog.spark.encode import stamped_by
from oncelog.spark.ledger import Progress, Replay
from oncelog.spark.placement import place as murmur2_place
from oncelog.wire.errors import ErrorCode

PARTITIONS: Final = 8
_SETTINGS: Final = {"cleanup.policy": "compact"}
_LEADER_NOT_AVAILABLE: Final = 5
#: How far back the first look goes, in offsets; each further one goes eight times as far.
_FIRST_LOOK: Final = 1000


async def ledger_partition(cluster: Cluster, topic: str, key: str) -> TopicPartition:
    """Where the progress of a transactional id lies; the topic is made if there is none."""
    keys = pa.array([key.encode()], pa.large_binary())
    return TopicPartition(topic, int(murmur2_place(keys, await _partitions(cluster, topic))[0]))


async def _partitions(cluster: Cluster, topic: str) -> int:
    is_new = False

    async def look() -> int:
        nonlocal is_new
        (found,) = (await cluster.metadata([topic])).topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if not is_new:
                is_new = True
                await _make(cluster, topic)
            # Not every broker knows of a new topic at once.
            raise Refused(_LEADER_NOT_AVAILABLE, f"Topic {topic}")
        raise_for(found.error_code, f"Topic {topic}")
        if any(partition.leader_id < 0 for partition in found.partitions):
            raise Refused(_LEADER_NOT_AVAILABLE, f"Topic {topic}")
        return len(found.partitions)

    return await cluster.patiently(look)


async def _make(cluster: Cluster, topic: str) -> None:
    try:
        await create_topic(cluster, topic, partitions=PARTITIONS, configs=_SETTINGS)
    except Refused as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def read_progress(cluster: Cluster, place: TopicPartition, key: str) -> Progress | None:
    """The last committed progress of a transactional id.

    Its transactions follow one another, so the last committed record that is found from the end
    backwards is the one. Only an id without progress makes it read the whole partition.
    """
    first = (await list_offsets(cluster, {place: EARLIEST}))[place] or 0
    end = (await list_offsets(cluster, {place: LATEST}))[place] or 0
    reach = _FIRST_LOOK
    while True:
        start = max(first, end - reach)
        committed = await _replay(cluster, place, start, end)
        if key.encode() in committed:
            value = committed[key.encode()]
            return None if value is None else Progress.decode(value)
        if start == first:
            return None
        reach *= 8


async def read_ledger(cluster: Cluster, topic: str) -> dict[str, Progress]:
    """The last committed progress of every transactional id; a missing topic is refused."""
    (found,) = await topics(cluster, [topic])
    places = [TopicPartition(topic, each.partition_index) for each in found.partitions]
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    ledger = {}
    for place in places:
        committed = await _replay(cluster, place, starts[place] or 0, ends[place] or 0)
        for key, value in committed.items():
            if value is not None:
                ledger[key.decode(errors="replace")] = Progress.decode(value)
    return ledger


async def _replay(
    cluster: Cluster, place: TopicPartition, start: int, end: int
) -> dict[bytes, bytes | None]:
    replay = Replay()
    wanted = Range(topic=place.topic, partition=place.partition, start=start, end=end)
    async for some in fetch(
        cluster, wanted, isolation=Isolation.READ_UNCOMMITTED, with_markers=True
    ):
        for header, batch in some:
            replay.feed(header, unpack(header, batch[HEADER_BYTES:]))
    return replay.committed


async def write_progress(
    transactional: Transactional,
    cluster: Cluster,
    identity: Identity,
    place: TopicPartition,
    progress: Progress | None,
    *,
    patience_s: float,
) -> None:
    """Put the progress of an id, or the wish to forget it, into its open transaction."""
    await transactional.add_partitions(identity, [place])

    put = stamped_by(identity.producer_id, identity.epoch)
    name = identity.transactional_id
    sender = Sender(
        cluster, put, transactional_id=name, is_v2=identity.is_v2, patience_s=patience_s
    )
    try:
        await sender.send(place, progress_batch(name, progress, is_transactional=True), 1)
        await sender.finish()
    finally:
        await sender.close()


def progress_batch(key: str, progress: Progress | None, *, is_transactional: bool) -> bytes:
    """A record batch with the progress of one id, or with the wish to forget it."""
    value = None if progress is None else progress.encode()
    record = Record(0, int(time.time() * 1000), key.encode(), value)
    return encode_batch([record], is_transactional=is_transactional)
