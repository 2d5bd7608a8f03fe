"""Does a producer that was replaced still get something committed?

zombie-write. Whoever opened a transactional id last owns it: from the moment its `open` is confirmed,
no older owner may commit. Epochs say who is older, where clients tell them; otherwise it is the one
whose own `open` was confirmed before the newer one was asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import IS_TXN, NONE, READ, Facts
from oncelog.check.history import Event, Kind, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grant:
    """A confirmed `open`."""

    process: int
    called: int
    event: int
    t: int
    producer: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Under whose name a transaction was made."""

    tid: str
    process: int
    producer: tuple[int, int] | None


class Owners:
    """Collects who opened which transactional id, and who made which transaction."""

    def __init__(self) -> None:
        self.grants: dict[str, list[_Grant]] = {}
        self.writers: dict[int, _Writer] = {}  # by the event that completes the transaction
        self._tids: dict[int, str] = {}  # of open calls that named their id

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.op is not Op.OPEN and event.op is not Op.TXN:
            return
        tid = event.details.tid
        if event.kind is Kind.CALL:
            if tid is not None:
                self._tids[event.n] = tid
            return
        if event.ref is not None:
            tid = self._tids.pop(event.ref, None) or tid
        if tid is None:
            return
        if event.op is Op.TXN:
            self.writers[event.n] = _Writer(tid=tid, process=event.process, producer=event.producer)
        elif event.kind is Kind.OK:
            grant = _Grant(
                process=event.process,
                called=event.n if event.ref is None else event.ref,
                event=event.n,
                t=event.t,
                producer=event.producer,
            )
            self.grants.setdefault(tid, []).append(grant)

    def newer(self, writer: _Writer, completed: int, tc: int) -> _Grant | None:
        """Who owned the id when the writer asked for its commit, if that was not the writer."""
        grants = self.grants.get(writer.tid, [])
        own = [grant for grant in grants if grant.process == writer.process]
        own = [grant for grant in own if grant.event < completed]
        for grant in grants:
            if grant.process == writer.process or grant.t >= tc:
                continue
            if grant.producer is not None and writer.producer is not None:
                if grant.producer > writer.producer:
                    return grant
            elif own and grant.called > own[-1].event:
                return grant
        return None


def zombie_writes(facts: Facts, owners: Owners) -> Iterator[Anomaly]:
    """A value that was read, of a transaction whose id had a newer owner before it asked to commit."""
    if not facts.reads_committed or not owners.grants:
        return
    for row, op in enumerate(facts.op):
        if op == NONE or not facts.ops.flags[op] & IS_TXN or not facts.flags[row] & READ:
            continue
        completed, tc = facts.ops.completed[op], facts.ops.tc[op]
        writer = owners.writers.get(completed)
        if writer is None or tc == NONE:
            continue
        grant = owners.newer(writer, completed, tc)
        if grant is None:
            continue
        first = facts.sightings(row)[0]
        yield Anomaly(
            name=Name.ZOMBIE_WRITE,
            text=f"event {first.event} read value {facts.value[row]} at {first.place}, of process "
            f"{writer.process} (event {completed}), though event {grant.event} had given "
            f"{writer.tid} to process {grant.process} {tc - grant.t} ns before its commit was asked "
            "for",
            values=(facts.value[row],),
            events=(grant.event, completed, first.event),
            places=(first.place,),
        )
