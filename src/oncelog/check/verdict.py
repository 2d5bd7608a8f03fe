"""Judging a history: read it once, name what is wrong, say how sure the verdict is."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.decisions import Decisions, decision_flips
from oncelog.check.derive import Facts
from oncelog.check.effects import PipeOutputs, pipe_anomalies
from oncelog.check.fencing import Owners, zombie_writes
from oncelog.check.floors import Floor, Tally, floors
from oncelog.check.history import Event, History, Op, Run, Unreadable
from oncelog.check.interleaving import noted_cycles, read_cycles, send_gaps
from oncelog.check.loss import missing_values
from oncelog.check.offsets import OffsetReads
from oncelog.check.order import reads_back, reads_with_skips, sends_back
from oncelog.check.places import moved_and_repeated_values, phantoms, split_offsets
from oncelog.check.reading import Reading
from oncelog.check.rest import Rest, stuck
from oncelog.check.transactions import (
    consumed_ranges,
    early_reads,
    own_reads,
    reads_of_what_failed,
    torn_offsets,
    torn_transactions,
)

EXAMPLES: Final = 10  # of each anomaly that a report keeps


class Verdict(StrEnum):
    """What a run shows."""

    VALID = "valid"
    INVALID = "invalid"
    INCONCLUSIVE = "inconclusive"  # a floor was missed: a failure of the run, not of the system


@dataclass(slots=True)
class Finding:
    """All anomalies of one name, and the first few of them."""

    name: Name
    count: int = 0
    fatal_count: int = 0
    examples: list[Anomaly] = field(default_factory=list)

    def add(self, anomaly: Anomaly) -> None:
        """Count one more."""
        self.count += 1
        self.fatal_count += anomaly.is_fatal
        if len(self.examples) < EXAMPLES:
            self.examples.append(anomaly)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of judging one history."""

    source: str
    run: Run
    verdict: Verdict
    findings: tuple[Finding, ...]
    missed: tuple[Floor, ...]
    counts: dict[str, int]

    @property
    def names(self) -> set[str]:
        """The names of all anomalies, fatal and noted."""
        return {finding.name.value for finding in self.findings}


class _Evidence:
    """All that is collected from the events of one history."""

    def __init__(self, run: Run) -> None:
        self.facts = Facts(run)
        self.reading = Reading()
        self.offset_reads = OffsetReads()
        self.owners = Owners()
        self.decisions = Decisions(self.facts)
        self.outputs = PipeOutputs(run.pipes)
        self.rest = Rest()
        self.tally = Tally()

    def collect(self, events: Iterable[Event]) -> None:
        """Take in every event."""
        takers = {op: self._takers(op) for op in Op}
        for event in events:
            for take in takers[event.op]:
                take(event)
        self.facts.finish()

    def _takers(self, op: Op) -> tuple[Callable[[Event], None], ...]:
        """Who looks at such events: to ask everybody about millions of them takes its time."""
        takers: list[Callable[[Event], None]] = [self.facts.add, self.tally.add]
        if op is not Op.SEND:
            takers.append(self.reading.add)
        for collector in (self.offset_reads, self.owners, self.decisions, self.outputs, self.rest):
            if op in collector.OPS:
                takers.append(collector.add)
        return tuple(takers)


def judge(history: History, *, with_floors: bool = True) -> Report:
    """Read a history to its end and judge it; raises Unreadable."""
    evidence = _Evidence(history.run)
    try:
        evidence.collect(history.events)
    except Unreadable as error:
        raise Unreadable(error.why, source=history.source, line=error.line) from None
    facts, tally = evidence.facts, evidence.tally
    findings = _findings(_anomalies(evidence))
    missed = [floor for floor in floors(history.run, facts, tally) if floor.is_missed]
    return Report(
        source=history.source,
        run=history.run,
        verdict=_verdict(findings, missed if with_floors else []),
        findings=findings,
        missed=tuple(missed) if with_floors else (),
        counts={
            "events": facts.events,
            "partitions": len(facts.by_index),
            "values": len(facts.value),
            "confirmed": tally.confirmed,
            "aborted": tally.aborted,
            "failed": tally.failed,
            "unknown": tally.unknown,
            "overlapping": tally.overlapping,
            "faults": sum(tally.injected.values()),
        },
    )


def _anomalies(evidence: _Evidence) -> Iterator[Anomaly]:
    """Every check, the most telling first. A new anomaly is one more function and one more line."""
    facts, reading = evidence.facts, evidence.reading
    yield from split_offsets(facts)
    yield from moved_and_repeated_values(facts)
    yield from phantoms(facts)
    torn = torn_transactions(facts)
    yield from missing_values(facts, reading, frozenset(torn))
    yield from torn.values()
    yield from torn_offsets(facts, evidence.offset_reads)
    yield from decision_flips(facts, evidence.decisions)
    yield from zombie_writes(facts, evidence.owners)
    yield from reads_of_what_failed(facts)
    yield from early_reads(facts)
    yield from own_reads(facts)
    yield from read_cycles(facts)
    yield from consumed_ranges(facts)
    yield from sends_back(facts)
    yield from reads_back(reading)
    yield from reads_with_skips(facts, reading)
    yield from evidence.offset_reads.anomalies
    yield from pipe_anomalies(facts, evidence.outputs)
    yield from stuck(facts, evidence.rest)
    yield from noted_cycles(facts)
    yield from send_gaps(facts)


def _findings(anomalies: Iterable[Anomaly]) -> tuple[Finding, ...]:
    findings: dict[Name, Finding] = {}
    for anomaly in anomalies:
        findings.setdefault(anomaly.name, Finding(anomaly.name)).add(anomaly)
    return tuple(findings.values())


def _verdict(findings: Iterable[Finding], missed: Iterable[Floor]) -> Verdict:
    if any(finding.fatal_count for finding in findings):
        return Verdict.INVALID
    return Verdict.INCONCLUSIVE if any(missed) else Verdict.VALID


def as_text(report: Report) -> str:
    """For people: the verdict, what it rests on, and the first examples of each anomaly."""
    counts = ", ".join(f"{count} {what}" for what, count in report.counts.items() if count)
    lines = [f"{report.source}: {report.verdict} ({counts})"]
    for finding in report.findings:
        noted = finding.count - finding.fatal_count
        how = "noted" if not finding.fatal_count else f"fatal, {noted} noted" if noted else "fatal"
        lines.append(f"  {finding.name}: {finding.count} ({how})")
        lines += [f"    {anomaly.text}" for anomaly in finding.examples]
        if finding.count > len(finding.examples):
            lines.append(f"    and {finding.count - len(finding.examples)} more")
    lines += [
        f"  floor missed: {floor.what}: {floor.reached:g} of {floor.wanted:g}"
        for floor in report.missed
    ]
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, object]:
    """For programs: the same, with values, events and places as data."""
    return {
        "source": report.source,
        "verdict": report.verdict,
        "counts": report.counts,
        "anomalies": [asdict(finding) for finding in report.findings],
        "floors_missed": [asdict(floor) for floor in report.missed],
    }
