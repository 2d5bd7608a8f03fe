"""What each write task says it did, and whether all of it makes one batch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from oncelog.client.sending import Written
from oncelog.core.types import TopicPartition
from oncelog.spark.errors import RunAgain

#: One row for each task, in the words of `Report.encode`.
REPORT_SCHEMA: Final = "report string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One task's own account."""

    task: int
    stage: int
    attempt_id: int
    written: dict[TopicPartition, Written]
    rejected: int
    #: From the first batch sent to the last one accepted.
    seconds: float
    #: Whether the task gave up what was left (at_most_once).
    gave_up: bool = False

    @property
    def rows(self) -> int:
        """How many records it wrote."""
        return sum(written.records for written in self.written.values())

    def encode(self) -> str:
        """As the driver reads it."""
        written = [
            [place.topic, place.partition, *asdict(found).values()]
            for place, found in sorted(self.written.items())
        ]
        return json.dumps(
            {
                "task": self.task,
                "stage": self.stage,
                "attempt_id": self.attempt_id,
                "written": written,
                "rejected": self.rejected,
                "seconds": self.seconds,
                "gave_up": self.gave_up,
            }
        )

    @classmethod
    def decode(cls, text: str) -> "Report":
        """What a task wrote with `encode`."""
        found = json.loads(text)
        written = {TopicPartition(t, p): Written(*rest) for t, p, *rest in found.pop("written")}
        return cls(written=written, **found)


def check_reports(reports: Sequence[Report], *, tasks: int) -> None:
    """Refuse to commit unless every task has reported once and no partition had two writers."""
    if sorted(report.task for report in reports) != list(range(tasks)):
        seen = sorted(report.task for report in reports)
        raise RunAgain(f"{tasks} tasks were to write and these reported: {seen}.")
    if len({report.stage for report in reports}) > 1:
        raise RunAgain("The reports come from different stages.")
    writers: dict[TopicPartition, int] = {}
    for report in reports:
        for place, written in report.written.items():
            if place in writers:
                raise RunAgain(
                    f"Partition {place} was written by tasks {writers[place]} and {report.task}."
                )
            writers[place] = report.task
            if written.last_offset - written.first_offset + 1 < written.records:
                raise RunAgain(
                    f"Partition {place} took {written.records} records between offsets "
                    f"{written.first_offset} and {written.last_offset}."
                )
