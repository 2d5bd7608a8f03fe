"""What the broker counts, and the text in which Prometheus reads it.

Counters are plain integers that whoever does something adds to; a request pays one addition. What
can be looked up when somebody asks (open transactions, connections) is not counted here. Names end
in their unit or in `_total`; labels are a small closed set, never a transactional id.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from oncelog.core.groups.commands import GroupRebalanced, MemberExpired, OffsetsExpired
from oncelog.core.txn.commands import (
    IdsExpired,
    TransactionFenced,
    TransactionTimedOut,
)

#: No API key that we serve is higher.
API_KEYS: Final = 128
#: Upper bounds in seconds: from a commit in memory to one that waits for a tired disk.
LATENCY_BUCKETS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class Histogram:
    """How often a span was at most how long."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BUCKETS_S) -> None:
        self.bounds = tuple(bounds)
        #: One for each bound, and one for what is above all of them.
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one span."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Metrics:
    """The counters of one broker, since it started."""

    def __init__(self) -> None:
        #: By API key.
        self.requests = [0] * API_KEYS
        self.connections_accepted = 0
        self.connections_refused = 0
        self.transactions_committed = 0
        #: Timed out and fenced ones included.
        self.transactions_aborted = 0
        self.transactions_timed_out = 0
        self.transactions_fenced = 0
        self.transactional_ids_expired = 0
        #: From EndTxn to its answer: the decision is durable.
        self.commit_seconds = Histogram()
        #: From the decision until every marker is written: readers see the outcome.
        self.completion_seconds = Histogram()
        self.group_rebalances = 0
        self.group_members_expired = 0
        self.group_offsets_expired = 0

    def count(self, note: object) -> None:
        """Count what a note says."""
        match note:
            case TransactionTimedOut():
                self.transactions_timed_out += 1
            case TransactionFenced():
                self.transactions_fenced += 1
            case IdsExpired():
                self.transactional_ids_expired += note.count
            case GroupRebalanced():
                self.group_rebalances += 1
            case MemberExpired():
                self.group_members_expired += 1
            case OffsetsExpired():
                self.group_offsets_expired += note.offset_count
            case _:
                pass  # Everything else has its line in the log, and that is enough.


# --- the text -----------------------------------------------------------------------------------

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric with its samples, each with labels of its own."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[Labels, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramFamily:
    """One histogram."""

    name: str
    help: str
    histogram: Histogram


def as_text(families: Iterable[Family | HistogramFamily]) -> str:
    """The page in the text format 0.0.4."""
    return "".join(
        _histogram_text(family) if isinstance(family, HistogramFamily) else _family_text(family)
        for family in families
    )


def _family_text(family: Family) -> str:
    lines = [_head(family.name, family.kind, family.help)]
    lines += [
        f"{family.name}{_labels_text(labels)} {_number(value)}\n"
        for labels, value in family.samples
    ]
    return "".join(lines)


def _histogram_text(family: HistogramFamily) -> str:
    lines = [_head(family.name, "histogram", family.help)]
    total = 0
    bounds = [*map(_number, family.histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, family.histogram.counts, strict=True):
        total += count
        lines.append(f'{family.name}_bucket{{le="{bound}"}} {total}\n')
    lines.append(f"{family.name}_sum {_number(family.histogram.sum)}\n")
    lines.append(f"{family.name}_count {total}\n")
    return "".join(lines)


def _head(name: str, kind: str, help_: str) -> str:
    return f"# HELP {name} {help_}\n# TYPE {name} {kind}\n"


def _labels_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
