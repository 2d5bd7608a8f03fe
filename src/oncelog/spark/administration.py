"""What an operator asks of the ledger, and does to it: where a job is, move it, forget it.

Whoever changes an entry takes its transactional id over first, so that a job that still runs stops,
and writes in a transaction of its own, like the job itself.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from oncelog.client import admin, transactions
from oncelog.client.cluster import Cluster
from oncelog.client.errors import Refused as RefusedByBroker
from oncelog.client.identity import Identity, Transactional
from oncelog.core.types import TopicPartition
from oncelog.spark.errors import PipelineError
from oncelog.spark.ledger import BatchName, Progress, advance, fingerprint
from oncelog.spark.ledger_topic import (
    ledger_partition,
    read_ledger,
    write_progress,
)
from oncelog.spark.offsets import EARLIEST, LATEST, Position
from oncelog.spark.pipeline import QUERY
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_transactions import TransactionState

_TIMEOUT_MS: Final = 60_000
_WAIT_S: Final = 30.0
_WRITE: Final = "write:"


class NotThere(PipelineError):
    """The ledger knows nothing of this name."""


class CannotMove(PipelineError):
    """A position that cannot be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition of the source."""

    topic: str
    partition: int
    position: int
    #: Where committed records end; None if the topic is not on this cluster.
    end: int | None

    @property
    def lag(self) -> int | None:
        """How much is left to read."""
        return None if self.end is None else max(self.end - self.position, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One entry of the ledger, and what the cluster knows of it."""

    name: str
    progress: Progress
    places: tuple[Place, ...]
    transaction: TransactionState | None

    @property
    def kind(self) -> str:
        """What the entry belongs to."""
        query = self.progress.query
        if query == QUERY:
            return "pipeline"
        return "write" if query.startswith(_WRITE) else f"query {query}"

    @property
    def lag(self) -> int | None:
        """Over all partitions, if all of them are on this cluster."""
        lags = [place.lag for place in self.places]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if lags and len(known) == len(lags) else None


# --- looking ----------------------------------------------------------------------------------


async def statuses(cluster: Cluster, topic: str) -> list[Status]:
    """Every entry of the ledger, in the order of their names."""
    ledger = await _ledger(cluster, topic)
    return [await _status(cluster, name, ledger[name]) for name in sorted(ledger)]


async def status(cluster: Cluster, topic: str, name: str) -> Status:
    """One entry of the ledger."""
    ledger = await _ledger(cluster, topic)
    if name not in ledger:
        raise _not_there(name, topic)
    return await _status(cluster, name, ledger[name])


async def _ledger(cluster: Cluster, topic: str) -> dict[str, Progress]:
    try:
        return await read_ledger(cluster, topic)
    except RefusedByBroker as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NotThere(
            f"There is no topic {topic} on this cluster: nothing has been committed there. If "
            f"the job has another progress_topic, name it with --progress-topic."
        ) from error


async def _status(cluster: Cluster, name: str, progress: Progress) -> Status:
    ends = await _ends(cluster, progress.position, admin.LATEST)
    return Status(
        name=name,
        progress=progress,
        places=tuple(
            Place(
                topic=place.topic,
                partition=place.partition,
                position=offset,
                end=ends.get(place),
            )
            for place, offset in sorted(progress.position.offsets.items())
        ),
        transaction=await _transaction(cluster, name),
    )


async def _transaction(cluster: Cluster, name: str) -> TransactionState | None:
    try:
        return await transactions.describe(cluster, name)
    except RefusedByBroker as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None


async def _ends(cluster: Cluster, position: Position, which: int) -> dict[TopicPartition, int]:
    """One end of each partition that is on this cluster, in a topic that is still the same."""
    there = {
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in await admin.topics(cluster)
        if position.ids.get(topic.name or "", topic.topic_id) == topic.topic_id
        for partition in topic.partitions
    }
    wanted = {place: which for place in position.offsets if place in there}
    if not wanted:
        return {}
    found = await admin.list_offsets(cluster, wanted, committed_only=True)
    return {place: offset or 0 for place, offset in found.items()}


def _not_there(name: str, topic: str) -> NotThere:
    return NotThere(f"{name!r} has committed nothing: {topic} does not know it.")


# --- changing ---------------------------------------------------------------------------------


async def moved(
    cluster: Cluster, progress: Progress, wanted: int | Mapping[TopicPartition, int]
) -> Position:
    """Another position for a pipeline: one end of all its partitions, or offsets for some.

    The ends are written as Spark writes them, -2 for the earliest and -1 for the latest.
    """
    position = progress.position
    if isinstance(wanted, int):
        wanted = dict.fromkeys(position.offsets, wanted)
    for place in wanted:
        if place not in position.offsets:
            raise CannotMove(f"The pipeline does not read {place}, or has not begun to.")
    offsets = {**position.offsets, **wanted}
    for symbol, which in ((EARLIEST, admin.EARLIEST), (LATEST, admin.LATEST)):
        ends = await _ends(cluster, position, which)
        for place in [place for place, offset in offsets.items() if offset == symbol]:
            if place not in ends:
                raise CannotMove(
                    f"{place} is not on this cluster, which therefore cannot tell its ends: give "
                    f"offsets."
                )
            offsets[place] = ends[place]
    return replace(position, offsets=offsets)


async def reset(
    cluster: Cluster, topic: str, name: str, wanted: int | Mapping[TopicPartition, int]
) -> Position:
    """Move a pipeline; one that runs stops, and starts there when it is started again."""
    await _movable(cluster, topic, name)
    transactional, identity = await _take_over(cluster, name)
    # Whoever had the id may have committed until now.
    progress = await _movable(cluster, topic, name)
    position = await moved(cluster, progress, wanted)
    batch = BatchName(
        query=QUERY, number=progress.batch + 1, fingerprint=fingerprint(position.to_json())
    )
    now_ms = int(time.time() * 1000)
    following = advance(progress, batch, position, rows=0, rejected=0, now_ms=now_ms)
    await _write(transactional, cluster, identity, topic, following)
    return position


async def _movable(cluster: Cluster, topic: str, name: str) -> Progress:
    found = await _progress(cluster, topic, name)
    if found.query != QUERY:
        raise CannotMove(
            f"{name!r} belongs to {found.query}, and only a pipeline can be moved: where a streaming "
            f"query reads on, its checkpoint says."
        )
    return found


async def forget(cluster: Cluster, topic: str, name: str) -> None:
    """Remove an entry; a job that runs under the name stops."""
    await _progress(cluster, topic, name)
    transactional, identity = await _take_over(cluster, name)
    await _write(transactional, cluster, identity, topic, None)


async def _progress(cluster: Cluster, topic: str, name: str) -> Progress:
    found = (await _ledger(cluster, topic)).get(name)
    if found is None:
        raise _not_there(name, topic)
    return found


async def _take_over(cluster: Cluster, name: str) -> tuple[Transactional, Identity]:
    transactional = Transactional(cluster, name, wait_s=_WAIT_S)
    return transactional, await transactional.fence(_TIMEOUT_MS)


async def _write(
    transactional: Transactional,
    cluster: Cluster,
    identity: Identity,
    topic: str,
    progress: Progress | None,
) -> None:
    place = await ledger_partition(cluster, topic, identity.transactional_id)
    await write_progress(transactional, cluster, identity, place, progress, patience_s=_WAIT_S)
    await transactional.commit(identity)
    # A commit is confirmed before its markers are written. Whoever asks next shall see it, and the
    # next owner of an id gets it only when they are there.
    await transactional.fence(_TIMEOUT_MS)
