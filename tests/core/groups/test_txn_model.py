"""Plain commits, transactions, markers, deletions, sweeps and crashes in any order.

The model is the log itself, read anew each time by the plainest rule there is: walk over it, keep
what is decided, and let a record that stands later win.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from oncelog.core.groups.commands import (
    DeleteGroups,
    DeleteOffsets,
    GroupListing,
    ListGroups,
    TopicDeleted,
)
from oncelog.core.groups.config import GroupConfig
from oncelog.core.types import TopicPartition
from tests.core.groups.builders import Coordinator

GROUPS = st.sampled_from(["g", "h"])
PLACES = [TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("out", 0)]
PARTITIONS = st.sampled_from(PLACES)
PRODUCERS = st.integers(7, 9)
OFFSETS = st.integers(0, 99)
SWEEP_MS = 1_000
RETENTION_MS = 60_000
CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=SWEEP_MS)


@dataclass
class Said:
    """What has been said of one partition of one group, in order: offsets and who said them."""

    said: list[tuple[int | None, int, int]] = field(default_factory=list)  # producer, offset, when
    decided: dict[int, bool] = field(default_factory=dict)  # entries of `said`, by place

    def add(self, producer_id: int | None, offset: int, at_ms: int) -> None:
        if producer_id is None:
            self.decided[len(self.said)] = True
        self.said.append((producer_id, offset, at_ms))

    def end(self, producer_id: int, committed: bool) -> None:
        for place, (who, _, _) in enumerate(self.said):
            if who == producer_id and place not in self.decided:
                self.decided[place] = committed

    @property
    def is_stable(self) -> bool:
        return len(self.decided) == len(self.said)

    @property
    def visible(self) -> tuple[int, int] | None:
        counting = [place for place, committed in self.decided.items() if committed]
        return self.said[max(counting)][1:] if counting else None


class TxnOffsets(RuleBasedStateMachine):
    """Three producers, two groups without members, three partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(CONFIG)
        self.model: dict[tuple[str, TopicPartition], Said] = {}

    def _said(self, group_id: str, partition: TopicPartition) -> Said:
        return self.model.setdefault((group_id, partition), Said())

    @rule(group_id=GROUPS, partition=PARTITIONS, offset=OFFSETS)
    def commit(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        self.coordinator.commit(offset, group_id=group_id, partition=partition)
        self._said(group_id, partition).add(None, offset, self.coordinator.now.wall_ms)

    @rule(group_id=GROUPS, partition=PARTITIONS, offset=OFFSETS, producer_id=PRODUCERS)
    def commit_in_txn(
        self, group_id: str, partition: TopicPartition, offset: int, producer_id: int
    ) -> None:
        self.coordinator.commit_in_txn(
            offset, group_id=group_id, partition=partition, producer_id=producer_id
        )
        self._said(group_id, partition).add(producer_id, offset, self.coordinator.now.wall_ms)

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.coordinator.end_transaction(producer_id, committed=committed)
        for said in self.model.values():
            said.end(producer_id, committed)

    @rule(group_id=GROUPS, partition=PARTITIONS)
    def delete_offset(self, group_id: str, partition: TopicPartition) -> None:
        if self._exists(group_id):
            self.coordinator.ask(DeleteOffsets(group_id=group_id, partitions=(partition,)))
            self.model.pop((group_id, partition), None)

    @rule(group_id=GROUPS)
    def delete_group(self, group_id: str) -> None:
        self.coordinator.ask(DeleteGroups(group_ids=(group_id,)))
        assert not self._exists(group_id)
        for partition in PLACES:
            self.model.pop((group_id, partition), None)

    @rule(topic=st.sampled_from(["in", "out"]))
    def delete_topic(self, topic: str) -> None:
        self.coordinator.ask(TopicDeleted(topic=topic))
        self.model = {key: said for key, said in self.model.items() if key[1].topic != topic}

    @rule(fraction=st.sampled_from([1, 2, 3]))
    def wait(self, fraction: int) -> None:
        """Long enough for a sweep, and at times for offsets to grow old."""
        self.coordinator.advance(ms=RETENTION_MS // fraction + SWEEP_MS)
        # Sweeps come in intervals: what was old already one interval ago is gone.
        old_ms = self.coordinator.now.wall_ms - SWEEP_MS - RETENTION_MS
        for key, said in list(self.model.items()):
            is_old = said.visible is not None and said.visible[1] <= old_ms
            if is_old and said.is_stable:
                del self.model[key]
        self.coordinator.crash()

    @rule()
    def crash(self) -> None:
        self.coordinator.crash()

    @invariant()
    def what_is_decided_is_found(self) -> None:
        for group_id in ("g", "h"):
            for partition in PLACES:
                said = self.model.get((group_id, partition), Said())
                found = self.coordinator.fetched(partition, group_id=group_id)
                committed = None if found.committed is None else found.committed.offset
                assert committed == (None if said.visible is None else said.visible[0])
                assert found.is_stable == said.is_stable
                assert said.is_stable or self._exists(group_id)

    def _exists(self, group_id: str) -> bool:
        listed = self.coordinator.ask(ListGroups())
        assert isinstance(listed, tuple)
        return group_id in [each.group_id for each in listed if isinstance(each, GroupListing)]


TestTxnOffsets = TxnOffsets.TestCase
TestTxnOffsets.settings = settings(max_examples=60, stateful_step_count=40)
