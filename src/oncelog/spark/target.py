"""The cluster that batches are written to, as the driver sees it: topics, plans and the ledger."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from oncelog.client.admin import topic_configs
from oncelog.client.cluster import RESTART_S, Cluster, raise_for
from oncelog.client.errors import BadReply, Refused
from oncelog.client.settings import ClientSettings
from oncelog.core.packing import Codec
from oncelog.core.types import TopicPartition
from oncelog.spark.background import Background
from oncelog.spark.errors import BadConfiguration
from oncelog.spark.ledger import Progress
from oncelog.spark.ledger_topic import ledger_partition, read_progress
from oncelog.spark.write_plan import TopicPlan, WritePlan
from oncelog.wire.errors import ErrorCode

T = TypeVar("T")

#: The topic of the ledger, unless another one is named.
PROGRESS_TOPIC: Final = "oncelog-progress"
#: Kafka's default, for a broker that does not tell.
_MAX_MESSAGE_BYTES: Final = 1_048_588
_LEADER_NOT_AVAILABLE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where rows go and how they are packed."""

    settings: ClientSettings
    #: All topics that rows may name.
    topics: tuple[str, ...]
    dead_letters: str | None = None
    codec: Codec = Codec.NONE
    #: Tasks of the write stage; None leaves it to Spark's parallelism.
    writers: int | None = None
    progress_topic: str = PROGRESS_TOPIC


class Target:
    """Connects when it is first needed, and stays connected until it is closed."""

    def __init__(self, output: Output) -> None:
        """Nothing is asked of the cluster yet."""
        self.output = output
        self._background: Background | None = None
        self._cluster: Cluster | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something asynchronous and wait for it."""
        if self._background is None:
            self._background = Background()
        return self._background.run(work)

    def close(self) -> None:
        """Hang up."""
        if self._background is not None:
            if self._cluster is not None:
                self._background.run(self._cluster.close())
            self._background.close()
        self._background = self._cluster = None

    async def cluster(self) -> Cluster:
        """The connection to the cluster."""
        if self._cluster is None:
            self._cluster = await Cluster.connect(self.output.settings, wait_s=RESTART_S)
        return self._cluster

    # --- the ledger ---

    async def ledger(self, key: str) -> TopicPartition:
        """Where the progress of a transactional id lies."""
        return await ledger_partition(await self.cluster(), self.output.progress_topic, key)

    async def look(self, key: str) -> Progress | None:
        """The committed progress of a transactional id."""
        return await read_progress(await self.cluster(), await self.ledger(key), key)

    # --- plans ---

    async def plan(self, *, turn: int, parallelism: int, is_transactional: bool) -> WritePlan:
        """One look at the topics, for one batch: what grows later counts from the next on."""
        cluster = await self.cluster()
        names = list(dict.fromkeys((*self.output.topics, *self._dead_letters())))
        reply = await cluster.patiently(lambda: self._known(cluster, names))
        counts = {topic.name or "": len(topic.partitions) for topic in reply.topics}
        limits = await self._limits(cluster, names)
        topics = []
        first_slot = 0
        for name in names:
            topics.append(
                TopicPlan(
                    name=name,
                    partitions=counts[name],
                    first_slot=first_slot,
                    max_message_bytes=limits.get(name, _MAX_MESSAGE_BYTES),
                )
            )
            first_slot += counts[name]
        return WritePlan(
            topics=tuple(topics),
            default_topic=None,
            dead_letters=self.output.dead_letters,
            writers=max(1, min(first_slot, self.output.writers or parallelism)),
            codec=self.output.codec,
            transactional=is_transactional,
            turn=turn,
        )

    def _dead_letters(self) -> tuple[str, ...]:
        return () if self.output.dead_letters is None else (self.output.dead_letters,)

    async def _known(self, cluster: Cluster, names: list[str]) -> Any:
        # As Kafka's producers do: a cluster that makes topics when they are first named may do so.
        reply = await cluster.metadata(names, allow_auto_topic_creation=True)
        for topic in reply.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise BadConfiguration(
                    f"There is no topic {topic.name}, and the cluster does not make topics by "
                    f"itself: create it, for instance with `oncelog topic create {topic.name}`."
                )
            raise_for(topic.error_code, f"Topic {topic.name}")
            if not topic.partitions:
                raise Refused(_LEADER_NOT_AVAILABLE, f"Topic {topic.name}")
        return reply

    async def _limits(self, cluster: Cluster, names: list[str]) -> dict[str, int]:
        try:
            found = await topic_configs(cluster, names)
        except (Refused, BadReply):  # not everybody may see settings
            return {}
        return {
            name: int(config.value)
            for name, configs in found.items()
            for config in configs
            if config.name == "max.message.bytes" and config.value
        }


def places_of(plan: WritePlan) -> tuple[TopicPartition, ...]:
    """The partition behind each slot of a plan."""
    return tuple(
        TopicPartition(topic.name, partition)
        for topic in plan.topics
        for partition in range(topic.partitions)
    )
