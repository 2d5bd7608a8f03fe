"""Is everything that was acknowledged there?

lost-write, unseen.
"""

from collections.abc import Iterator

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import READ, READ_IN_FINAL, Facts, Place
from oncelog.check.reading import Reach, Reading


def missing_values(facts: Facts, reading: Reading, torn: frozenset[int]) -> Iterator[Anomaly]:
    """Lost: readers went past its offset and none got it. Unseen: `final` ended without it.

    Each value is named once. A transaction that is torn has been named already, and its missing
    values belong to that; it only counts here if a value was lost beyond doubt.
    """
    reaches = reading.reaches()
    # With acks=0 and acks=1 nothing was promised (P1), so a loss is only worth knowing.
    is_promised = facts.run.acks == "all"
    for row in facts.rows():
        flags = facts.flags[row]
        if flags & READ_IN_FINAL or not facts.is_proven(row):
            continue
        partition = facts.home(row)
        offset = facts.known_offset(row)
        if partition.log_start > (0 if offset is None else offset):
            continue  # retention may have taken it
        if not flags & READ and offset is not None and partition.name in reaches:
            lost = _lost_write(facts, row, offset, reaches[partition.name], is_promised)
            if lost is not None:
                yield lost
                continue
        if partition.final_event is not None and facts.op[row] not in torn:
            yield _unseen(facts, row, partition.final_event, is_promised)


def _lost_write(
    facts: Facts, row: int, offset: int, reach: Reach, is_promised: bool
) -> Anomaly | None:
    span = reach.past(offset)
    if span is None:
        return None
    place = Place(facts.home(row).name, offset)
    completed = facts.ops.completed[facts.op[row]]
    return Anomaly(
        name=Name.LOST_WRITE,
        text=f"value {facts.value[row]} was acknowledged at {place} by event {completed}; event "
        f"{span.event} read up to {place.part}@{span.last}, and no read returned the value",
        values=(facts.value[row],),
        events=(completed, span.event),
        places=(place,),
        is_fatal=is_promised,
    )


def _unseen(facts: Facts, row: int, final_event: int, is_promised: bool) -> Anomaly:
    offset, part = facts.known_offset(row), facts.home(row).name
    where = part if offset is None else str(Place(part, offset))
    if facts.flags[row] & READ:
        proof, event = "read", facts.first_read[row]
    else:
        proof, event = "confirmed", facts.ops.completed[facts.op[row]]
    return Anomaly(
        name=Name.UNSEEN,
        text=f"value {facts.value[row]} was {proof} in {where} by event {event}, but the final "
        f"read, ended by event {final_event}, lacks it",
        values=(facts.value[row],),
        events=(event, final_event),
        places=() if offset is None else (Place(part, offset),),
        is_fatal=is_promised,
    )
