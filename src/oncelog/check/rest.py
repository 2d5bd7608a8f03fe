"""Did the run come to rest after healing?

stuck. Told by the ends that `final` found, by what brokers said of transactions and groups (`state`),
and by operations that were made only to see whether they work (`probe`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import Facts, Place
from oncelog.check.history import End, Event, Kind, Op

NS_PER_S: Final = 1_000_000_000
#: A group that is doing nothing, or only its work.
AT_REST: Final = frozenset({"stable", "empty", "dead"})


@dataclass(slots=True)
class _Probe:
    event: Event  # its call
    completion: Event | None = None


class Rest:
    """Collects what was seen after healing."""

    OPS: Final = frozenset({Op.HEAL, Op.STATE, Op.TXN, Op.SEND})

    def __init__(self) -> None:
        self.healed_at: int | None = None  # a time, as are those of events
        self.state: Event | None = None  # the last one
        self.probes: dict[int, _Probe] = {}  # by call

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.op is Op.HEAL:
            self.healed_at = event.t
        elif self.healed_at is None:
            return
        elif event.op is Op.STATE:
            self.state = event
        elif event.op is Op.TXN or event.op is Op.SEND:
            if event.kind is Kind.CALL:
                if event.details.probe:
                    self.probes[event.n] = _Probe(event)
            elif event.ref in self.probes:
                self.probes[event.ref].completion = event


def stuck(facts: Facts, rest: Rest) -> Iterator[Anomaly]:
    """Whatever still hangs when everything had the time to end."""
    yield from _stuck_partitions(facts)
    if rest.state is not None:
        yield from _stuck_state(rest.state)
    limit_ns = int(facts.run.heal_s * NS_PER_S)
    for probe in rest.probes.values():
        why = _why_stuck(probe, limit_ns)
        if why is not None:
            events = (
                (probe.event.n,)
                if probe.completion is None
                else (
                    probe.event.n,
                    probe.completion.n,
                )
            )
            yield Anomaly(
                name=Name.STUCK,
                text=f"the probe of event {probe.event.n}, made after healing, {why}",
                events=events,
            )


def _why_stuck(probe: _Probe, limit_ns: int) -> str | None:
    done = probe.completion
    if done is None:
        return "was never answered"
    is_committed = done.kind is Kind.OK and (done.op is Op.SEND or done.end is End.COMMIT)
    if not is_committed:
        told = done.details.err or done.kind
        return f"did not commit: event {done.n} says {told}"
    if done.t - probe.event.t > limit_ns:
        took_s = (done.t - probe.event.t) / NS_PER_S
        return f"took {took_s:.1f} s to commit, and {limit_ns / NS_PER_S:g} s is the limit"
    return None


def _stuck_state(state: Event) -> Iterator[Anomaly]:
    for tid in state.details.open_txns:
        yield Anomaly(
            name=Name.STUCK,
            text=f"a transaction of {tid} is still open after healing, says event {state.n}",
            events=(state.n,),
        )
    for group, doing in (state.details.groups or {}).items():
        if doing.lower() not in AT_REST:
            yield Anomaly(
                name=Name.STUCK,
                text=f"group {group} is still {doing} after healing, says event {state.n}",
                events=(state.n,),
            )


def _stuck_partitions(facts: Facts) -> Iterator[Anomaly]:
    for partition in facts.by_index:
        if partition.ends is None or partition.ends[0] >= partition.ends[1]:
            continue
        last_stable_offset, log_end_offset = partition.ends
        yield Anomaly(
            name=Name.STUCK,
            text=f"{partition.name} ends at {log_end_offset}, but its last stable offset is still "
            f"{last_stable_offset}, as event {partition.ends_event} found",
            events=(partition.ends_event,),
            places=(Place(partition.name, last_stable_offset),),
        )
