"""Did records keep the order of their sends, and did readers get each once and in order?

send-back, poll-skip, poll-back, inner-skip, inner-back.
"""

from collections.abc import Iterator
from itertools import islice

from oncelog.check.anomaly import Anomaly, Name
from oncelog.check.derive import NONE, READ_BEFORE_ASKED, Facts, Place
from oncelog.check.history import Record
from oncelog.check.reading import Gap, Reading

EXAMPLES = 3  # of the values that one reader skipped in one place


def sends_back(facts: Facts) -> Iterator[Anomaly]:
    """Rows are in the order of the sends, so offsets must grow for each process and partition."""
    last: dict[tuple[int, int], int] = {}
    for row, op in enumerate(facts.op):
        if op == NONE or row in facts.strays or facts.flags[row] & READ_BEFORE_ASKED:
            continue
        offset = facts.known_offset(row)
        if offset is None:
            continue
        sender = facts.ops.process[op], facts.part[row]
        before = last.get(sender)
        if before is None or (known := facts.known_offset(before)) is None or known <= offset:
            last[sender] = row
            continue
        yield _send_back(facts, before, row, known, offset)


def _send_back(facts: Facts, first: int, second: int, above: int, below: int) -> Anomaly:
    part = facts.home(first).name
    return Anomaly(
        name=Name.SEND_BACK,
        text=f"process {facts.ops.process[facts.op[first]]} sent value {facts.value[first]} before "
        f"value {facts.value[second]}, but they stand at {part}@{above} and {part}@{below}",
        values=(facts.value[first], facts.value[second]),
        events=tuple(
            dict.fromkeys(
                event
                for event in (facts.ops.called[facts.op[first]], facts.ops.called[facts.op[second]])
                if event != NONE
            )
        ),
        places=(Place(part, above), Place(part, below)),
        is_fatal=facts.is_idempotent(first) and facts.is_idempotent(second),
    )


def reads_back(reading: Reading) -> Iterator[Anomaly]:
    """A consumer that is not moved never gets an offset again, nor a lower one."""
    for part, before, after, before_event, after_event in reading.steps_back:
        is_inner = before_event == after_event
        then = "then" if is_inner else f"then event {after_event} read"
        yield Anomaly(
            name=Name.INNER_BACK if is_inner else Name.POLL_BACK,
            text=f"event {before_event} read {_what(before)} at {part}@{before.offset}, {then} "
            f"{_what(after)} at {part}@{after.offset}, which is not above it",
            values=tuple(value for value in (before.value, after.value) if value is not None),
            events=(before_event,) if is_inner else (before_event, after_event),
            places=(Place(part, before.offset), Place(part, after.offset)),
        )


def _what(record: Record) -> str:
    return "something unknown" if record.value is None else f"value {record.value}"


def reads_with_skips(facts: Facts, reading: Reading) -> Iterator[Anomaly]:
    """A gap between two records is wrong if something readable stands in it."""
    for gap in reading.gaps():
        skipped = list(islice(_readable(facts, gap), EXAMPLES + 1))
        if skipped:
            yield _skip(facts, gap, skipped)


def _readable(facts: Facts, gap: Gap) -> Iterator[int]:
    partition = facts.partitions[gap.part]
    floor = max(gap.before, partition.log_start - 1)
    for offset in partition.positions.keys_between(floor, gap.after):
        row = partition.positions.get(offset) - 1
        # What stands here by its acknowledgement alone, and was read elsewhere, has moved.
        if any(sighting.place == (gap.part, offset) for sighting in facts.sightings(row)):
            yield offset
        elif not facts.sightings(row):
            yield offset


def _skip(facts: Facts, gap: Gap, skipped: list[int]) -> Anomaly:
    partition = facts.partitions[gap.part]
    is_inner = gap.before_event == gap.after_event
    shown = skipped[:EXAMPLES]
    values = tuple(facts.value[partition.positions.get(offset) - 1] for offset in shown)
    named = ", ".join(
        f"value {value} at {gap.part}@{offset}" for value, offset in zip(values, shown, strict=True)
    )
    then = "then" if is_inner else f"then event {gap.after_event} read"
    return Anomaly(
        name=Name.INNER_SKIP if is_inner else Name.POLL_SKIP,
        text=f"event {gap.before_event} read {gap.part}@{gap.before}, {then} "
        f"{gap.part}@{gap.after}, without {named}{' and more' if len(skipped) > EXAMPLES else ''}",
        values=values,
        events=(gap.before_event,) if is_inner else (gap.before_event, gap.after_event),
        places=tuple(Place(gap.part, offset) for offset in shown),
    )
