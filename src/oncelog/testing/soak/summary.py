"""What a soak came to: for people, for programs, and as an exit code."""

from dataclasses import asdict, dataclass, field
from typing import Final

from oncelog.testing.soak.watch import Sample, Watch, growth_per_hour, milliseconds

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one thing went: at the first look, at the last one, and at its highest."""

    start: int
    end: int
    peak: int


@dataclass(slots=True, kw_only=True)
class Summary:
    """Everything that a soak has to say."""

    seed: int
    flush: str
    seconds: float
    broker_kills: int = 0
    client_kills: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    input_records: int = 0
    copied_records: int = 0
    #: Of the broker's last life, in bytes an hour.
    memory_growth: float | None = None
    last_life_s: float = 0.0
    memory: Course | None = None
    handles: Course | None = None
    threads: Course | None = None
    disk: Course | None = None
    commit_p50_ms: float | None = None
    commit_p99_ms: float | None = None
    history_events: int = 0
    verdict: str = "not judged"
    #: What was found wrong: anomalies, and clients or steps that failed.
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether the audit found nothing, and there was something to find."""
        return not self.problems and self.verdict == "valid" and self.committed > 0

    def take(self, watch: Watch) -> None:
        """Take over what was measured."""
        samples, last = watch.samples, watch.last_life()
        if samples:
            self.memory = _course([each.rss_bytes for each in samples])
            self.handles = _course([each.handle_count for each in samples])
            self.threads = _course([each.thread_count for each in samples])
            self.disk = _course([each.disk_bytes for each in samples])
        self.memory_growth = growth_per_hour(last)
        self.last_life_s = last[-1].age_s if last else 0.0
        self.commit_p50_ms = milliseconds(watch.latencies.below_s(0.5))
        self.commit_p99_ms = milliseconds(watch.latencies.below_s(0.99))


def as_json(summary: Summary, samples: list[Sample]) -> dict[str, object]:
    """For programs, with every sample."""
    good = {"is_good": summary.is_good}
    return good | asdict(summary) | {"samples": [asdict(each) for each in samples]}


def as_text(summary: Summary) -> str:
    """For people."""
    growth = summary.memory_growth
    slope = (
        f"; in the last life of {summary.last_life_s:.0f} s {growth / MIB:+.1f} MiB an hour"
        if growth is not None
        else ""
    )
    latency = f"p50 {summary.commit_p50_ms} ms, p99 {summary.commit_p99_ms} ms"
    rows = {
        "run": f"{summary.seconds:.0f} s, seed {summary.seed}, flush={summary.flush}",
        "faults": f"{summary.broker_kills} kills of the broker, {summary.client_kills} of clients",
        "transactions": f"{summary.committed} committed, {summary.aborted} aborted on purpose, "
        f"{summary.unknown} of unknown end",
        "commit": latency,
        "copy": f"{summary.copied_records} of {summary.input_records} records",
        "memory": f"{_mib(summary.memory)}{slope}",
        "handles": _counts(summary.handles),
        "threads": _counts(summary.threads),
        "disk": _mib(summary.disk),
        "history": f"{summary.history_events} events: {summary.verdict}",
    }
    lines = [f"{name:<13} {text}" for name, text in rows.items()]
    lines += [f"PROBLEM       {each}" for each in summary.problems]
    lines.append(f"{'audit':<13} {'passed' if summary.is_good else 'FAILED'}")
    return "\n".join(lines)


def _course(values: list[int]) -> Course:
    return Course(start=values[0], end=values[-1], peak=max(values))


def _mib(course: Course | None) -> str:
    if course is None:
        return "not measured"
    start, end, peak = (value / MIB for value in (course.start, course.end, course.peak))
    return f"{start:.1f} MiB at the start, {end:.1f} at the end, {peak:.1f} at most"


def _counts(course: Course | None) -> str:
    if course is None:
        return "not measured"
    return f"{course.start} at the start, {course.end} at the end, {course.peak} at most"
