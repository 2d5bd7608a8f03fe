"""The names of what can be wrong with a run, and one finding with its evidence."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncelog.check.derive import Place


class Name(StrEnum):
    """What can be wrong, by the names that reports use."""

    SPLIT_OFFSET = "split-offset"
    MOVED_VALUE = "moved-value"
    DUPLICATE = "duplicate"
    PHANTOM = "phantom"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    TORN = "torn"
    ABORTED_READ = "aborted-read"
    EARLY_READ = "early-read"
    OWN_READ = "own-read"
    READ_CYCLE = "read-cycle"
    MIXED_CYCLE = "mixed-cycle"
    WRITE_CYCLE = "write-cycle"
    SEND_GAP = "send-gap"
    SEND_BACK = "send-back"
    POLL_SKIP = "poll-skip"
    POLL_BACK = "poll-back"
    INNER_SKIP = "inner-skip"
    INNER_BACK = "inner-back"
    STALE_OFFSET = "stale-offset"
    OVERLAP = "overlap"
    HOLE = "hole"
    LATEST_BACK = "latest-back"
    ZOMBIE_WRITE = "zombie-write"
    DECISION_FLIP = "decision-flip"
    STUCK = "stuck"
    EFFECT_LOST = "effect-lost"
    EFFECT_TWICE = "effect-twice"
    EFFECT_FOREIGN = "effect-foreign"
    BATCH_TORN = "batch-torn"


#: Legal, and never more than worth knowing.
ALWAYS_NOTED: Final = frozenset({Name.MIXED_CYCLE, Name.WRITE_CYCLE, Name.SEND_GAP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One finding: a sentence for people, and the same facts for programs."""

    name: Name
    text: str
    values: tuple[int, ...] = ()
    events: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    is_fatal: bool = True  # otherwise noted: legal, but worth knowing
