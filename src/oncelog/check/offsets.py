"""Do the end of a partition and the committed offsets of a group go back?

latest-back, stale-offset. Both compare a read with what was confirmed before it was called, so
the state at the call is all they need; they are judged as events arrive.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import Place
from oncelog.check.history import End, Event, Kind, Op


@dataclass(slots=True, eq=False)
class _Commit:
    offset: int
    called: int
    confirmed: int | None = None  # None: not yet


@dataclass(slots=True)
class _Commits:
    """The commits of one group and partition that a later read may return."""

    live: list[_Commit] = field(default_factory=list)
    lowest_unknown: int | None = None  # of those that may be applied at any time from now on


class Fetched(NamedTuple):
    """An offset that a `committed` read returned."""

    offset: int
    event: int
    t: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """A `committed` read under way, with the commits that were confirmed before it."""

    process: int
    group: str
    bounds: dict[tuple[str, str], list[_Commit]]


class OffsetReads:
    """Judges every `latest` and `committed` read."""

    OPS: Final = frozenset({Op.LATEST, Op.COMMIT, Op.TXN, Op.COMMITTED, Op.HEAL, Op.CRASH})

    def __init__(self) -> None:
        self.anomalies: list[Anomaly] = []
        self._latest: dict[str, tuple[int, int]] = {}  # partition -> offset, event
        self._latest_at_call: dict[int, dict[str, tuple[int, int]]] = {}
        self._commits: dict[tuple[str, str], _Commits] = {}
        self._calls: dict[int, dict[tuple[str, str], _Commit]] = {}
        self._fetches: dict[int, _Fetch] = {}
        self._is_healed = False
        #: What a group's offset was when everything was over, and the event that says so.
        self.settled: dict[tuple[str, str], tuple[int | None, int]] = {}
        #: All that was ever returned.
        self.fetched: dict[tuple[str, str], list[Fetched]] = {}
        #: Groups and partitions whose offset was also set outside of transactions.
        self.plain: set[tuple[str, str]] = set()

    def add(self, event: Event) -> None:
        """Take in the next event."""
        match event.op:
            case Op.LATEST:
                self._add_latest(event)
            case Op.COMMIT | Op.TXN:
                self._add_commit(event)
            case Op.COMMITTED:
                self._add_committed(event)
            case Op.HEAL:
                self._is_healed = True
            case Op.CRASH:
                self._fetches = {
                    call: fetch
                    for call, fetch in self._fetches.items()
                    if fetch.process != event.process
                }
            case _:
                pass

    # --- the end of a partition ---------------------------------------------------------------

    def _add_latest(self, event: Event) -> None:
        if event.kind is Kind.CALL:
            self._latest_at_call[event.n] = dict(self._latest)
            return
        before = {} if event.ref is None else self._latest_at_call.pop(event.ref)
        for part, offset in (event.details.offsets or {}).items():
            if offset is None:
                continue
            known = before.get(part)
            if known is not None and offset < known[0]:
                self.anomalies.append(_latest_back(event, part, offset, *known))
            if part not in self._latest or self._latest[part][0] < offset:
                self._latest[part] = offset, event.n

    # --- the offsets of a group ---------------------------------------------------------------

    def _add_commit(self, event: Event) -> None:
        if event.kind is Kind.CALL:
            if event.group is not None:
                self._calls[event.n] = {}
                self._ask(event, self._calls[event.n], called=event.n)
            return
        asked = {} if event.ref is None else self._calls.pop(event.ref, {})
        # A transaction may name its offsets only at its end: then they were asked for at some
        # time after its call.
        self._ask(event, asked, called=0 if event.ref is None else event.ref)
        is_aborted = event.op is Op.TXN and event.end is not End.COMMIT
        for key, commit in asked.items():
            commits = self._commits[key]
            if event.kind is Kind.OK and not is_aborted:
                commit.confirmed = event.n
                self._forget_older(key, commit)
                continue
            commits.live.remove(commit)
            if event.kind is Kind.UNKNOWN:
                lowest = commits.lowest_unknown
                commits.lowest_unknown = (
                    commit.offset if lowest is None else min(lowest, commit.offset)
                )

    def _ask(self, event: Event, asked: dict[tuple[str, str], _Commit], *, called: int) -> None:
        if event.group is None:
            return
        for part, (_, end) in event.group.offsets.items():
            key = event.group.name, part
            if event.op is Op.COMMIT:
                self.plain.add(key)
            if end is not None and key not in asked:
                asked[key] = _Commit(end, called)
                self._commits.setdefault(key, _Commits()).live.append(asked[key])

    def _forget_older(self, key: tuple[str, str], newest: _Commit) -> None:
        """Drop what was confirmed before `newest` was called: no later read may return it."""
        if any(fetch.group == key[0] for fetch in self._fetches.values()):
            return  # a read under way may still do so
        commits = self._commits[key]
        commits.live = [
            commit
            for commit in commits.live
            if commit.confirmed is None or commit.confirmed > newest.called
        ]

    def _add_committed(self, event: Event) -> None:
        if event.group is None:
            if event.ref is not None:
                self._fetches.pop(event.ref, None)
            return
        name = event.group.name
        if event.kind is Kind.CALL:
            bounds = {
                key: [commit for commit in commits.live if commit.confirmed is not None]
                for key, commits in self._commits.items()
                if key[0] == name
            }
            self._fetches[event.n] = _Fetch(process=event.process, group=name, bounds=bounds)
            return
        fetch = None if event.ref is None else self._fetches.pop(event.ref, None)
        if fetch is None or event.kind is not Kind.OK:
            return
        for part, (_, found) in event.group.offsets.items():
            self._judge(event, fetch, (name, part), found)
            if found is not None:
                fetched = self.fetched.setdefault((name, part), [])
                fetched.append(Fetched(found, event.n, event.t))
            if self._is_healed:
                self.settled[name, part] = found, event.n

    def _judge(self, event: Event, fetch: _Fetch, key: tuple[str, str], found: int | None) -> None:
        returned = -1 if found is None else found
        for bound in fetch.bounds.get(key, ()):
            if bound.offset > returned and not self._is_excused(key, bound, returned):
                self.anomalies.append(_stale_offset(event, key, found, bound))
                return

    def _is_excused(self, key: tuple[str, str], bound: _Commit, returned: int) -> bool:
        """Whether a commit no higher than what was returned may have been applied after it."""
        commits = self._commits[key]
        if commits.lowest_unknown is not None and commits.lowest_unknown <= returned:
            return True
        return any(
            commit.offset <= returned
            and (commit.confirmed is None or commit.confirmed > bound.called)
            for commit in commits.live
        )


def _latest_back(event: Event, part: str, offset: int, known: int, known_event: int) -> Anomaly:
    return Anomaly(
        name=Name.LATEST_BACK,
        text=f"event {event.n} was told that {part} ends at {offset}, though event {known_event}, "
        f"which was complete before event {event.ref} asked, was told {known}",
        events=(known_event, event.n),
        places=(Place(part, known), Place(part, offset)),
    )


def _stale_offset(event: Event, key: tuple[str, str], found: int | None, bound: _Commit) -> Anomaly:
    group, part = key
    returned = "no offset" if found is None else f"offset {found}"
    return Anomaly(
        name=Name.STALE_OFFSET,
        text=f"event {event.n} was told {returned} of group {group} in {part}, though "
        f"{bound.offset} was confirmed by event {bound.confirmed}, before event {event.ref} asked",
        events=(bound.called, bound.confirmed or bound.called, event.n),
        places=(Place(part, bound.offset),),
    )
