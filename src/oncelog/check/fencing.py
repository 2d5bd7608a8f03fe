"""Does a producer that was replaced still get something committed?

zombie-write. Whoever opened a transactional id last owns it: from the moment its `open` is confirmed,
no older owner may commit. Epochs say who is older, where clients tell them; otherwise it is the one
whose own `open` was confirmed before the newer one was asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import IS_TXN, NONE, READ, Facts
from oncelog.check.history import Event, Kind, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grant:
    """A confirmed `open`."""

    name: str  # what was opened, for people
    process: int
    called: int
    event: int
    t: int
    producer: tuple[int, int] | None


@dataclass(slots=True)
class _Grants:
    """Who opened one transactional id, or one producer id, in the order of events."""

    all: list[_Grant] = field(default_factory=list)
    #: Those with a higher producer id and epoch than any before.
    rising: list[_Grant] = field(default_factory=list)
    last_of: dict[int, _Grant] = field(default_factory=dict)  # by process

    def add(self, grant: _Grant) -> None:
        self.all.append(grant)
        self.last_of[grant.process] = grant
        if grant.producer is not None:
            highest = self.rising[-1].producer if self.rising else None
            if highest is None or grant.producer > highest:
                self.rising.append(grant)

    def newer(self, event: Event) -> _Grant | None:
        """Who owned the id when this transaction asked for its commit, if not its own producer."""
        tc = event.tc
        if tc is None:
            return None
        if event.producer is not None:
            for grant in reversed(self.rising):
                if grant.producer is None or grant.producer <= event.producer:
                    break
                if grant.t < tc:
                    return grant
        own = self.last_of.get(event.process)
        if own is None:
            return None
        for grant in reversed(self.all):
            if grant is own:
                break
            is_told_by_epochs = grant.producer is not None and event.producer is not None
            if not is_told_by_epochs and grant.called > own.event and grant.t < tc:
                return grant
        return None


class Owners:
    """Collects who opened which id, and which transactions had a newer owner before they ended."""

    OPS: Final = frozenset({Op.OPEN, Op.TXN})

    def __init__(self) -> None:
        #: The newer owner, by the event that completes the transaction.
        self.outdated: dict[int, _Grant] = {}
        self._grants: dict[str | int, _Grants] = {}  # by transactional id, and by producer id
        self._tids: dict[int, str] = {}  # of open calls that named their id

    def add(self, event: Event) -> None:
        """Take in the next event."""
        tid = event.details.tid
        if event.kind is Kind.CALL:
            if tid is not None:
                self._tids[event.n] = tid
            return
        if event.ref is not None:
            tid = self._tids.pop(event.ref, None) or tid
        keys: list[str | int] = [] if tid is None else [tid]
        if event.producer is not None:
            keys.append(event.producer[0])
        if event.op is Op.TXN:
            self._judge(event, keys)
        elif event.kind is Kind.OK:
            name = f"producer {event.producer}" if tid is None else tid
            self._grant(event, name, keys)

    def _judge(self, event: Event, keys: list[str | int]) -> None:
        for key in keys:
            grants = self._grants.get(key)
            newer = None if grants is None else grants.newer(event)
            if newer is not None:
                self.outdated[event.n] = newer
                return

    def _grant(self, event: Event, name: str, keys: list[str | int]) -> None:
        grant = _Grant(
            name=name,
            process=event.process,
            called=event.n if event.ref is None else event.ref,
            event=event.n,
            t=event.t,
            producer=event.producer,
        )
        for key in keys:
            self._grants.setdefault(key, _Grants()).add(grant)


def zombie_writes(facts: Facts, owners: Owners) -> Iterator[Anomaly]:
    """A value that was read, of a transaction whose id had a newer owner before it asked to commit."""
    if not facts.reads_committed or not owners.outdated:
        return
    for row, op in enumerate(facts.op):
        if op == NONE or not facts.ops.flags[op] & IS_TXN or not facts.flags[row] & READ:
            continue
        completed, tc = facts.ops.completed[op], facts.ops.tc[op]
        grant = owners.outdated.get(completed)
        if grant is None:
            continue
        first = facts.sightings(row)[0]
        yield Anomaly(
            name=Name.ZOMBIE_WRITE,
            text=f"event {first.event} read value {facts.value[row]} at {first.place}, of process "
            f"{facts.ops.process[op]} (event {completed}), though event {grant.event} had given "
            f"{grant.name} to process {grant.process} {tc - grant.t} ns before its commit was "
            "asked for",
            values=(facts.value[row],),
            events=(grant.event, completed, first.event),
            places=(first.place,),
        )
