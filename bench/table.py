"""What is measured, what we want of it, and how it is shown.

A ratio is always ours divided by Kafka's; whether a large or a small one is wanted stands in the
row's target. The two of one round were measured one right after the other, so each round has a ratio
of its own, and the median of those is what counts: a machine that is busy for a while slows both.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a row should reach: every bound that is given must hold."""

    ratio_at_least: float | None = None
    ratio_at_most: float | None = None
    #: In the row's own unit, whatever Kafka does.
    ours_at_most: float | None = None

    def __str__(self) -> str:
        """As it stands in the table."""
        parts = []
        if self.ours_at_most is not None:
            parts.append(f"≤ {_number(self.ours_at_most)}")
        if self.ratio_at_least is not None:
            parts.append(f"≥ {self.ratio_at_least:.2f}x")
        if self.ratio_at_most is not None:
            parts.append(f"≤ {self.ratio_at_most:.2f}x")
        return ", ".join(parts)

    def is_met(self, *, ours: float, ratio: float) -> bool:
        """Whether every bound holds."""
        return (
            (self.ours_at_most is None or ours <= self.ours_at_most)
            and (self.ratio_at_least is None or ratio >= self.ratio_at_least)
            and (self.ratio_at_most is None or ratio <= self.ratio_at_most)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    unit: str
    target: Target
    #: What is wanted instead where both sync before they acknowledge.
    synced_target: Target | None = None
    #: Whether more is better, as for a rate, or less, as for a time.
    more_is_better: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the rounds of one row gave, in the order in which they were measured."""

    row: Row
    mode: str
    ours: Sequence[float]
    kafkas: Sequence[float]

    @property
    def ours_median(self) -> float:
        """Our middle round."""
        return statistics.median(self.ours)

    @property
    def kafkas_median(self) -> float:
        """Kafka's middle round."""
        return statistics.median(self.kafkas)

    @property
    def ours_best(self) -> float:
        """Our best round."""
        return self._best(self.ours)

    @property
    def kafkas_best(self) -> float:
        """Kafka's best round."""
        return self._best(self.kafkas)

    def _best(self, values: Sequence[float]) -> float:
        return max(values) if self.row.more_is_better else min(values)

    @property
    def ratio(self) -> float:
        """Ours over Kafka's: the median of the rounds."""
        return statistics.median(
            ours / kafkas for ours, kafkas in zip(self.ours, self.kafkas, strict=True)
        )

    @property
    def ratio_of_best(self) -> float:
        """Ours over Kafka's, of the best rounds: what is left when the machine was busy."""
        return self.ours_best / self.kafkas_best

    @property
    def target(self) -> Target:
        """What is wanted at this durability."""
        if self.mode == "sync" and self.row.synced_target is not None:
            return self.row.synced_target
        return self.row.target

    @property
    def is_met(self) -> bool:
        """Whether our median and the ratio meet the target."""
        return self.target.is_met(ours=self.ours_median, ratio=self.ratio)

    def as_json(self) -> dict[str, object]:
        """For the file of `--json`."""
        return {
            "row": self.row.name,
            "unit": self.row.unit,
            "mode": self.mode,
            "ours": {"median": self.ours_median, "best": self.ours_best, "all": list(self.ours)},
            "kafka": {
                "median": self.kafkas_median,
                "best": self.kafkas_best,
                "all": list(self.kafkas),
            },
            "ratio": self.ratio,
            "ratio_of_best": self.ratio_of_best,
            "target": str(self.target),
            "met": self.is_met,
        }


HEADINGS = ("what", "unit", "flush", "ours", "Kafka", "ratio", "of best", "target", "met")


def render(results: Sequence[Result]) -> str:
    """The table, as Markdown that also reads well in a terminal."""
    lines = [HEADINGS, *(_cells(result) for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    ruler = tuple("-" * width for width in widths)
    return "\n".join(_line(cells, widths) for cells in (lines[0], ruler, *lines[1:]))


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.row.name,
        result.row.unit,
        result.mode,
        _number(result.ours_median),
        _number(result.kafkas_median),
        f"{result.ratio:.2f}x",
        f"{result.ratio_of_best:.2f}x",
        str(result.target),
        "yes" if result.is_met else "NO",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"


def _number(value: float) -> str:
    """Three digits that count, and no more."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
