"""Is there one value per offset and one offset per value, and was each value sent?

split-offset, moved-value, duplicate, phantom.
"""

from collections.abc import Iterator

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import (
    ACKED,
    FAILED,
    NONE,
    READ,
    READ_BEFORE_ASKED,
    Facts,
    Partition,
    Place,
)


def split_offsets(facts: Facts) -> Iterator[Anomaly]:
    """An offset that holds two values."""
    for partition in facts.by_index:
        for offset, rows in sorted(partition.conflicts.items()):
            yield _split_offset(facts, partition, offset, rows)


def _split_offset(facts: Facts, partition: Partition, offset: int, rows: list[int]) -> Anomaly:
    place = Place(partition.name, offset)
    sources = [_source(facts, row, place) for row in rows]
    said = " and ".join(
        f"value {facts.value[row]} ({how} by event {event})"
        for row, (how, event) in zip(rows, sources, strict=True)
    )
    return Anomaly(
        name=Name.SPLIT_OFFSET,
        text=f"{place} holds {said}",
        values=tuple(facts.value[row] for row in rows),
        events=tuple(event for _, event in sources),
        places=(place,),
    )


def _source(facts: Facts, row: int, place: Place) -> tuple[str, int]:
    """Who says that the value stands at this place."""
    for sighting in facts.sightings(row):
        if sighting.place == place:
            return "read", sighting.event
    return "acknowledged", facts.ops.completed[facts.op[row]]


def moved_and_repeated_values(facts: Facts) -> Iterator[Anomaly]:
    """A value read in several places is a duplicate; one read only elsewhere has moved."""
    for row, flags in enumerate(facts.flags):
        acked = facts.acked_offset(row) if flags & READ and flags & ACKED else None
        if acked is not None and acked != facts.read_offset(row):
            if facts.ops.state[facts.op[row]] == FAILED:
                continue  # aborted-read says what is wrong with it
            promised = Place(facts.home(row).name, acked)
            seen = facts.sightings(row)
            if all(sighting.place != promised for sighting in seen):
                yield Anomaly(
                    name=Name.MOVED_VALUE,
                    text=f"value {facts.value[row]} was acknowledged at {promised} by event "
                    f"{facts.ops.completed[facts.op[row]]}, but event {seen[0].event} read it at "
                    f"{seen[0].place}",
                    values=(facts.value[row],),
                    events=(facts.ops.completed[facts.op[row]], seen[0].event),
                    places=(promised, seen[0].place),
                )
    for row in sorted(facts.strays):
        seen = facts.sightings(row)
        if facts.op[row] == NONE or len(seen) < 2:
            continue
        where = ", ".join(f"{sighting.place} (event {sighting.event})" for sighting in seen)
        yield Anomaly(
            name=Name.DUPLICATE,
            text=f"value {facts.value[row]}, sent once by process "
            f"{facts.ops.process[facts.op[row]]}, was read at {where}",
            values=(facts.value[row],),
            events=tuple(sighting.event for sighting in seen),
            places=tuple(sighting.place for sighting in seen),
            is_fatal=facts.is_idempotent(row),
        )


def phantoms(facts: Facts) -> Iterator[Anomaly]:
    """What was read and cannot have been sent, or not yet, or not there."""
    for row, op in enumerate(facts.op):
        if op == NONE:
            yield _phantom(facts, row, "was never sent")
        elif facts.flags[row] & READ_BEFORE_ASKED:
            yield _phantom(facts, row, f"was only sent by event {facts.ops.called[op]}")
    for row, seen in sorted(facts.strays.items()):
        is_elsewhere = all(sighting.place.part != facts.home(row).name for sighting in seen)
        if facts.op[row] != NONE and facts.read_offset(row) is None and is_elsewhere:
            if facts.acked_offset(row) is None:  # otherwise it has moved
                yield _phantom(facts, row, f"was sent to {facts.home(row).name}")
    for sighting in facts.damaged:
        yield Anomaly(
            name=Name.PHANTOM,
            text=f"event {sighting.event} read bytes at {sighting.place} that this run never sent",
            events=(sighting.event,),
            places=(sighting.place,),
        )


def _phantom(facts: Facts, row: int, why: str) -> Anomaly:
    first = facts.sightings(row)[0]
    return Anomaly(
        name=Name.PHANTOM,
        text=f"event {first.event} read value {facts.value[row]} at {first.place}, which {why}",
        values=(facts.value[row],),
        events=(first.event,),
        places=(first.place,),
    )
